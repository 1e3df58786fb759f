"""Run a graph in one process, in virtual time, with the nodes, machines and coordinator of a run on Spark.

Equal seeds give equal histories, in every process. ::

    history = Simulator(graph, choose=7, faults=2).run()
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from cutline.snapshot.coordinator.pending_snapshot import SnapshotPolicy
from cutline.snapshot.coordinator.recovery import check_allowances
from cutline.snapshot.coordinator.restart_policy import RestartPolicy
from cutline.snapshot.coordinator.run_state import RunSettings
from cutline.snapshot.graph import Graph
from cutline.snapshot.plan.compiled_graph import build
from cutline.snapshot.plan.declarations import AlignmentWish
from cutline.snapshot.plan.modes import ModeWish, mode_of
from cutline.snapshot.plan.partitions import with_partitions
from cutline.snapshot.stored.snapshot import Snapshot
from cutline.snapshot.testing.choosers import Ask, Asked, Chooser, Delays, Odds, Scripted, Seeded, possible_steps
from cutline.snapshot.testing.history import History
from cutline.snapshot.testing.simulation.faults import Impossible
from cutline.snapshot.testing.simulation.scheduler import EnabledStep
from cutline.snapshot.testing.simulation.simulated_cluster import SimulatedCluster
from cutline.snapshot.testing.simulation.stepping import describe_phases, go_on, named, take
from cutline.snapshot.testing.simulation.world import Mutation, World
from cutline.snapshot.testing.steps import Step

#: steps after which a run is cut off: a bounded graph of the size that is simulated takes some thousands
MAX_STEPS = 200_000

#: default number of worker processes: enough that a worker can die while another worker runs
_WORKERS = 2


class Simulator:
    """A simulated run of a graph.

    Parameters
    ----------
    graph : Graph
        The graph as `BarrierRuntime.submit` takes it, with the same nodes.
    choose : int, sequence of Step, or callable
        What chooses the next step. An int is a seed. A list gives the first steps, after which the run goes on to its
        end, without faults. A function receives all possible steps. The function returns any step, or None to let
        the run go on. `Delays` chooses when each item arrives.
    seed : int, optional
        Seed of the nodes' chance and of how messages share frames, for a list or a function. The schedule of that seed
        then repeats its history. None: every message has a frame of its own.
    faults : int
        Maximum number of faults that a seed may choose.
    workers : int, optional
        Number of worker processes. None: two, or one for each subtask if there are fewer.
    alignment : "unaligned", "aligned" or float
    mode : "markers", "inputLogging", or the settings of a mode
    snapshotInterval : float, optional
        Virtual seconds. None: snapshots are taken when a step requests one, and when the run is idle.
    maxSteps : int
        Steps after which the run is cut off, for graphs that never end. The history then has no outcome.
    skipsImpossible : bool
        Leave out each step of a list that is not possible in its turn, instead of raising.
    odds : Odds
        How often a seed takes steps that are not needed: faults, snapshot requests, time.
    validates : bool
        Let the machines assert their invariants, every few events.
    files : dict, optional
        ``{path: bytes}`` of the run's store, read and written. The run goes on from the newest snapshot in the store.
        None: an empty store.
    restoreFrom : Snapshot, optional
        Snapshot of a run of another name in `files`. The run is a fork: it begins with that snapshot while it has none
        of its own.
    allow : collection of str
        Losses that are accepted where that snapshot is of another graph, as `BarrierRuntime.submit` accepts them. A
        restore that is refused ends the run as failed, and ``History.reason`` gives the reason.
    mutation : Mutation, optional
        Classes that replace the real ones, to test that checkers find the difference.

    Other parameters are those of `BarrierRuntime`.

    Raises
    ------
    GraphError
        if something is wrong with the graph.
    NodeError
        if the partitions of a source cannot be listed.
    ValueError
        if `allow` or `mode` has an unknown name.
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
        mode: ModeWish = "markers",
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
        restoreFrom: Snapshot | None = None,
        allow: Collection[str] = (),
        mutation: Mutation | None = None,
    ) -> None:
        compiled = with_partitions(build(graph, alignment, mode_of(mode)), graph)
        subtasks = len(compiled.topology.subtasks)
        settings = RunSettings(
            run=graph.name,
            topology=compiled.topology,
            partitions=compiled.partitions,
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
            allow=check_allowances(allow),
            forked_from=None if restoreFrom is None else (restoreFrom.run, restoreFrom.id),
            gathering_timeout=3.0,
            regathering_timeout=3.0,
        )
        chance = choose if isinstance(choose, int) else seed
        self._max_steps = maxSteps
        self._chooser = _chooser(choose, faults, odds, skips=skipsImpossible)
        world = World(
            compiled,
            settings,
            seed=chance or 0,
            # A seed decides on frames too: where several messages share one, a cut may fall inside it.
            seals_each=chance is None or bool(chance % 2),
            validates=validates,
            files={} if files is None else files,
            mutation=mutation or Mutation(),
        )
        self._cluster = SimulatedCluster(world, settings, resubmits=odds.stops)

    @property
    def history(self) -> History:
        """The history so far."""
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
        """Return all steps that can be taken now, except faults, snapshot requests and steps that time brings."""
        return possible_steps(self._cluster)

    def take(self, step: Step) -> None:
        """Take one step, after the deploying, storing and sending that the step needs.

        Raises
        ------
        Impossible
            if the step cannot be taken now; the text gives the reason.
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
        """Let the run go on without faults to its end: control messages first, then data, then time."""
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
