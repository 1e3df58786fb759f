"""Forks in modes inputLogging and deltas: a run of another name goes on from a snapshot, whatever the origin does.

The origin runs meanwhile, keeps one snapshot, and so removes the snapshot of the fork as soon as nobody needs it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from cutline import Deltas, InputLogging, Node
from cutline.snapshot.coordinator.restart_policy import RestartPolicy
from cutline.snapshot.coordinator.retention import SWEEP_INTERVAL_SECONDS
from cutline.snapshot.coordinator.run_state import Outcome
from cutline.snapshot.plan.modes import Mode
from cutline.snapshot.stored.snapshot import Snapshot
from cutline.snapshot.testing.checkers import judge
from cutline.snapshot.testing.history import History
from cutline.snapshot.testing.payload import unpack
from cutline.snapshot.testing.simulator import Impossible
from cutline.snapshot.testing.steps import (
    Crash,
    CrashCoordinator,
    Fail,
    FailStage,
    FailStore,
    Fault,
    KillDriver,
    OrphanCoordinator,
    Tick,
)
from cutline.snapshot.trace_events import Kind
from cutline.testing import Simulator
from tests.run_size import FACTOR, scaled
from tests.snapshot.testing.replayed import Divided, Each, Keyed, Lists, chain_problems, chained

SIZES = {"a": 24, "b": 18, "c": 14}
KINDS: dict[str, tuple[type[Node], Mode]] = {
    "each": (Each, InputLogging()),
    "lists": (Lists, InputLogging()),
    "keyed": (Keyed, Deltas(every=3)),
    "divided": (Divided, Deltas(every=4)),
}
FAULTS: tuple[Fault, ...] = (
    *(Crash(0), Crash("out"), CrashCoordinator(), OrphanCoordinator(), KillDriver(), FailStage(), Fail("node")),
    *(FailStore(0), FailStore(1)),
)


class Forked:
    """A run that was cut off, its fork from its newest snapshot, and what both have made visible.

    Parameters
    ----------
    kind : str
    seed : int
    snapshots : int
        Number of published snapshots of the origin, of which the fork begins with the last.
    """

    def __init__(self, kind: str, seed: int, snapshots: int) -> None:
        self.files: dict[str, bytes] = {}
        self._kind = kind
        self._seed = seed
        self.origin = self._simulator("origin", endless=True, retainedSnapshots=1)
        chance = Random(seed)
        while len(self.origin.history.snapshots) < snapshots:
            step(self.origin, chance)
        self.start: Snapshot = self.origin.history.snapshots[-1]
        #: rows of the origin that the fork's snapshot has made visible
        self.before = dict(self.origin.history.committed["out"])

    def fork(self, **settings: Any) -> Simulator:
        """Make a simulator of the fork, or of the fork that is submitted again."""
        return self._simulator("fork", restoreFrom=self.start, **settings)

    def _simulator(self, name: str, *, endless: bool = False, **settings: Any) -> Simulator:
        node, mode = KINDS[self._kind]
        graph = chained(node(), SIZES, endless=endless)
        graph.name = name
        policy = RestartPolicy(maxRestarts=20)
        settings = {"snapshotInterval": 0.1, "files": self.files, "restartPolicy": policy, "mode": mode, **settings}
        return Simulator(graph, [], seed=self._seed, **settings)

    def has_start(self) -> bool:
        """Return whether the manifest of the fork's snapshot is there."""
        return _manifest(self.start) in self.files

    def check(self, *histories: History) -> None:
        """Check that the fork has made one history of that of the origin, and that its snapshots are exact."""
        last = histories[-1]
        assert last.outcome is Outcome.FINISHED, last.reason
        visible = {**self.before}
        for history in histories:
            visible.update(history.committed["out"])
        rows = [unpack(row, last.codec) for packed in visible.values() for row in packed]
        assert chain_problems(rows) == []
        assert sum(row[6] for row in rows) == 2 * sum(SIZES.values())
        assert [verdict.text for verdict in judge(last) if not verdict.holds] == []


def _manifest(snapshot: Snapshot) -> str:
    return f"origin/snapshots/{snapshot.id:016}.manifest"


def step(simulator: Simulator, chance: Random) -> None:
    """Take a step by chance, or let a little time pass."""
    if possible := simulator.possible():
        is_tick = not chance.randrange(12)
        simulator.take(Tick(0.02) if is_tick else chance.choice(possible[:-1] or possible))


@pytest.fixture(scope="module")
def seen() -> Iterator[Counter[str]]:
    """What the forks had."""
    found: Counter[str] = Counter()
    yield found
    if FACTOR >= 1:
        due = ["steps were repeated", "a rollback before the first own snapshot"]
        due += ["a fork of steps", "a fork behind a state"]
        missing = [each for each in due if not found[each]]
        assert not missing, (missing, found)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fork_goes_on_whatever_fails(kind: str, seen: Counter[str]) -> None:
    """One chain for each subtask, from the beginning of the origin to the end of the fork."""
    for seed in range(scaled(5)):
        chance = Random(f"{kind} {seed}")
        forked = Forked(kind, seed, 1 + seed % 6)
        fork = forked.fork()
        faults = 3
        while not fork.isOver and fork.possible():
            step(fork, chance)
            step(forked.origin, chance)
            if faults and not chance.randrange(60):
                faults -= 1
                with suppress(Impossible):
                    fork.take(chance.choice(FAULTS))
            assert fork.history.snapshots or forked.has_start(), "the origin has removed what the fork needs"
        forked.check(fork.finish())
        _note(forked, fork.history, seen)


def _note(forked: Forked, history: History, seen: Counter[str]) -> None:
    seen.update(history.seen)
    record = forked.start.manifest.records[0]
    seen["a fork of steps"] += bool(record.steps)
    seen["a fork behind a state"] += record.base is not None
    kinds = [event.kind for event in history.events if event.kind in (Kind.DEPLOYED, Kind.PUBLISHED)]
    seen["a rollback before the first own snapshot"] += kinds[:2] == [Kind.DEPLOYED, Kind.DEPLOYED]
    for snapshot in history.snapshots:  # PROTOCOL 10.4, which the certificate checks too
        handles = [handle for each in snapshot.manifest.records for handle in each.all_handles]
        assert {handle.run for handle in handles} == {"fork"}


def _until_published(fork: Simulator) -> None:
    """Take steps by chance until a snapshot of the fork is published."""
    chance = Random(0)
    while not fork.history.snapshots:
        step(fork, chance)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("fault", [Crash(0), CrashCoordinator(), KillDriver()], ids=repr)
def test_a_fork_survives_a_fault_ahead_of_its_first_snapshot(kind: str, fault: Fault) -> None:
    """Also where another coordinator takes it over, which has not read the snapshot of the origin itself."""
    forked = Forked(kind, 1, 5)
    fork = forked.fork()
    chance = Random(7)
    while not any(event.kind is Kind.POLL for event in fork.history.events):
        step(fork, chance)
    assert not fork.history.snapshots
    fork.take(fault)
    _until_published(fork)
    fork.take(Crash("out"))
    forked.check(fork.finish())


@pytest.mark.parametrize("kind", ["lists", "divided"])
def test_the_origin_removes_the_snapshot_when_the_fork_stands_alone(kind: str) -> None:
    """Not before the first snapshot of the fork, and at the next sweep behind it."""
    forked = Forked(kind, 6, 2)
    fork, chance = forked.fork(), Random(3)
    for _ in range(600):
        step(forked.origin, chance)
    assert len(forked.origin.history.snapshots) > 3 and forked.has_start()
    _until_published(fork)
    forked.origin.take(Tick(SWEEP_INTERVAL_SECONDS))
    while forked.has_start():
        step(forked.origin, chance)
    forked.check(fork.finish())


@pytest.mark.parametrize("kind", KINDS)
def test_a_fork_is_submitted_again(kind: str) -> None:
    """It goes on from its own snapshots, and the origin may have lost all of its own."""
    forked = Forked(kind, 2, 5)
    begun = forked.fork()
    _until_published(begun)
    for path in [path for path in forked.files if path.startswith("origin/")]:
        del forked.files[path]
    again = forked.fork()
    forked.check(begun.history, again.finish())


def test_the_ids_of_the_origin_are_no_measure() -> None:
    """Its newest state may have a higher id than the first snapshots of the fork, whose claims begin anew."""
    forked = Forked("keyed", 3, 8)
    base = forked.start.manifest.records[0].base
    assert base is not None
    fork = forked.fork()
    _until_published(fork)
    first = fork.history.snapshots[0].manifest
    assert first.snapshot_id < base.snapshot_id
    assert all(record.base is not None and record.base.snapshot_id == first.snapshot_id for record in first.records)
    forked.check(fork.finish())


def test_a_fork_of_a_removed_snapshot_is_refused() -> None:
    """By name, and nothing is begun afresh."""
    forked = Forked("keyed", 4, 1)
    del forked.files[_manifest(forked.start)]
    with pytest.raises(FileNotFoundError, match=rf"snapshot {forked.start.id} of run 'origin' is being removed"):
        forked.fork()
