"""Runs a graph in one process, in virtual time: the same nodes, machines and coordinator that a run on Spark has.

One seed is one history, in every process. ::

    history = Simulator(graph, choose=7, faults=2).run()
"""

from __future__ import annotations

from collections.abc import Sequence

from snapshot.coordinator.pending_snapshot import SnapshotPolicy
from snapshot.coordinator.restart_policy import RestartPolicy
from snapshot.coordinator.run_state import RunSettings
from snapshot.graph import Graph
from snapshot.plan.compiled_graph import build
from snapshot.plan.declarations import AlignmentWish
from snapshot.testing.choosers import Ask, Asked, Chooser, Delays, Odds, Scripted, Seeded, possible_steps
from snapshot.testing.history import History
from snapshot.testing.simulation.faults import Impossible
from snapshot.testing.simulation.scheduler import EnabledStep
from snapshot.testing.simulation.simulated_cluster import SimulatedCluster
from snapshot.testing.simulation.stepping import describe_phases, go_on, named, take
from snapshot.testing.simulation.world import Mutation
from snapshot.testing.steps import Step

#: Steps after which a run is cut off: a bounded graph of the size that one simulates takes some thousands.
MAX_STEPS = 200_000

#: Worker processes, unless told: enough for one to die while another lives.
_WORKERS = 2


class Simulator:
    """One simulated run of a graph.

    Parameters
    ----------
    graph : Graph
        What `BarrierRuntime.submit` takes, with the same nodes.
    choose : int, sequence of Step, or callable
        Who decides what happens next. A seed. Or a list of steps, after which the run goes on by itself to its end,
        without faults. Or a function that is given all possible steps and returns one of them, or any other
        step, or None to let the run go on by itself. Or `Delays`.
    seed : int, optional
        With a list or a function: the nodes' chance, and whether several messages share a frame, as with this seed; its
        schedule then repeats its history. None: every message has a frame of its own.
    faults : int
        How many faults a seed may choose.
    workers : int, optional
        None: two, or as many as there are subtasks if that is less.
    alignment : "unaligned", "aligned" or float
    snapshotInterval : float, optional
        Virtual seconds; None: snapshots are taken when a step says so, and when the run is idle.
    maxSteps : int
        After so many the run is cut off, and the history has no outcome: for graphs that never end.
    skipsImpossible : bool
        Leave out what a list asks for and what is not possible when its turn comes, instead of raising.
    odds : Odds
        How often a seed takes steps that are not needed: faults, orders, time.
    validates : bool
        Have the machines assert their invariants as they go.
    files : dict, optional
        ``{path: bytes}`` of the run's store, read and written: the run goes on from the newest snapshot in it. None: an
        empty store.
    mutation : Mutation, optional
        Other classes than the real ones, to see that checkers bite.

    Other parameters are those of `BarrierRuntime`.

    Raises
    ------
    GraphError
        if something is wrong with the graph.
    """

    def __init__(
        self,
        graph: Graph,
        choose: int | Sequence[Step] | Ask | Delays = 0,
        *,
        seed: int | None = None,
        faults: int = 0,
        workers: int | None = None,
        alignment: AlignmentWish = "unaligned",
        snapshotInterval: float | None = None,
        snapshotTimeout: float = 4.0,
        minPause: float = 0.0,
        maxConcurrentSnapshots: int = 2,
        tolerableFailedSnapshots: int = 3,
        retainedSnapshots: int = 5,
        restartPolicy: RestartPolicy = RestartPolicy(maxRestarts=20),  # noqa: B008  # frozen
        maxSteps: int = MAX_STEPS,
        skipsImpossible: bool = False,
        odds: Odds = Odds(),  # noqa: B008  # frozen
        validates: bool = True,
        files: dict[str, bytes] | None = None,
        mutation: Mutation | None = None,
    ) -> None:
        compiled = build(graph, alignment)
        subtasks = len(compiled.topology.subtasks)
        settings = RunSettings(
            run=graph.name,
            topology=compiled.topology,
            worker_count=workers or min(_WORKERS, subtasks),
            policy=SnapshotPolicy(
                interval=snapshotInterval,
                timeout=snapshotTimeout,
                min_pause=minPause,
                max_concurrent=maxConcurrentSnapshots,
                tolerable_failures=tolerableFailedSnapshots,
            ),
            restart_policy=restartPolicy,
            retained=retainedSnapshots,
            allow=(),
            forked_from=None,
            gathering_timeout=3.0,
            regathering_timeout=3.0,
        )
        chance = choose if isinstance(choose, int) else seed
        self._max_steps = maxSteps
        self._chooser = _chooser(choose, faults, odds, skips=skipsImpossible)
        self._cluster = SimulatedCluster(
            compiled,
            settings,
            seed=chance or 0,
            # A seed decides on frames too: where several messages share one, a cut may fall inside it.
            seals_each=chance is None or bool(chance % 2),
            validates=validates,
            resubmits=odds.stops,
            files=files,
            mutation=mutation,
        )

    @property
    def history(self) -> History:
        """What has happened so far."""
        return self._cluster.world.history

    @property
    def now(self) -> float:
        """Virtual seconds since the start."""
        return self._cluster.world.now

    @property
    def isOver(self) -> bool:
        """The run has ended."""
        return self._cluster.is_over

    def possible(self) -> list[Step]:
        """All steps that can be taken now, besides faults, orders and what time brings."""
        return possible_steps(self._cluster)

    def take(self, step: Step) -> None:
        """Take one step; deploying, storing and telling that it needs come before it.

        Raises
        ------
        Impossible
            if it cannot be taken now; says why.
        """
        schedule = self.history.schedule
        schedule.append(step)  # before: a step that breaks a rule belongs to the schedule that shows it
        try:
            take(self._cluster, step)
        except Impossible:
            schedule.pop()
            raise

    def run(self) -> History:
        """Let the chooser decide until the run is over, or cut off.

        Raises
        ------
        Impossible
            if a step that the chooser names cannot be taken.
        CheckFailed
            if Cutline itself breaks one of its rules.
        """
        cluster, history = self._cluster, self._cluster.world.history
        for _ in range(self._max_steps):
            cluster.resubmit()
            if cluster.is_over:
                break
            choice = self._chooser.next(cluster)
            if choice is None:
                return self.finish()
            if isinstance(choice, EnabledStep):
                history.schedule.append(named(cluster, choice))
                choice.act()
            else:
                self._try(choice)
        return self._closed()

    def _try(self, step: Step) -> None:
        try:
            self.take(step)
        except Impossible:
            if not isinstance(self._chooser, Scripted) or not self._chooser.skips:
                raise

    def finish(self) -> History:
        """Let the run go on by itself, without faults, to its end: first what is told, then data, then time."""
        for _ in range(self._max_steps):
            if not go_on(self._cluster):
                break
        return self._closed()

    def _closed(self) -> History:
        cluster, history = self._cluster, self._cluster.world.history
        history.now = cluster.world.now
        if cluster.is_over:
            cluster.dismiss()
            history.outcome, history.reason = cluster.driver.outcome, cluster.driver.reason
        else:
            history.reason = f"cut off after {self._max_steps:,} steps: {describe_phases(cluster)}"
        return history


def _chooser(choose: int | Sequence[Step] | Ask | Delays, faults: int, odds: Odds, *, skips: bool) -> Chooser:
    if isinstance(choose, int):
        return Seeded(choose, faults, odds)
    if isinstance(choose, Delays):
        return choose
    if callable(choose):
        return Asked(choose)
    return Scripted(choose, skips=skips)


__all__ = ["Impossible", "Mutation", "Odds", "Simulator"]
