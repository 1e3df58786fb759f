"""Simulated runs in mode persistentState: versions of local databases, on disks that workers see or do not see.

The chains of `tests.snapshot.testing.replayed` show whether a restored database has exactly the rows of its cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from cutline import Context, Deltas, Graph, GraphError, MemoryBackend, PersistentState, SnapshotEditor
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.coordinator import disk_placement
from cutline.snapshot.coordinator.control import RestoredSubtask
from cutline.snapshot.coordinator.restart_policy import RestartPolicy
from cutline.snapshot.coordinator.run_state import Outcome
from cutline.snapshot.keyed.cold_tier import ColdTier
from cutline.snapshot.modes.steps import step_records
from cutline.snapshot.plan.modes import ModeWish
from cutline.snapshot.stored.certificate import LocalVersion
from cutline.snapshot.stored.run_store import RunStore
from cutline.snapshot.subtask.restored import Restored
from cutline.snapshot.testing.checkers import judge
from cutline.snapshot.testing.history import History
from cutline.snapshot.testing.simulation.disks import SimulatedDisk
from cutline.snapshot.testing.simulation.simulated_coordinator import SimulatedCoordinator
from cutline.snapshot.testing.steps import Crash, RequestSnapshot
from cutline.snapshot.worker.restored_parts import RestoredParts
from cutline.testing import Odds, Simulator
from tests.run_size import FACTOR, scaled
from tests.snapshot.testing.replayed import Keyed, KeyedLists, chain_problems, chained

SIZES = {"a": 24, "b": 18, "c": 14}
LATE_FAULTS = Odds(fault=400, worst=400)
MODES = {"versions": PersistentState("/disk", every=3), "copied": PersistentState("/disk", every=3, copy=True)}


def _run(choose: Any, mode: ModeWish, graph: Graph | None = None, **settings: Any) -> History:
    settings = {
        "snapshotInterval": 0.05, "retainedSnapshots": 2, "restartPolicy": RestartPolicy(maxRestarts=50),
        "odds": LATE_FAULTS, **settings,
    }  # fmt: skip
    return Simulator(graph or chained(Keyed(), SIZES), choose, mode=mode, **settings).run()


def _check(history: History, where: object) -> None:
    assert history.outcome is Outcome.FINISHED, (where, history.reason)
    rows = history.output("out")
    assert chain_problems(rows) == [], where
    assert sum(row[6] for row in rows) == 2 * sum(SIZES.values()), where


@pytest.fixture(scope="module")
def seen() -> Iterator[Counter[str]]:
    """What the runs had."""
    found: Counter[str] = Counter()
    yield found
    if FACTOR >= 1:
        due = ["a subtask is where its disk is", "a version was opened", "versions were removed", "steps behind it"]
        due += ["a version of an aborted snapshot", "a worker crashed", "CrashCoordinator", "two drivers", "Freeze"]
        assert all(found[each] for each in due), found


# ---------------------------------------------------------------- restores


NODES = (Keyed, KeyedLists)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("block", range(2))
def test_a_restore_is_exact(mode: str, block: int, seen: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """With faults of all kinds at random: one chain for each key, nothing lost, nothing doubled."""
    read = SimulatedDisk._read

    def noting(self: SimulatedDisk, version: LocalVersion) -> bytes:
        seen["a version was opened"] += 1
        return read(self, version)

    monkeypatch.setattr(SimulatedDisk, "_read", noting)
    for seed in range(scaled(20)):
        files: dict[str, bytes] = {}
        graph = chained(NODES[block % 2](), SIZES)
        history = _run(1000 * block + seed, MODES[mode], graph, faults=4, files=files)
        _check(history, seed)
        assert all(verdict.holds for verdict in judge(history)), (seed, list(map(str, judge(history))))
        seen.update(history.seen)
        records = [record for snapshot in history.snapshots for record in snapshot.manifest.records if record.version]
        published = dict.fromkeys(record.version.snapshot_id for record in records if record.version)
        kept = {int(path.rpartition("/")[2]) for path in files if path.startswith("disk-")}
        seen["versions were removed"] += len(published) > len(kept)
        seen["a version of an aborted snapshot"] += bool(kept - {*published})
        seen["steps behind it"] += any(record.steps for record in records)
        if mode == "versions":
            assert not any(record.rows for record in records), "rows are in the local databases only"


@pytest.mark.parametrize("mode", MODES)
def test_a_crash_after_any_number_of_steps(mode: str) -> None:
    """One worker crashes after the n-th step of a run with snapshots, for each n of a small run."""
    reference = _run(1, MODES[mode])
    _check(reference, "without a crash")
    steps = len(reference.schedule)
    for place in range(1, steps, max(1, round(steps / scaled(30)))):
        history = _run([*reference.schedule[:place], Crash(1)], MODES[mode], seed=1, skipsImpossible=True)
        _check(history, place)


# ---------------------------------------------------------------- the next run


def _stopped(mode: PersistentState, seed: int = 2, **settings: Any) -> dict[str, bytes]:
    """What a run has stored that was stopped with a snapshot in the middle: on its disks, too."""
    files: dict[str, bytes] = {}
    graph = chained(Keyed(), SIZES, endless=True)
    begun = _run(seed, mode, graph, maxSteps=900, **settings).schedule
    history = _run([*begun, RequestSnapshot(stop=True)], mode, graph, seed=seed, files=files, **settings)
    assert history.outcome is Outcome.STOPPED, history.reason
    return files


def test_a_lost_disk_is_named() -> None:
    """By snapshot, node, subtask and disk. Where the rows were copied, it costs only time."""
    for mode in MODES.values():
        files = _stopped(mode)
        left = {path: data for path, data in files.items() if not path.startswith("disk-")}
        for workers, kept in ((2, left), (1, files)):
            history = _run(3, mode, files=dict(kept), workers=workers)
            if mode.copy and workers == 1:
                assert history.outcome is Outcome.FINISHED, history.reason
            elif not mode.copy and workers == 1:
                assert history.outcome is Outcome.FAILED
                assert "subtask" in history.reason and "which no worker sees; bring it back" in history.reason
            else:
                assert history.outcome is Outcome.FAILED
                assert "disk-" in history.reason and " has no " in history.reason


def test_rows_that_were_copied_can_be_divided() -> None:
    """Another parallelism reads the copies. Without them it is refused, with the way out."""
    graph = chained(Keyed(), SIZES).withParallelism({"node": 3})
    history = _run(3, MODES["copied"], graph, files=_stopped(MODES["copied"]))
    assert history.outcome is Outcome.FINISHED, history.reason
    history = _run(3, MODES["versions"], graph, files=_stopped(MODES["versions"]))
    assert history.outcome is Outcome.FAILED
    assert "the keyed state of 'node' is in local databases only, which cannot be divided" in history.reason


def test_a_run_keeps_its_copies() -> None:
    """A list of rows that began in the middle of a run would lack the older rows."""
    for before, now in (("versions", "copied"), ("copied", "versions")):
        history = _run(3, MODES[now], files=_stopped(MODES[before]))
        assert history.outcome is Outcome.FAILED
        assert f"was made with copy={MODES[before].copy}; submit it so" in history.reason
    history = _run(3, Deltas(), files=_stopped(MODES["copied"]))
    assert history.reason == "run 'chained' was made in mode 'persistentState'; submit it so, or under another name"


class Untimed(Keyed):
    """Keeps the last number for ever."""

    def open(self, context: Context) -> None:
        self.chain = context.getValueState("chain")
        self.last = context.getValueState("last")


class OtherKind(Keyed):
    """Asks for a list where values are stored."""

    def open(self, context: Context) -> None:
        super().open(context)
        self.other = context.getListState("chain")


@pytest.mark.parametrize("mode", MODES)
def test_a_version_tells_what_its_states_are(mode: str) -> None:
    """Rows that expire make a state timed, also where the node does not say so any more; another kind is refused."""
    history = _run(3, MODES[mode], chained(Untimed(), SIZES), files=_stopped(MODES[mode]))
    assert history.outcome is Outcome.FINISHED, history.reason
    history = _run(3, MODES[mode], chained(OtherKind(), SIZES), files=_stopped(MODES[mode]))
    assert history.outcome is Outcome.FAILED and "'chain'" in history.reason, history.reason


def test_an_edit_of_rows_gives_up_the_local_database() -> None:
    """It has other rows now, so the copies are restored."""
    files = _stopped(MODES["copied"])
    store = MemoryBackend()
    for path, data in files.items():
        if not path.startswith("disk-"):
            store.put_if_absent(path, [data])
    snapshot = RunStore(store, "chained").read_snapshots(Codec())[-1]
    key, value = next(iter(snapshot.node("node").keyedState("chain").items()))
    edited = SnapshotEditor(snapshot).setValue("node", "chain", key, value).write(force=True)
    versions = [(record.version is None, record.rows is None) for record in edited.records("node")]
    assert (True, False) in versions and (True, True) not in versions
    assert (False, False) in versions, "the other subtask keeps its database"
    copied = SnapshotEditor(snapshot).write("copy")
    assert all(record.version is None for record in copied.records("node"))


# ---------------------------------------------------------------- mutants


def _newest_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restore opens the newest version of the disk, whatever the manifest says."""

    def read(self: SimulatedDisk, version: LocalVersion) -> bytes:
        folder = self._path(version).rpartition("/")[0]
        return self.files[max(path for path in self.files if path.startswith(f"{folder}/"))]

    monkeypatch.setattr(SimulatedDisk, "_read", read)


def _dropped_at_the_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new version replaces the older ones before its snapshot is published."""
    begin = ColdTier.begin_version

    def begin_alone(self: ColdTier, snapshot_id: int) -> Any:
        keep = self.store._keep  # type: ignore[attr-defined]
        cells = dict(zip(keep.__code__.co_freevars, keep.__closure__, strict=True))
        disk, subtask = cells["self"].cell_contents, cells["subtask"].cell_contents
        for path in [each for each in disk.files if each.startswith(f"{disk.name}/{disk.run}/{subtask}/")]:
            del disk.files[path]
        return begin(self, snapshot_id)

    monkeypatch.setattr(ColdTier, "begin_version", begin_alone)


def _without_changed_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version lacks the rows that changed since the last memtable."""
    monkeypatch.setattr(ColdTier, "capture", ColdTier.take_sealed)


def _on_any_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Subtasks are placed as if all workers saw all disks."""
    monkeypatch.setattr(disk_placement, "_disk_of", lambda restored: "disk-0")
    hosts_of = disk_placement.hosts_of
    monkeypatch.setattr(
        disk_placement,
        "hosts_of",
        lambda plan, places, disks, is_copied: hosts_of(plan, places, [["disk-0"] for _ in disks], is_copied=is_copied),
    )


def _without_the_older_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step behind a version does not list it."""
    completed = step_records._completed

    def without(record: Any, before: Any, *, is_sink: bool) -> Any:
        found = completed(record, before, is_sink=is_sink)
        return type(found)(**{name: getattr(found, name) for name in found.__slots__ if name != "version"})

    monkeypatch.setattr(step_records, "_completed", without)


def _too_few_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions go with the snapshots that made them, also where later steps list them."""

    def versions(self: SimulatedCoordinator, removed: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(each for each in self._store.manifests() if each not in removed))

    monkeypatch.setattr(SimulatedCoordinator, "_versions", versions)


def _in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restored subtask reads the rows of the snapshot beside those of its version."""
    restored = RestoredParts.restored

    def mutant(self: RestoredParts, at: RestoredSubtask, run: str) -> Restored:
        return replace(restored(self, at, run), version=None)

    monkeypatch.setattr(RestoredParts, "restored", mutant)


#: {rule: what removes it, and the first seed at which that is found}
MUTANTS = {
    "the manifest decides": (_newest_version, 18),
    "older versions stay": (_dropped_at_the_cut, 2),
    "all rows of the cut": (_without_changed_rows, 4),
    "the disk of the version": (_on_any_disk, 15),
    "each snapshot lists its version": (_without_the_older_version, 20),
    "versions live as long as their manifests": (_too_few_kept, 20),
    "the version is opened": (_in_place, 8),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_mutants_die(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the rule a restore ends with an error or with another chain."""
    change, first = MUTANTS[mutant]
    change(monkeypatch)
    for seed in range(first, first + 60):
        try:
            history = _run(seed, PersistentState("/disk", every=10), faults=4, retainedSnapshots=1)
        except (AssertionError, KeyError, ValueError):
            return
        if history.outcome is not Outcome.FINISHED or chain_problems(history.output("out")):
            return
    pytest.fail("60 runs were right without the rule")


def test_rows_on_local_disks_cannot_be_read_from_the_store() -> None:
    """The error says so, and what stores them. Copies can be read."""
    for name, mode in MODES.items():
        history = _run(3, mode, chained(Keyed(), SIZES))
        node = next(each for each in history.snapshots if each.manifest.final).node("node")
        if name == "copied":
            assert node.keyedState("chain")
        else:
            with pytest.raises(GraphError, match=r"node\[0\] is in a local database on disk disk-\d, and not in the"):
                node.keyedState("chain")
