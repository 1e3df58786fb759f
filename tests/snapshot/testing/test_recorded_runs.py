"""Mode channelLogs in simulated runs: whatever fails, one history comes out, of nodes that are not deterministic."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from cutline import ChannelLogs, Graph, MemoryBackend, SnapshotEditor
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.coordinator import events
from cutline.snapshot.coordinator.fence import Fence
from cutline.snapshot.coordinator.restart_policy import RestartPolicy
from cutline.snapshot.coordinator.run_state import Outcome
from cutline.snapshot.errors import RestoreRefused
from cutline.snapshot.plan.modes import ModeWish
from cutline.snapshot.stored.local_checkpoint import LocalCheckpoint
from cutline.snapshot.stored.local_checkpoint_files import LocalCheckpointFiles
from cutline.snapshot.stored.memory_files import MemoryFiles
from cutline.snapshot.stored.run_store import RunStore
from cutline.snapshot.testing.checkers import CheckFailed, judge
from cutline.snapshot.testing.history import History
from cutline.snapshot.testing.payload import unpack
from cutline.snapshot.testing.simulation.simulated_coordinator import SimulatedCoordinator
from cutline.snapshot.testing.simulator import Impossible, Mutation
from cutline.snapshot.testing.steps import (
    Arrive,
    Crash,
    CrashCoordinator,
    CutControl,
    FailStage,
    HangStore,
    Quiesce,
    RequestSnapshot,
    Step,
    Tick,
    Transmit,
)
from cutline.snapshot.trace_events import Kind
from cutline.state_backends.verify import verify_run
from cutline.testing import ListSink, Odds, Simulator
from tests.run_size import FACTOR, scaled
from tests.snapshot.testing.recorded import INTERVAL, Link, Numbers, demand, number_of, problems, recorded, run

MANY = RestartPolicy(maxRestarts=50)

#: situations of which a campaign must have each
_DUE = (
    *("a record waited", "a log cut inside an entry", "a record behind another claim", "a run was adopted"),
    *("two drivers", "two lives of a coordinator", "a snapshot with messages in flight", "FailStore", "TearStore"),
)


def test_one_history_whatever_fails() -> None:
    """Graphs of one to three layers and diamonds, under six faults of all kinds."""
    seen: Counter[str] = Counter()
    for seed in range(scaled(150)):
        seen.update(run(seed, faults=6).seen)
    if FACTOR >= 1:
        assert not [each for each in _DUE if not seen[each]], seen


def test_stops_and_requests_among_faults() -> None:
    """A run that is stopped with a snapshot is submitted again, and goes on from the newest records."""
    seen: Counter[str] = Counter()
    for seed in range(scaled(40)):
        seen.update(run(seed, odds=Odds(fault=60, tick=8, stops=True, request=30, requests=3)).seen)
    assert seen["a coordinator ended stopped"] or FACTOR < 1


def _output(*histories: History) -> list[tuple[object, ...]]:
    """Return the rows of several histories of one run, each once."""
    rows: dict[str, list[bytes]] = {}
    for history in histories:
        for token, packed in history.committed["out"].items():
            rows.setdefault(token, packed)
    return [unpack(row, histories[0].codec) for packed in rows.values() for row in packed]


def test_another_driver_goes_on_from_the_files_alone() -> None:
    """A run is cut off anywhere, with all its processes. Records that no snapshot lists are not lost."""
    for seed in range(scaled(40)):
        files: dict[str, bytes] = {}
        settings: dict[str, Any] = {"mode": ChannelLogs(INTERVAL), "files": files, "restartPolicy": MANY}
        first = Simulator(recorded(1, 6), seed, maxSteps=150 + 17 * seed, **settings).run()
        history = Simulator(recorded(1, 6), seed + 1, faults=2, **settings).run()
        assert history.outcome is Outcome.FINISHED, history.reason
        assert problems(_output(first, history), 6, 1) == [], seed
        assert [verdict.text for verdict in judge(history) if not verdict.holds] == []


def _step(simulator: Simulator, chance: Random) -> None:
    """Take one step by chance, or let time pass."""
    possible = simulator.possible()
    simulator.take(chance.choice(possible) if possible and chance.randrange(6) else Tick(0.02))


def _stopped(files: dict[str, bytes]) -> History:
    """Return a run that has some records and was stopped with a snapshot."""
    simulator = Simulator(recorded(1, 20), [], seed=2, mode=ChannelLogs(INTERVAL), files=files)
    simulator.take(Quiesce())
    chance = Random(2)
    while not (simulator.history.snapshots or simulator.isOver):
        _step(simulator, chance)
    simulator.take(RequestSnapshot(stop=True))
    history = simulator.finish()
    assert history.outcome is Outcome.STOPPED
    return history


def test_a_fork_goes_on_by_itself() -> None:
    """A fork restores a snapshot of its origin, has records of its own, and lists no part of the origin."""
    files: dict[str, bytes] = {}
    origin = _stopped(files).snapshots[-1]
    for seed in range(scaled(10)):
        graph = recorded(1, 20, name=f"fork{seed}")
        settings: dict[str, Any] = {"mode": ChannelLogs(INTERVAL), "files": files, "restartPolicy": MANY}
        history = Simulator(graph, seed, faults=3, restoreFrom=origin, **settings).run()
        assert history.outcome is Outcome.FINISHED, history.reason
        deployed = next(event for event in history.events if event.kind is Kind.DEPLOYED)
        assert deployed.snapshot_id == 0, "the origin's snapshot is none of the fork"
        for snapshot in history.snapshots:
            assert all(
                handle.run == graph.name for record in snapshot.manifest.records for handle in record.all_handles
            )


@pytest.mark.parametrize(
    ("links", "mode", "reason"),
    [
        (3, ChannelLogs(INTERVAL), "parallelism 2 -> 3"),
        (2, "markers", "was made in mode 'channelLogs'; submit it so, or under another name"),
    ],
)
def test_what_a_restore_refuses(links: int, mode: ModeWish, reason: str) -> None:
    """Logs of channels fit no other graph, and records no other mode."""
    files: dict[str, bytes] = {}
    _stopped(files)
    history = Simulator(recorded(1, 20, links=links), 1, mode=mode, files=files).run()
    assert history.outcome is Outcome.FAILED and reason in history.reason


def test_the_report_says_how_far_each_subtask_was() -> None:
    """The store of one worker hangs, so that its subtasks lag: their logs are sent again, by number."""
    simulator = Simulator(recorded(0, 30), [], seed=4, mode=ChannelLogs(INTERVAL), restartPolicy=MANY)
    simulator.take(Quiesce())
    chance = Random(4)
    while not (simulator.history.snapshots or simulator.isOver):
        _step(simulator, chance)
    simulator.take(HangStore(1, 5.0))
    for _ in range(300):
        _step(simulator, chance)
    simulator.take(FailStage())
    history = simulator.finish()
    demand(history, 30, 1)
    restored = next(each for each in history.snapshots if each.manifest.recovery is not None)
    report = restored.manifest.recovery
    assert report is not None
    sent = {entry.channel: entry.sent for record in restored.manifest.records for entry in record.sent}
    for record, each in zip(restored.manifest.records, report.subtasks, strict=True):
        assert each.subtask == record.subtask
        assert [log.last for log in each.logs] == [sent[entry.channel] for entry in record.received]
        assert [log.first for log in each.logs] == [entry.processed + 1 for entry in record.received]
    again = {str(each.subtask): sum(log.count for log in each.logs) for each in report.subtasks}
    assert again["link[1]"] > 0, str(report)
    lines = str(report).splitlines()
    assert any(line.startswith("link[1]: record") for line in lines), str(report)
    assert any(line.startswith("  behind numbers[") and line.endswith(" again") for line in lines), str(report)


def test_crashes_behind_every_step() -> None:
    """A small run, with a crash of each worker behind some of its steps, and behind all of them in a long search."""
    reference = Simulator(recorded(0, 3), 2, mode=ChannelLogs(INTERVAL)).run()
    places = [(place, process) for place in range(len(reference.schedule)) for process in (0, 1)]
    Random(3).shuffle(places)
    for place, process in places[: scaled(60)]:
        schedule = [*reference.schedule[:place], Crash(process)]
        settings: dict[str, Any] = {"mode": ChannelLogs(INTERVAL), "restartPolicy": MANY, "skipsImpossible": True}
        demand(Simulator(recorded(0, 3), schedule, seed=2, **settings).run(), 3, 1)


def test_what_a_stopped_run_leaves_is_verified_and_not_edited() -> None:
    """Records belong to a run, a damaged one is named, and an edit that would lose newer records is refused."""
    files: dict[str, bytes] = {}
    snapshot = _stopped(files).snapshots[-1]
    store = MemoryBackend()
    for path, data in files.items():
        store.put_if_absent(path, [data])
    assert verify_run(store, "recorded").problems == ()
    (path, *_) = [path for path in files if "/records/" in path]
    damaged = MemoryBackend()
    for each, data in files.items():
        damaged.put_if_absent(each, [data[:-1] + bytes([data[-1] ^ 1]) if each == path else data])
    assert any(path in problem for problem in verify_run(damaged, "recorded").problems)
    editor = SnapshotEditor(RunStore(store, "recorded").read_snapshot(snapshot.id, Codec()))
    editor.dropMessages(("numbers", "pass0"), lambda message: True)
    with pytest.raises(RestoreRefused, match="subtasks may have newer records, which an edited snapshot would lose"):
        editor.write()


def test_a_chosen_older_snapshot_is_restored_without_newer_records() -> None:
    """Records behind the chosen snapshot do not count, also when the coordinator dies at once (PROTOCOL 14.6)."""
    files: dict[str, bytes] = {}
    chosen = _stopped(files).snapshots[0]
    newest = Simulator(recorded(1, 20), 5, mode=ChannelLogs(INTERVAL), files=dict(files), maxSteps=400).run()
    assert newest.snapshots[-1].id > chosen.id

    def fence(owner: str, instance: str) -> Fence:
        return Fence(f"chooser {owner}", instance, chosen.id)  # another owner than that of the first run

    mutation = Mutation(fence=fence)  # type: ignore[arg-type]  # called as the class is
    for is_crashed in (False, True):
        settings: dict[str, Any] = {"mode": ChannelLogs(INTERVAL), "restartPolicy": MANY, "mutation": mutation}
        simulator = Simulator(recorded(1, 20), [], seed=1, files=dict(files), **settings)
        chance = Random(1)
        if is_crashed:
            while not _is_restored(simulator):
                _quick_step(simulator, chance)
            simulator.take(CrashCoordinator())
        history = simulator.finish()
        assert history.outcome is Outcome.FINISHED, history.reason
        restored = [each for each in history.snapshots if each.manifest.recovery is not None]
        assert len(restored) > is_crashed
        for each in restored[: 1 + is_crashed]:
            assert [record.state for record in each.manifest.records] == [
                record.state for record in chosen.manifest.records
            ]


def _is_restored(simulator: Simulator) -> bool:
    return any(each.manifest.recovery is not None for each in simulator.history.snapshots)


def _quick_step(simulator: Simulator, chance: Random) -> None:
    """Take one step by chance, and seldom let time pass, so that no deadline passes."""
    possible = [each for each in simulator.possible() if not isinstance(each, Tick)]
    if not simulator.isOver:
        simulator.take(chance.choice(possible) if possible and chance.randrange(15) else Tick(0.02))


def verified(seed: int) -> None:
    """Some snapshots on request. All parts of all that are kept are there at the end."""
    files: dict[str, bytes] = {}
    chance = Random(seed)
    simulator = Simulator(recorded(1, 20), [], seed=seed, mode=ChannelLogs(INTERVAL), files=files)
    simulator.take(Quiesce())
    with suppress(Impossible):  # where the run is over
        while not simulator.isOver:
            simulator.take(RequestSnapshot())
            for _ in range(100):
                _quick_step(simulator, chance)
    demand(simulator.finish(), 20, 1)
    store = MemoryBackend()
    for path, data in files.items():
        store.put_if_absent(path, [data])
    if found := verify_run(store, "recorded").problems:
        raise CheckFailed("integrity", found[0])


def retained(seed: int) -> None:
    """Snapshots on request, of which one is kept, while one node is slow. None of them may fail."""
    chance = Random(seed)
    simulator = Simulator(
        recorded(0, 60), [], seed=seed, mode=ChannelLogs(INTERVAL), retainedSnapshots=1, tolerableFailedSnapshots=0,
        restartPolicy=RestartPolicy(maxRestarts=0), snapshotTimeout=60.0,
    )  # fmt: skip
    simulator.take(Quiesce())
    with suppress(Impossible):  # where the run is over
        while not simulator.isOver:
            simulator.take(RequestSnapshot())
            for _ in range(chance.randrange(40, 120)):
                possible = [each for each in simulator.possible() if not isinstance(each, Tick)]
                fast = [each for each in possible if not (_is_slow(each) and chance.randrange(25))]
                simulator.take(chance.choice(fast) if fast and chance.randrange(6) else Tick(0.02))
    demand(simulator.finish(), 60, 1)


def _is_slow(step: Step) -> bool:
    return isinstance(step, Transmit | Arrive) and str(step).endswith("'link[1]')")


def test_requested_snapshots_need_no_part_that_was_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was never restarted goes on from its newest snapshot: files of older ones are gone (PROTOCOL 14.5)."""
    monkeypatch.setattr(MemoryFiles.__init__, "__kwdefaults__", {"inline_bytes_max": 0})  # so that files are removed
    for seed in range(scaled(20)):
        retained(seed)


def adopted_behind_a_restore(seed: int) -> None:
    """A coordinator dies behind the snapshot of a restore that no worker has seen; then a worker dies."""
    chance = Random(seed)
    simulator = Simulator(recorded(1, 20), [], seed=seed, mode=ChannelLogs(INTERVAL), restartPolicy=MANY)
    simulator.take(Quiesce())
    history = simulator.history
    while not (history.snapshots or simulator.isOver):
        _quick_step(simulator, chance)
    with suppress(Impossible):  # where the run is over
        simulator.take(CutControl(chance.randrange(2)))
        while not (simulator.isOver or _is_restored(simulator)):
            _quick_step(simulator, chance)
        simulator.take(CrashCoordinator())
        for _ in range(chance.randrange(20, 200)):
            _quick_step(simulator, chance)
        simulator.take(Crash(chance.randrange(2)))
    demand(simulator.finish(), 20, 1)


def test_workers_of_an_incarnation_that_was_restored_are_not_adopted() -> None:
    """What they commit is behind the snapshot of the restore, so it would come again, differently (PROTOCOL 14.6)."""
    for seed in range(scaled(40)):
        adopted_behind_a_restore(seed)


class Unrestored(Link):
    """Cannot be restored."""

    def restoreState(self, state: Any) -> None:
        raise ValueError("no state will do")


class Unstored(Link):
    """Cannot be stored, from some message on."""

    def snapshotState(self, snapshotId: int, timestamp: float) -> list[int]:
        if self.n > 3:
            raise ValueError("too large today")
        return super().snapshotState(snapshotId, timestamp)


def with_link(link: Link) -> Graph:
    """A graph of one link."""
    graph = Graph("linked").add("numbers", Numbers(40)).add("link", link).add("out", ListSink())
    return graph.connect("numbers", "link", key=number_of).connect("link", "out")


def test_restarts_that_fail_at_the_restore_are_counted() -> None:
    """Each restore publishes a snapshot, which must not begin a new row of restarts."""
    policy = RestartPolicy(maxRestarts=3)
    simulator = Simulator(with_link(Unrestored()), [], mode=ChannelLogs(INTERVAL), restartPolicy=policy, maxSteps=4_000)
    simulator.take(Quiesce())
    chance = Random(1)
    while not simulator.history.snapshots:
        _step(simulator, chance)
    simulator.take(Crash(0))
    history = simulator.finish()
    assert history.outcome is Outcome.FAILED and "no state will do" in history.reason, history.reason
    assert len(history.origins) <= 5


def test_a_run_that_goes_on_after_a_restart_begins_a_new_row() -> None:
    """Nobody asks for a snapshot, so the records of all subtasks show it. Older snapshots go then, too."""
    simulator = Simulator(
        recorded(1, 90), [], seed=2, mode=ChannelLogs(INTERVAL), restartPolicy=RestartPolicy(maxRestarts=2),
        retainedSnapshots=2,
    )  # fmt: skip
    simulator.take(Quiesce())
    chance, history = Random(2), simulator.history
    for number in range(1, 6):
        while len(history.snapshots) < number and not simulator.isOver:
            _quick_step(simulator, chance)
        for _ in range(400):
            _quick_step(simulator, chance)
        assert not simulator.isOver, history.reason
        simulator.take(Crash("numbers"))
    demand(simulator.finish(), 90, 1)
    assert history.seen["a worker crashed"] == 5


def test_a_record_that_cannot_be_stored_ends_the_run_by_name() -> None:
    """Else its receivers wait for ever, and nobody says why (PROTOCOL 14.2, receivers wait)."""
    history = Simulator(
        with_link(Unstored()), 1, mode=ChannelLogs(INTERVAL), tolerableFailedSnapshots=3,
        restartPolicy=RestartPolicy(maxRestarts=2), maxSteps=20_000,
    ).run()  # fmt: skip
    assert history.outcome is Outcome.FAILED
    assert "records of link[0] in a row failed" in history.reason and "too large today" in history.reason


def test_an_ended_subtask_records_itself_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No rule needs another record of it, however long the others run."""
    ended: Counter[str] = Counter()
    write = LocalCheckpointFiles.write

    def noting(self: LocalCheckpointFiles, record: LocalCheckpoint) -> None:
        ended[str(record.subtask)] += record.record.status.ended
        write(self, record)

    monkeypatch.setattr(LocalCheckpointFiles, "write", noting)
    simulator = Simulator(recorded(1, 12), [], seed=3, mode=ChannelLogs(INTERVAL))
    simulator.take(Quiesce())
    simulator.take(HangStore(1, 5.0))
    chance = Random(3)
    while not simulator.isOver:
        _quick_step(simulator, chance)
    demand(simulator.finish(), 12, 1)
    assert set(ended.values()) == {1}, ended


def test_one_removal_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is replaced meanwhile waits, so that a slow store gets no queue of removals."""
    asked, removed, most = Counter[int](), Counter[int](), 0
    request, ask = SimulatedCoordinator._request, SimulatedCoordinator._ask

    def requesting(self: SimulatedCoordinator, effect: Any, written: Any = None) -> None:
        nonlocal most
        asked[id(self)] += isinstance(effect, events.RemoveRecords)
        most = max(most, asked[id(self)] - removed[id(self)])
        request(self, effect, written)

    def asking(self: SimulatedCoordinator, effect: Any) -> Any:
        removed[id(self)] += isinstance(effect, events.RemoveRecords)
        return ask(self, effect)

    monkeypatch.setattr(SimulatedCoordinator, "_request", requesting)
    monkeypatch.setattr(SimulatedCoordinator, "_ask", asking)
    for seed in range(scaled(10)):
        run(seed, faults=0, most=12)
    assert most == 1 and asked.total() > 5
