"""Each rule of modes inputLogging and deltas is needed: a run without it is caught, by a checker that has a name.

Rules have the numbers of PROTOCOL 12. Three are shown elsewhere. Room for a step (12.10) is with the tests of flow
control, because simulated links grant credit at once. The needs of a mode are with the tests of submissions. The
interval between bases (12.12) is here in a run whose store is slow, because without it only time is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from cutline import Deltas, Graph, InputLogging
from cutline.snapshot.coordinator.run_state import Outcome
from cutline.snapshot.testing.checkers import CheckFailed, judge
from cutline.snapshot.testing.history import History
from cutline.snapshot.testing.simulator import Impossible
from cutline.snapshot.testing.steps import Crash, CrashCoordinator, Step, Tick, WorkRows
from cutline.snapshot.trace_events import Kind
from cutline.testing import ListSink, Simulator
from tests.run_size import FACTOR
from tests.snapshot.testing import mutants_of_steps as mutants
from tests.snapshot.testing.replayed import Slices, chain_problems, chained
from tests.snapshot.testing.teeth import Tooth
from tests.snapshot.testing.test_forks_of_steps import Forked, step
from tests.snapshot.testing.test_replayed_runs import KINDS, LATE_FAULTS, MANY, SIZES, Clock, crashed_behind_a_snapshot

#: Runs in which a mutant has to be caught; most are in the first five.
_SEEDS_MAX = 60


def _demand_finished(history: History) -> None:
    if history.outcome is not Outcome.FINISHED:
        raise CheckFailed("outcome", f"{history.outcome}: {history.reason}")


def _demand(history: History, *, rows: int | None = None) -> None:
    """Check the outcome, the chains, and all that the checkers know."""
    _demand_finished(history)
    output = history.output("out")
    problems = chain_problems(output)
    if rows is not None and sum(row[6] for row in output) != rows:
        problems.append(f"{sum(row[6] for row in output)} messages instead of {rows}")
    if problems:
        raise CheckFailed("chain", "; ".join(problems))
    for verdict in judge(history):
        verdict.demand()


def _faulty(kind: str) -> Callable[[int], None]:
    """A run with faults."""
    node, as_batches, mode = KINDS[kind]
    rows = sum(SIZES.values()) * (1 if as_batches else 2)

    def run(seed: int) -> None:
        graph = chained(node(), SIZES, as_batches=as_batches)
        settings: dict[str, Any] = {"snapshotInterval": 0.1, "restartPolicy": MANY, "odds": LATE_FAULTS, "faults": 4}
        _demand(Simulator(graph, seed, mode=mode, **settings).run(), rows=rows)

    return run


def _with_a_long_log(seed: int) -> None:
    """A run that crashes behind many snapshots."""
    graph = chained(KINDS["lists"][0](), {"a": 90, "b": 90})
    simulator = Simulator(graph, [], seed=seed, mode="inputLogging", snapshotInterval=0.03)
    chance = Random(seed)
    while len(simulator.history.snapshots) < 4 and not simulator.isOver:
        step(simulator, chance)
    with suppress(Impossible):  # where it is over
        simulator.take(Crash("out"))
    _demand(simulator.finish(), rows=360)


def _other_mode(seed: int) -> None:
    """A run that is submitted again in another mode: it is refused, or else it has to be right."""
    files: dict[str, bytes] = {}
    settings: dict[str, Any] = {"snapshotInterval": 0.1, "files": files}
    graph = chained(KINDS["each"][0](), SIZES)
    begun = Simulator(graph, seed, mode=InputLogging(), maxSteps=1_200, **settings).run()
    history = Simulator(graph, seed, mode=Deltas(every=3), **settings).run()
    if not begun.snapshots or "was made in mode" in history.reason:
        return
    _demand(history)


def _guilty(seed: int) -> None:
    """A node that is not deterministic: the run ends by its name."""
    graph = Graph("guilty").add("slices", Slices({"a": 3}, endless=True)).add("node", Clock()).add("out", ListSink())
    history = crashed_behind_a_snapshot(graph.connect("slices", "node").connect("node", "out"))
    if "it is not deterministic" not in history.reason:
        raise CheckFailed("comparison", f"{history.outcome}: {history.reason}")


def _forked(kind: str) -> Callable[[int], None]:
    """A fork whose coordinator dies ahead of its first snapshot, and whose worker dies behind it."""

    def run(seed: int) -> None:
        forked = Forked(kind, seed, 5)
        fork, chance = forked.fork(), Random(seed)
        while not any(event.kind is Kind.POLL for event in fork.history.events):
            step(fork, chance)
        fork.take(CrashCoordinator())
        for _ in range(2_000):
            if fork.history.snapshots:
                break
            step(fork, chance)
        fork.take(Crash("out"))
        history = fork.finish()
        _demand_finished(history)
        for snapshot in history.snapshots:
            if any(handle.run != "fork" for record in snapshot.manifest.records for handle in record.all_handles):
                raise CheckFailed("integrity", f"snapshot {snapshot.id} has parts of the origin")
        forked.check(history)

    return run


def _slow_store(seed: int) -> None:
    """A store that takes a few steps' time for rows: all the same there is a base now and then."""
    chance = Random(seed)

    def choose(possible: Sequence[Step]) -> Step:
        if not chance.randrange(6):
            return Tick(0.02)
        fast = [each for each in possible[:-1] if not (isinstance(each, WorkRows) and each.task == "EncodeRows")]
        return chance.choice(fast or possible) if chance.randrange(60) else chance.choice(possible)

    graph = chained(KINDS["keyed"][0](), SIZES, endless=True)
    settings: dict[str, Any] = {"snapshotInterval": 0.1, "maxSteps": 3_000, "maxConcurrentSnapshots": 4}
    history = Simulator(graph, choose, seed=seed, mode=Deltas(every=3), **settings).run()
    bases = [each.id for each in history.snapshots if each.id % 3 == 0]
    if len(history.snapshots) > 3 and not bases:
        raise CheckFailed("bases", f"none among {len(history.snapshots)} snapshots")


#: who notices that a replay is wrong, or that a snapshot has not all that a replay needs
_REPLAY = (*("chain", "outcome", "invariant", "exact cut", "liveness", "delivery", "certificate", "integrity"),)

TEETH = (
    Tooth("12.1 mode not compared", mutants.mode_not_compared, _other_mode, _REPLAY, 4),
    Tooth("12.2 output ahead of the manifest", mutants.output_ahead_of_the_manifest, _faulty("each"), _REPLAY, 7),
    Tooth("12.3 sinks handle again", mutants.sinks_handle_again, _faulty("each"), _REPLAY, 1),
    Tooth("12.3 later time of rows", mutants.later_time_of_rows, _faulty("keyed"), _REPLAY, 16),
    Tooth("12.4 cuts in a replay", mutants.cuts_in_a_replay, _faulty("each"), _REPLAY, 4),
    Tooth("12.5 last run dropped", mutants.last_run_dropped, _faulty("each"), _REPLAY, 1),
    Tooth("12.5 clock goes on", mutants.clock_goes_on, _faulty("each"), _REPLAY, 1),
    Tooth("12.5 lists not cut again", mutants.lists_not_cut_again, _faulty("lists"), _REPLAY),
    Tooth("12.5 batches not cut again", mutants.lists_not_cut_again, _faulty("batches"), _REPLAY, 17),
    Tooth("12.5 timers not logged", mutants.timers_not_logged, _faulty("each"), _REPLAY, 1),
    Tooth("12.5 reads not logged", mutants.reads_not_logged, _faulty("each"), _REPLAY, 1),
    Tooth("12.5 END not logged", mutants.end_not_logged, _faulty("each"), _REPLAY, 4),
    Tooth("12.5 END not repeated", mutants.end_not_repeated, _faulty("each"), _REPLAY, 4),
    Tooth("12.5 publications not logged", mutants.publications_not_logged, _faulty("each"), _REPLAY, 4),
    Tooth("12.6 order of inputs fixed", mutants.order_of_inputs_fixed, _faulty("each"), _REPLAY, 1),
    Tooth("12.7 aborted step forgotten", mutants.aborted_step_forgotten, _faulty("each"), _REPLAY),
    Tooth("12.7 aborted delta forgotten", mutants.aborted_delta_forgotten, _faulty("keyed"), _REPLAY, 1),
    Tooth("12.7 failed part forgotten", mutants.failed_part_forgotten, _faulty("keyed"), _REPLAY),
    Tooth("12.7 restored list forgotten", mutants.restored_list_forgotten, _faulty("keyed"), _REPLAY, 2),
    Tooth("12.7 only the newest part listed", mutants.only_the_newest_part_listed, _faulty("each"), _REPLAY),
    Tooth("12.7 merged pieces overlap", mutants.merged_pieces_overlap, _with_a_long_log, _REPLAY, 4),
    Tooth("12.7 running parts collected", mutants.collector_takes_running_parts, _faulty("keyed"), _REPLAY, 2),
    Tooth("12.8 nothing compared", mutants.nothing_compared, _guilty, ("comparison",)),
    Tooth("12.9 chance not seeded", mutants.chance_not_seeded, _forked("each"), _REPLAY),
    Tooth("12.11 no state listed", mutants.no_state_listed, _faulty("keyed"), _REPLAY),
    Tooth("12.11 first step left out", mutants.first_step_left_out, _faulty("keyed"), _REPLAY),
    Tooth("12.11 steps dropped early", mutants.steps_dropped_ahead_of_the_publication, _faulty("keyed"), _REPLAY, 17),
    Tooth("12.11 fork without a base", mutants.fork_without_a_base, _forked("keyed"), _REPLAY),
    Tooth("12.11 state of another run", mutants.state_of_another_run_listed, _forked("keyed"), _REPLAY),
    Tooth("12.11 adopted fork unknown", mutants.adopted_fork_unknown, _forked("keyed"), _REPLAY, 7),
    Tooth("12.12 base overtaken", mutants.base_overtaken, _slow_store, ("bases",), 10),
)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("tooth", TEETH if FACTOR >= 1 else TEETH[::6], ids=lambda tooth: tooth.rule)
def test_every_rule_of_steps_has_teeth(tooth: Tooth, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run without this rule is caught, and with it is right. A quick run takes one rule of six."""
    tooth.demand(monkeypatch, _SEEDS_MAX)
