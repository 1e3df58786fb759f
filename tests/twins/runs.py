"""Runs whose digests are stored, by label: each mode, rescales, forks and faults, and graphs that are explored.

The campaigns of `tests.snapshot.testing` make the graphs and the schedules. Each run is a function of its seed alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from random import Random
from typing import Any, Final

import pytest

from cutline import ChannelLogs, Deltas, Graph, InputLogging, MonoidClocks, Node, PersistentState
from cutline.snapshot.coordinator.restart_policy import RestartPolicy
from cutline.snapshot.keyed.heap import HeapTier
from cutline.snapshot.keyed.tier import Tier
from cutline.snapshot.plan.declarations import AlignmentWish
from cutline.snapshot.plan.modes import MARKERS, ModeWish
from cutline.snapshot.subtask.environment import SubtaskEnvironment
from cutline.snapshot.testing.history import History
from cutline.snapshot.testing.simulation import host
from cutline.snapshot.testing.simulation.totals import SimulatedStore
from cutline.snapshot.testing.simulator import Impossible
from cutline.snapshot.testing.steps import Initiate, RequestSnapshot
from cutline.testing import Odds, Simulator, explore
from tests.snapshot.testing import campaign, recorded
from tests.snapshot.testing import test_changed_graphs as changed_graphs
from tests.snapshot.testing import test_changed_programs as changed_programs
from tests.snapshot.testing import test_explore as explored
from tests.snapshot.testing import test_explored_rows as explored_rows
from tests.snapshot.testing import test_forks_of_steps as forks
from tests.snapshot.testing import test_independent_snapshots as independent
from tests.snapshot.testing import test_keyed_runs as keyed_runs
from tests.snapshot.testing import test_replayed_runs as replayed_runs
from tests.snapshot.testing import test_rescaled_aggregates as rescaled_aggregates
from tests.snapshot.testing import test_rescaled_runs as rescaled_runs
from tests.snapshot.testing import test_stepped_campaign as stepped
from tests.snapshot.testing import test_totals_campaign as totals
from tests.snapshot.testing import test_totals_crash_points as totals_crash_points
from tests.snapshot.testing.crash_points import CrashPoints, faults
from tests.snapshot.testing.replayed import Keyed, KeyedLists, chained
from tests.snapshot.testing.rescale_chains import Chain
from tests.snapshot.testing.rescaled import COMMITTED, JOBS, Out, Records, Relay, first_field
from tests.snapshot.testing.small_worlds import MODES as SMALL_MODES
from tests.snapshot.testing.small_worlds import WORLDS
from tests.snapshot.testing.totalled import TotalledWorld
from tests.twins.digest import Measured, measure

#: Seeds of a label, and those of the fast tests. A slow label has fewer of these, so that all take some 8 s.
SEEDS: Final = 20
FIRST_SEEDS: Final = 5

#: What each label of simulated runs must have somewhere, and what a campaign with faults must have.
_SHOWN: Final = ("snapshots", "restores", "aborted")
_FAULTS: Final = (*_SHOWN, "a worker crashed", "CrashCoordinator", "FailStore")
_KEYED: Final = ("a record with rows", "a record with own")
_RESHAPED: Final = (*_SHOWN, "a snapshot with messages in flight", "a record with waves")

#: Messages by partition: enough for some snapshots and restores in 0.1 s.
_SIZES: Final = {"a": 7, "b": 5, "c": 4}
#: Messages by partition where each takes longer, because rows are in databases.
_FEW: Final = {"a": 4, "b": 3, "c": 2}

_MANY: Final = RestartPolicy(maxRestarts=50)
_DELTAS: Final = Deltas(every=3)
#: {whether rows are copied: mode with databases on local disks}
_VERSIONS: Final = {is_copied: PersistentState("/disk", every=3, copy=is_copied) for is_copied in (False, True)}
_PARTITIONINGS: Final = ("hash", "rebalance", "broadcast", "forward")

#: Counts that a run returns beside those of its histories.
Counts = Mapping[str, int]
NONE: Final[Counts] = {}


@dataclass(frozen=True, slots=True)
class TwinRun:
    """The run of a label, and what must have occurred over all seeds."""

    run: Callable[[int], Counts]
    #: names of counts whose sum over all seeds must not be 0
    shows: tuple[str, ...] = _SHOWN
    seeds: int = SEEDS
    first_seeds: int = FIRST_SEEDS


# ---------------------------------------------------------------- markers


def _markers(alignment: AlignmentWish, seed: int) -> Counts:
    """Run a program of the campaign with another alignment."""
    case = campaign.case(seed)
    campaign.run(replace(case, program=replace(case.program, alignment=alignment)))
    return NONE


def _initiators(seed: int) -> Counts:
    """Let several subtasks begin snapshots by themselves, whose ids cross."""
    chance = Random(f"initiators {seed}")
    begin = [Initiate(chance.randrange(1, 7), chance.choice(independent.NODES)) for _ in range(6)]
    script = [*begin, *chance.choices(independent.MOVES, k=30)]
    chance.shuffle(script)
    most = chance.randrange(1, 5)
    Simulator(independent.graph(), script, seed=seed, skipsImpossible=True, maxConcurrentSnapshots=most).run()
    return NONE


# ---------------------------------------------------------------- other modes


def _hit(simulator: Simulator, chance: Random, beside: Simulator | None = None) -> None:
    """Run a graph to its end, with three faults from when something is stored. Take as many steps of the run beside it.

    A fork has a snapshot from its beginning.
    """
    left, history = 3, simulator.history
    while not simulator.isOver and simulator.possible():
        forks.step(simulator, chance)
        if beside is not None:
            forks.step(beside, chance)
        if left and _is_stored(history) and not chance.randrange(80):
            left -= 1
            with suppress(Impossible):
                simulator.take(chance.choice(forks.FAULTS))
    simulator.finish()


def _is_stored(history: History) -> bool:
    """Return whether a restore now begins with anything that is stored."""
    recorded_alone = {subtask for subtask, _ in history.records}
    is_restored = history.seen["steps were repeated"] or any(history.origins.values())
    return bool(history.snapshots or is_restored or len(recorded_alone) == len(history.topology.subtasks))


def _replayed(kinds: tuple[str, ...], seed: int) -> Counts:
    """Run a node that shows each difference of a replay."""
    node, as_batches, mode = replayed_runs.KINDS[kinds[seed % len(kinds)]]
    graph = chained(node(), _SIZES, as_batches=as_batches)
    return _late(graph, mode, seed)


def _late(graph: Graph, mode: ModeWish, seed: int) -> Counts:
    """Run a graph with faults behind its first snapshot."""
    simulator = Simulator(
        graph, [], seed=seed, mode=mode, snapshotInterval=0.03, retainedSnapshots=2, restartPolicy=_MANY
    )
    _hit(simulator, Random(f"late faults {seed}"))
    return NONE


def _stepped(seed: int) -> Counts:
    """Run a graph by chance, in mode inputLogging or deltas."""
    stepped.run(seed)
    return NONE


def _versions(nodes: Sequence[type[Node]], is_copied: bool, seed: int) -> Counts:
    """Keep rows in local databases."""
    return _late(chained(nodes[seed % len(nodes)](), _FEW), _VERSIONS[is_copied], seed)


def _totals(mode: str, seed: int) -> Counts:
    """Keep totals in stores of aggregates."""
    seen: Counter[str] = Counter()
    totals.run(seed, totals.MODES[mode], seen)
    return seen


def _recorded(seed: int) -> Counts:
    """Let subtasks record themselves alone, with faults behind the first record of each."""
    with _same_chance():
        return _late(recorded.recorded(seed % 4, 10, is_diamond=seed % 4 == 3), ChannelLogs(0.03), seed)


def _stopped_records(seed: int) -> Counts:
    """Let subtasks record themselves alone, with faults, requests and stops at any time."""
    odds = Odds(fault=100, tick=8, stops=True, request=30, requests=3)
    with _same_chance():
        recorded.run(seed, most=10, odds=odds)
    return NONE


@contextmanager
def _same_chance() -> Iterator[None]:
    """Let the nodes of `recorded` draw from the first number on, whichever runs were before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recorded, "_CHANCE", count(1))
        yield


def _keyed_records(seed: int) -> Counts:
    """Let subtasks with keyed state record themselves alone."""
    return _late(chained(Keyed(), _SIZES), ChannelLogs(0.03), seed)


@contextmanager
def _tiers(tier_of: Callable[[object], Tier]) -> Iterator[None]:
    """Make the tiers of all simulated subtasks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(host, "SubtaskEnvironment", partial(SubtaskEnvironment, tier_of=tier_of))
        yield


def _keyed(tier: type[Tier], seed: int) -> Counts:
    """Keep rows in one tier, beside own state in deltas, or in lists that grow long."""
    with _tiers(lambda _: tier()):
        before = keyed_runs.SealingTier.sealed
        graph = keyed_runs.numbers() if seed % 2 else keyed_runs.words(keyed_runs.Totals())
        Simulator(graph, seed, faults=4, odds=Odds(request=30, requests=10)).run()
        return {"sealed rows": keyed_runs.SealingTier.sealed - before}


# ---------------------------------------------------------------- restores of other graphs


def _rescales(seed: int) -> Counts:
    """Restore a job with one parallelism after another."""
    return Chain(seed).run()


def _mixed_tiers(seed: int) -> Counts:
    """Restore a job with keyed state, some subtasks of which keep rows in a cold tier."""
    chance = Random(f"tiers {seed}")
    with _tiers(lambda _: rescaled_runs.SealingTier() if chance.randrange(2) else HeapTier()):
        return Chain(seed * len(JOBS)).run()


def _in_turn(graphs: Iterable[Graph], chance: Random, **settings: Any) -> None:
    """Run one graph after another on one store. All runs but the last are cut off."""
    files: dict[str, bytes] = {}
    *earlier, last = graphs
    for graph in earlier:
        steps, faults_max = chance.randrange(150, 400), chance.randrange(2)
        seed, odds = chance.randrange(10**6), Odds(request=15, requests=10**6)
        Simulator(graph, seed, faults=faults_max, files=files, maxSteps=steps, odds=odds, workers=2, **settings).run()
    Simulator(last, chance.randrange(10**6), files=files, workers=2, **settings).run()


def _aggregates(seed: int) -> Counts:
    """Restore aggregates with one parallelism after another."""
    graph = partial(rescaled_aggregates.graph, is_in_two_steps=bool(seed % 2))
    _in_turn(map(graph, (2, 4, 3, 1)), Random(f"aggregates {seed}"))
    return NONE


def _repartitioned(seed: int) -> Counts:
    """Divide messages in flight otherwise."""
    chance = Random(f"partitionings {seed}")
    COMMITTED.clear()
    graphs = [_of_edges(chance.choice(_PARTITIONINGS), chance.choice(_PARTITIONINGS)) for _ in range(4)]
    _in_turn(graphs, chance, allow={"changedGraph"})
    return NONE


def _of_edges(first: str, second: str) -> Graph:
    """Return a graph of two edges that are divided so."""
    graph = Graph("edges").add("records", Records(), parallelism=2).add("relay", Relay(), parallelism=2)
    graph.add("out", Out("edges"), parallelism=2)
    for source, target, partitioning in (("records", "relay", first), ("relay", "out", second)):
        graph.connect(
            source, target, **({"key": first_field} if partitioning == "hash" else {"partitioning": partitioning})
        )
    return graph


def _changed_graph(seed: int) -> Counts:
    """Add and remove nodes and edges."""
    changed_graphs.random_change(seed)
    return NONE


def _renamed(seed: int) -> Counts:
    """Give nodes other names, and another parallelism."""
    seen: Counter[str] = Counter()
    changed_programs.go_through(changed_programs.CHAIN, seed, seen)
    return seen


def _migrated(seed: int) -> Counts:
    """Give states other versions."""
    versions = (changed_programs.First, changed_programs.Second, changed_programs.Third)
    graphs = [changed_programs.versioned(make, parallelism=1 + seed % 2) for make in versions]
    _in_turn(graphs, Random(f"versions {seed}"))
    return NONE


# ---------------------------------------------------------------- stopped runs, and forks


def _goes_on(graph: Callable[[str, bool], Graph], mode: ModeWish, seed: int, *, is_fork: bool) -> Counts:
    """Stop a run with a snapshot, and go on from it as a fork, or as the same run with another parallelism.

    `graph` returns the graph of a name. With True, the graph is that of the second run.
    """
    settings: dict[str, Any] = {"mode": mode, "files": {}, "snapshotInterval": 0.05, "restartPolicy": _MANY}
    origin = Simulator(graph("origin", False), [], seed=seed, **settings)
    chance = Random(f"origin {seed}")
    for _ in range(chance.randrange(80, 200)):
        forks.step(origin, chance)
    with suppress(Impossible):  # where the run is over
        origin.take(RequestSnapshot(stop=True))
    origin.finish()
    settings |= {"restoreFrom": origin.history.snapshots[-1]} if is_fork else {"allow": {"changedGraph"}}
    again = Simulator(graph("fork" if is_fork else "origin", not is_fork), [], seed=seed + 1, **settings)
    for name, store in origin.history.stores.items():
        other = again.history.stores[name]  # which outlives a run, as its files do
        assert isinstance(store, SimulatedStore) and isinstance(other, SimulatedStore)
        other.cells = store.cells
    _hit(again, chance)
    return NONE


def _chained(seed: int, name: str, is_rescaled: bool) -> Graph:
    """Return a diamond with keyed state. The run that is to be stopped does not end by itself."""
    graph = chained(Keyed(), _SIZES, endless=name == "origin" and not is_rescaled)
    if is_rescaled:
        graph = graph.withParallelism({"slices": 3, "node": 1 + seed % 4, "left": 1})
    graph.name = name
    return graph


def _totalled(seed: int, name: str, is_rescaled: bool) -> Graph:
    """Return a graph with totals in stores."""
    shape = totals.shape_of(Random(f"totals {seed}"))
    if is_rescaled:
        shape = replace(shape, aggregates={node: each % 2 + 1 for node, each in shape.aggregates.items()})
    return shape.graph(name)


def _goes_on_chained(mode: ModeWish, is_fork: bool, seed: int) -> Counts:
    return _goes_on(partial(_chained, seed), mode, seed, is_fork=is_fork)


def _goes_on_totalled(seed: int) -> Counts:
    return _goes_on(partial(_totalled, seed), MonoidClocks(), seed, is_fork=False)


def _forked_records(seed: int) -> Counts:
    """Go on from a snapshot that was composed of records."""
    with _same_chance():
        return _goes_on(
            lambda name, _: recorded.recorded(1, 20, name=name), ChannelLogs(recorded.INTERVAL), seed, is_fork=True
        )


def _fork_beside_origin(seed: int) -> Counts:
    """Let a fork run beside its origin, which removes the snapshot of the fork as soon as nobody needs it."""
    modes: tuple[ModeWish, ...] = (MARKERS, InputLogging(), _DELTAS, *_VERSIONS.values())
    settings: dict[str, Any] = {"mode": modes[seed % len(modes)], "files": {}, "snapshotInterval": 0.05}
    origin = Simulator(_chained(seed, "origin", False), [], seed=seed, retainedSnapshots=1, **settings)
    chance = Random(f"fork {seed}")
    while len(origin.history.snapshots) < 1 + seed % 4:
        forks.step(origin, chance)
    start = origin.history.snapshots[-1]
    fork = Simulator(
        _chained(seed, "fork", False), [], seed=seed + 1, restoreFrom=start, restartPolicy=_MANY, **settings
    )
    _hit(fork, chance, origin)
    return NONE


# ---------------------------------------------------------------- a fault at one step


def _crash_point(seed: int) -> Counts:
    """Let one fault hit one step of a small graph, in one of all modes."""
    every = faults("out")
    world, fault = list(WORLDS)[seed % len(WORLDS)], list(every)[seed % len(every)]
    modes: tuple[ModeWish, ...] = (*SMALL_MODES.values(), MARKERS)
    mode = modes[seed % len(modes)]
    return _checked(CrashPoints(f"{world}, {mode}", WORLDS[world], mode, every), fault, seed)


def _crash_point_of_totals(seed: int) -> Counts:
    """Let one fault hit one step of a small graph with totals in stores."""
    every, how = totals_crash_points.FAULTS, list(totals_crash_points.HOW)[seed % len(totals_crash_points.HOW)]
    shape = list(totals_crash_points.WORLDS.values())[seed % len(totals_crash_points.WORLDS)]
    world = TotalledWorld(shape, Counter(), "aligned" if how == "aligned" else "unaligned")
    points = CrashPoints(how, world, totals_crash_points.HOW[how], every)
    return _checked(points, list(every)[seed % len(every)], seed)


def _checked(points: CrashPoints, fault: str, seed: int) -> Counts:
    """Let the fault hit behind the first snapshot, and compare the output with that of a run without it."""
    chance, seen = Random(f"{fault} {seed}"), Counter[str]()
    points.check(chance.randrange(points.first_published, points.places), [fault], chance, seen)
    return seen


# ---------------------------------------------------------------- the explorer

_EXPLORED: Final[tuple[tuple[Graph, dict[str, Any]], ...]] = (
    (explored.graph(explored.RING), {}),
    (explored.graph(explored.CHORD, hops=2), {}),
    (explored.graph(explored.LINE), {"crashes": 1}),
    (explored.graph(explored.LOOP, hops=2), {}),
    (explored_rows.counted(), {"crashes": 1}),
    *((case.graph, case.options) for case in explored.CASES if case.states <= 20_000),
)


def _explored(seed: int) -> Counts:
    """Visit all states of a small graph."""
    graph, options = _EXPLORED[seed]
    found = explore(graph, **options)
    assert found.violation is None, str(found)
    return {"states": found.states, "transitions": found.steps, "situations": len(found.seen)}


#: What campaigns of one mode must have somewhere.
_STEPS: Final = (*_FAULTS, "a record with steps")
_REPLAYS: Final = (*_STEPS, "steps were repeated")
_BASES: Final = (*_STEPS, "a record with a base")
_VERSION: Final = (*_BASES, "a record with a version")
_COPIES: Final = (*_VERSION, "a record with rows")
_RECORDS: Final = (*_FAULTS, "a record waited", "a composed cut", "a log cut inside an entry")
_TOTALS: Final = (*_FAULTS, "LoseTotals", "a store of totals was away", "some cells of a difference are written")
_CHAINS: Final = (*_FAULTS, "rescaled", "reshaped: hash", "waves stored", "a record with rows")

RUNS: Final[dict[str, TwinRun]] = {
    "markers, unaligned": TwinRun(partial(_markers, "unaligned"), (*_FAULTS, "a sender's part"), first_seeds=4),
    "markers, aligned": TwinRun(partial(_markers, "aligned"), _FAULTS, first_seeds=4),
    "markers, aligned for a time": TwinRun(
        partial(_markers, 0.05), (*_FAULTS, "an alignment timed out"), first_seeds=4
    ),
    "markers, several initiators": TwinRun(
        _initiators, ("snapshots", "aborted", "snapshots whose ids cross"), first_seeds=4
    ),
    "markers, keyed state on the heap": TwinRun(partial(_keyed, HeapTier), (*_FAULTS, *_KEYED), first_seeds=3),
    "markers, keyed state in the cold tier": TwinRun(
        partial(_keyed, keyed_runs.SealingTier), (*_FAULTS, *_KEYED, "sealed rows"), first_seeds=2
    ),
    "markers, totals": TwinRun(partial(_totals, "markers"), _TOTALS, first_seeds=3),
    "markers, fork": TwinRun(partial(_goes_on_chained, MARKERS, True), _FAULTS, first_seeds=1),
    "markers, another parallelism": TwinRun(partial(_goes_on_chained, MARKERS, False), _FAULTS, first_seeds=1),
    "markers, several parallelisms": TwinRun(_rescales, _CHAINS, first_seeds=1),
    "markers, several parallelisms, both tiers": TwinRun(_mixed_tiers, _CHAINS, first_seeds=1),
    "markers, several parallelisms, aggregates": TwinRun(_aggregates, _RESHAPED, first_seeds=1),
    "markers, other partitionings": TwinRun(_repartitioned, _RESHAPED, first_seeds=2),
    "markers, other graphs": TwinRun(_changed_graph, first_seeds=2),
    "markers, other names": TwinRun(_renamed, (*_RESHAPED, "whole"), first_seeds=1),
    "markers, other versions": TwinRun(_migrated, (*_SHOWN, "a record with rows"), first_seeds=2),
    "inputLogging": TwinRun(
        partial(_replayed, ("each", "lists", "batches", "hashed", "hashed own")), _REPLAYS, first_seeds=2
    ),
    "inputLogging, fork": TwinRun(partial(_goes_on_chained, InputLogging(), True), _REPLAYS, first_seeds=1),
    "deltas": TwinRun(
        partial(_replayed, ("keyed", "divided")), (*_REPLAYS, *_BASES, *_KEYED, "a rollback during a replay"),
        first_seeds=2,
    ),
    "deltas, fork": TwinRun(partial(_goes_on_chained, _DELTAS, True), _BASES, first_seeds=1),
    "deltas, another parallelism": TwinRun(partial(_goes_on_chained, _DELTAS, False), _BASES, first_seeds=1),
    "inputLogging and deltas, any graph": TwinRun(_stepped, (*_REPLAYS, *_BASES), first_seeds=2),
    "persistentState": TwinRun(
        partial(_versions, (Keyed, KeyedLists), False), (*_REPLAYS, *_VERSION), first_seeds=1
    ),
    "persistentState, fork": TwinRun(partial(_goes_on_chained, _VERSIONS[False], True), _VERSION, first_seeds=1),
    "persistentState with copies": TwinRun(
        partial(_versions, (Keyed,), True), (*_REPLAYS, *_COPIES), first_seeds=1
    ),
    "persistentState with copies, fork": TwinRun(
        partial(_goes_on_chained, _VERSIONS[True], True), _COPIES, first_seeds=1
    ),
    "persistentState with copies, another parallelism": TwinRun(
        partial(_goes_on_chained, _VERSIONS[True], False), _COPIES, first_seeds=1
    ),
    "monoidClocks, epochs": TwinRun(partial(_totals, "epochs"), _TOTALS, first_seeds=2),
    "monoidClocks, little memory": TwinRun(partial(_totals, "little memory"), _TOTALS, first_seeds=3),
    "monoidClocks, negotiated": TwinRun(partial(_totals, "negotiated"), _TOTALS, first_seeds=3),
    "monoidClocks, another parallelism": TwinRun(_goes_on_totalled, _FAULTS, first_seeds=2),
    "channelLogs": TwinRun(_recorded, _RECORDS, first_seeds=2),
    "channelLogs, stops and requests": TwinRun(
        _stopped_records, (*_RECORDS, "a coordinator ended stopped"), first_seeds=2
    ),
    "channelLogs, keyed state": TwinRun(_keyed_records, (*_RECORDS, "a record with rows"), first_seeds=2),
    "channelLogs, fork": TwinRun(_forked_records, _RECORDS, first_seeds=1),
    "each mode, fork beside its origin": TwinRun(_fork_beside_origin, _REPLAYS, first_seeds=1),
    "each mode, a fault at one step": TwinRun(_crash_point, (*_REPLAYS, *_BASES), first_seeds=2),
    "totals, a fault at one step": TwinRun(_crash_point_of_totals, _TOTALS, first_seeds=2),
    "explored": TwinRun(_explored, ("states", "transitions", "situations"), seeds=len(_EXPLORED), first_seeds=2),
}  # fmt: skip


def measured(label: str, seed: int) -> Measured:
    """Run a seed of a label and digest it."""
    return measure(RUNS[label].run, seed, RUNS[label].shows)
