"""The whole protocol under faults: real machines and coordinators in an in-memory cluster, seed by seed."""

from __future__ import annotations

from random import Random
from typing import Any, cast

import pytest

from snapshot.coordinator.deployment import Deployment, News
from snapshot.coordinator.ending import Ending
from snapshot.coordinator.fence import Fence
from snapshot.coordinator.fence_events import FenceEffect
from snapshot.coordinator.history import Claim
from snapshot.coordinator.machine import Coordinator
from snapshot.coordinator.snapshot_book import PendingSnapshot, SnapshotBook
from state_backends.layout import part_path
from state_backends.store import RunStore
from tests.snapshot.cluster import Cluster, Mutation
from tests.snapshot.cluster_programs import PROGRAMS
from tests.snapshot.cluster_truth import Violation
from tests.snapshot.cluster_worker import Choose, ClusterMachine, ClusterWorker

SEEDS = 1_000
#: Seeds in which a mutant has to be caught; most are in the first twenty.
SEEDS_OF_MUTANTS = 400

#: What must have happened in some run, or all of them together prove little.
SOMETIMES = (
    "a snapshot with messages in flight",
    "a snapshot overtook another",
    "a snapshot was aborted by its deadline",
    "an alignment timed out",
    "a cycle ended",
    "a manifest was undecided",
    "a failure during restore",
    "a failure while finishing",
    "a stage was given up",
    "a run was adopted",
    "two lives of a coordinator",
    "two drivers",
    "a worker crashed",
    "an acknowledgement of another incarnation",
    "a request of a lost coordinator reached the store",
    "a coordinator ended finished",
    "a coordinator ended stopped",
    "a coordinator ended fenced",
    "a coordinator ended superseded",
)


def run(seed: int, faults: int, mutation: Mutation | None = None) -> Cluster:
    """One history; a failure says how to repeat it."""
    program = PROGRAMS[seed % len(PROGRAMS)]
    cluster = Cluster(program, Random(seed).randrange, seed=seed, faults=faults, mutation=mutation)
    try:
        cluster.run()
    except Exception as error:
        error.add_note(f"repeat with: run(seed={seed}, faults={faults})  # {program.name}, {cluster.steps} steps")
        raise
    return cluster


@pytest.mark.timeout(600)
@pytest.mark.slow
def test_whatever_fails_the_result_is_that_of_the_run_without_faults() -> None:
    """Exactly-once output, exact cuts, conservation, ids, fencing and liveness, over many histories with faults."""
    seen: dict[str, int] = {}
    steps = 0
    for seed in range(SEEDS):
        cluster = run(seed, faults=seed % 5)
        steps += cluster.steps
        for what, times in cluster.seen.items():
            seen[what] = seen.get(what, 0) + times
    print(f"{SEEDS} histories, {steps:,} steps: {seen}")
    assert [what for what in SOMETIMES if what not in seen] == []


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_one_seed_is_one_history(program: Any) -> None:
    """Nothing but `choose` decides: the same seed takes the same steps."""
    seed = PROGRAMS.index(program)
    first, second = run(seed, faults=3), run(seed, faults=3)
    assert (first.steps, first.now, first.seen) == (second.steps, second.now, second.seen)


# ---- teeth: each rule taken away


class EagerWorker(ClusterWorker):
    """Acknowledges a part when it begins to store it."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._owed: list[Any] = []

    def _upload(self, choose: Choose) -> None:
        owed, self._owed = self._owed, []
        for part in owed:
            self._store.put_part(part)
        real: Any = self._store
        self._store = cast(RunStore, _Forgetful(real, self._owed))
        super()._upload(choose)
        self._store = real


class _Forgetful:
    """A store that says that it has stored what it will store later."""

    def __init__(self, store: Any, owed: list[Any]) -> None:
        self._store = store
        self._owed = owed

    def put_part(self, part: Any) -> Any:
        if part.handle.size <= self._store.backend.inline_bytes_max:
            return part.inline()
        self._owed.append(part)
        return part.stored(part_path(part))


class HearsEverybody(Deployment):
    """Takes what is said of any incarnation for what is said of the present one."""

    def restored(self, worker: int, incarnation: int) -> News | None:
        return super().restored(worker, self._members.incarnation)

    def connected(self, worker: int, incarnation: int) -> News | None:
        return super().connected(worker, self._members.incarnation)

    def failed(self, worker: int, incarnation: int, reason: str) -> News | None:
        return super().failed(worker, self._members.incarnation, reason)


class IncarnationIgnored(Coordinator):
    """Without PROTOCOL 6.1 in the coordinator."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._deployment.__class__ = HearsEverybody


class TakesAnyFrame(ClusterWorker):
    """Without PROTOCOL 6.1 among workers: frames go to whoever has the channel, in whatever incarnation."""

    def is_connected(self, incarnation: int) -> bool:
        return self.is_alive and bool(self.links)


class UsesIdsAgain(SnapshotBook):
    """Gives the id of an aborted snapshot to the next one."""

    def close_failed(self, snapshot_id: int, now: float) -> PendingSnapshot:
        self._next_id = min(self._next_id, snapshot_id)
        return super().close_failed(snapshot_id, now)


class IdReused(Coordinator):
    """Without PROTOCOL 3.2."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._desk.book.__class__ = UsesIdsAgain


class NeverSettles(SnapshotBook):
    """Says of no snapshot that it is over."""

    @property
    def floor(self) -> int:
        return 0


class FloorNotSent(Coordinator):
    """Without PROTOCOL 3.4."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._desk.book.__class__ = NeverSettles


class DropsPrepared(ClusterMachine):
    """Discards what was prepared for snapshots that were aborted: PROTOCOL 8, read plainly."""

    def raise_floor(self, floor: int) -> None:
        for snapshot_id in list(self._prepared.values()):
            if snapshot_id < floor:
                self._prepared._values[snapshot_id] = None
        super().raise_floor(floor)


class NeverLooks(Fence):
    """Without PROTOCOL 7.2."""

    def _on_looked(self, holder: Claim | None) -> list[FenceEffect]:
        return super()._on_looked(None)


class ForgetsTheStop(Coordinator):
    """A rollback forgets that the run is to stop."""

    def _roll_back(self, reason: str) -> None:
        self._ending = Ending(self.topology.subtasks)
        super()._roll_back(reason)


MUTANTS = [
    pytest.param(Mutation(worker=EagerWorker), ("integrity",), id="acknowledged before upload"),
    pytest.param(
        Mutation(coordinator=IncarnationIgnored), ("fencing", "rollback"), id="incarnation of a message ignored"
    ),
    pytest.param(Mutation(worker=TakesAnyFrame), ("sequence",), id="incarnation of a frame ignored"),
    pytest.param(Mutation(coordinator=IdReused), ("ids",), id="snapshot id reused"),
    pytest.param(Mutation(machine=DropsPrepared), ("output",), id="prepared output dropped on abort"),
    pytest.param(Mutation(coordinator=FloorNotSent), ("no leak",), id="late marker after an abort obeyed"),
    pytest.param(Mutation(fence=NeverLooks), ("output", "fencing"), id="claim not looked at"),
    pytest.param(Mutation(coordinator=ForgetsTheStop), ("stop",), id="stop forgotten over a rollback"),
]


@pytest.mark.timeout(120)
@pytest.mark.parametrize(("mutation", "caught_by"), MUTANTS)
def test_every_rule_has_teeth(mutation: Mutation, caught_by: tuple[str, ...]) -> None:
    """The cluster without this rule is caught, by the checker that is meant to catch it."""
    violation = next((found for seed in range(SEEDS_OF_MUTANTS) if (found := _violation(seed, mutation))), None)
    assert violation is not None, f"not caught in {SEEDS_OF_MUTANTS} histories"
    print(f"caught by {violation}")
    assert violation.checker in caught_by, str(violation)


def _violation(seed: int, mutation: Mutation) -> Violation | None:
    try:
        run(seed, faults=4, mutation=mutation)
    except Violation as violation:
        return violation
    return None
