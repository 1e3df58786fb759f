"""Each rule of totals in a store is needed: a run without it is caught, by a checker that has a name.

Rules have the numbers of PROTOCOL 13. That a store does not go back (13.7) is with the tests of its calls, and that
relays have no state (13.9) with those of states.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import ClassVar

import pytest

from cutline.snapshot.coordinator.restart_policy import RestartPolicy
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.modes.totals.difference_gate import DifferenceGate, gate_of
from cutline.snapshot.operators.persistent_aggregate import PersistentAggregate
from cutline.snapshot.plan.modes import MARKERS, ModeWish, MonoidClocks
from cutline.snapshot.subtask.components import SubtaskComponents
from cutline.snapshot.subtask.listener import Listener
from cutline.snapshot.subtask.machine import SubtaskMachine
from cutline.snapshot.testing.checkers import CheckFailed
from cutline.snapshot.testing.simulator import Impossible, Mutation
from cutline.snapshot.testing.steps import (
    Crash,
    FailStore,
    Freeze,
    LoseTotals,
    Poll,
    Quiesce,
    Receive,
    RequestSnapshot,
    Step,
    Tick,
    WorkRows,
)
from cutline.testing import Odds, Simulator
from tests.run_size import FACTOR
from tests.snapshot.testing import mutants_of_totals as mutants
from tests.snapshot.testing.crash_points import go_on
from tests.snapshot.testing.teeth import Tooth
from tests.snapshot.testing.test_totals_campaign import (
    demand,
    ends_of_one_edge,
    ends_of_two_edges,
    lost_acknowledgement,
    run,
)
from tests.snapshot.testing.totalled import Judge, Shape

#: Runs in which a mutant has to be caught; most are in the first five.
_SEEDS_MAX = 80

_LITTLE = MonoidClocks(memory=700)
#: bytes that a subtask may hold above its memory, of messages that are ahead of a marker; all input has 41,452
_SLACK_BYTES = 6_000


def _faulty(mode: ModeWish) -> Callable[[int], None]:
    """A run of a graph by chance, with faults."""
    return lambda seed: run(seed, mode, Counter())


def _away(seed: int) -> None:
    """A store that is away for a minute: no snapshot is given up for that."""
    shape = Shape({"in": {"a": 30, "b": 30}}, (), {"sums": 2}, parallelism=2, most=1)
    simulator = Simulator(shape.graph(), [], seed=seed, mode="monoidClocks", snapshotInterval=0.05)
    simulator.take(Poll("in"))
    simulator.take(LoseTotals("sums", calls=100_000, happen=0))
    chance = Random(seed)
    while simulator.history.now < 0 or len(simulator.history.handled("sums")) < 3 * 60:
        go_on(simulator, 1, chance)
    go_on(simulator, 1_500, chance)
    simulator.take(LoseTotals("sums", calls=0, happen=0))
    history = simulator.finish()
    demand(history, shape)
    if given_up := history.seen["a snapshot was aborted by its deadline"]:
        raise CheckFailed("snapshots", f"{given_up} were given up while the store was away")


def _late(seed: int) -> None:
    """A worker that receives late, stores that are opened late, and parts that cannot be stored now and then."""
    chance, judged = Random(seed), Judge(Counter())
    shape = Shape({"in": {"a": 20, "b": 20}}, (), {"sums": 2}, parallelism=2, most=1)
    simulator = Simulator(
        shape.graph(), [], seed=seed, mode="monoidClocks", workers=4, snapshotInterval=0.04,
        mutation=judged.mutation(), restartPolicy=RestartPolicy(maxRestarts=50), tolerableFailedSnapshots=50,
    )  # fmt: skip
    simulator.take(Poll("in[0]"))
    for _ in range(3_000):
        possible = simulator.possible()
        if not possible:
            break
        fast = [each for each in possible[:-1] if not _is_late(each)]
        step = chance.choice(fast if fast and chance.randrange(40) else possible[:-1] or possible)
        if not chance.randrange(10):
            step = Tick(0.02)
        elif not chance.randrange(200):
            step = chance.choice((Crash("sums[0]"), FailStore(0), FailStore(1)))
        with suppress(Impossible):
            simulator.take(step)
    history = simulator.finish()
    demand(history, shape)
    judged.demand(history)


def _is_late(step: Step) -> bool:
    if isinstance(step, WorkRows):
        return step.task == "OpenStore"
    return isinstance(step, Receive) and step.process % 4 == 3


class _Bound(Listener):
    """Checks the bytes of an aggregate after each slice of messages."""

    is_checked: ClassVar[bool] = False

    def __init__(self, subtask: Subtask, node: PersistentAggregate, gate: DifferenceGate) -> None:
        self._subtask, self._node, self._gate = subtask, node, gate

    def slice_handled(self, channel: ChannelId, count: int, *, together: bool) -> None:
        held = self._node.held_bytes + self._gate.held.size
        if self.is_checked and held > _LITTLE.memory + _SLACK_BYTES:
            raise CheckFailed("memory", f"{self._subtask} holds {held} bytes")


def _bounded_machine(components: SubtaskComponents) -> SubtaskMachine:
    core, gate = components.core, gate_of(components)
    if gate is not None:
        assert isinstance(core.node, PersistentAggregate)
        components.listeners += (_Bound(core.subtask, core.node, gate),)
    return SubtaskMachine(components)


def _bounded(seed: int) -> None:
    """A store that is away for a time, or is not: an aggregate holds no more than its bytes, and the run goes on.

    A source sends when all else is done, because what is ahead of a marker has to be taken. That is much when the store
    is back.
    """
    _Bound.is_checked = True
    chance, is_away = Random(seed), seed % 2 == 1
    shape = Shape({"in": {"a": 60}}, (), {"sums": 1}, most=1)
    simulator = Simulator(
        shape.graph(), [], mode=_LITTLE, snapshotInterval=0.05 if is_away else None,
        mutation=Mutation(machine=_bounded_machine),
    )  # fmt: skip
    simulator.take(Poll("in"))
    for step in range(6_000):
        if is_away and step in (0, 1_500):
            simulator.take(LoseTotals("sums", calls=0 if step else 100_000, happen=0))
            _Bound.is_checked = not step
        if not (possible := simulator.possible()):
            break
        others = [each for each in possible[:-1] if not isinstance(each, Poll)]
        simulator.take(chance.choice(others if others and chance.randrange(20) else [possible[0], Tick(0.01)]))
    _Bound.is_checked = False
    demand(simulator.finish(), shape)


def _apart(seed: int) -> None:
    """Two aggregates with sources of their own, one of which has ended; workers that die."""
    shape = Shape(
        {"in0": {"a": 1}, "in1": {"b": 20, "c": 20}}, (), {"sums": 1, "more": 2}, parallelism=2, most=1, is_apart=True
    )
    judged = Judge(Counter())
    history = Simulator(
        shape.graph(), seed, faults=4, mode=MonoidClocks(clock="negotiated"), snapshotInterval=0.03,
        odds=Odds(fault=60, tick=6), restartPolicy=RestartPolicy(maxRestarts=50), mutation=judged.mutation(),
    ).run()  # fmt: skip
    demand(history, shape)
    judged.demand(history, shape)


def _frozen(seed: int) -> None:
    """A worker that is frozen when it is asked for its clock. No other snapshot comes before all is done."""
    shape = Shape({"in": {"a": 20, "b": 20}}, (), {"sums": 2}, parallelism=2, most=1)
    mode = MonoidClocks(clock="negotiated")
    simulator = Simulator(shape.graph(), [], seed=seed, mode=mode, workers=4, snapshotTimeout=10.0)
    simulator.take(Poll("in"))
    for step in (Freeze(3, 5.0), RequestSnapshot(), Quiesce(), Tick(3.0), Quiesce()):
        simulator.take(step)
    demand(simulator.finish(), shape)


_MARKERS, _EPOCHS, _FULL = _faulty(MARKERS), _faulty("monoidClocks"), _faulty(_LITTLE)
_NEGOTIATED = _faulty(MonoidClocks(clock="negotiated"))

TEETH = (
    Tooth("13.1 no value before", mutants.no_value_before, _MARKERS),
    Tooth("13.1 a commit for each subtask", mutants.commit_for_each_subtask, _EPOCHS),
    Tooth("13.2 acknowledged at once", mutants.acknowledged_at_once, _MARKERS),
    Tooth("13.3 added to the newest value", mutants.added_to_the_newest_value, _MARKERS),
    Tooth("13.4 aborted difference forgotten", mutants.aborted_difference_forgotten, _EPOCHS),
    Tooth("13.4 undecided taken for aborted", mutants.undecided_taken_for_aborted, _late),
    Tooth("13.4 undecided taken for published", mutants.undecided_taken_for_published, _late),
    Tooth("13.4 found published not announced first", mutants.found_published_not_announced_first, _EPOCHS),
    Tooth("13.5 timeout while the store is away", mutants.timeout_while_the_store_is_away, _away),
    Tooth("13.5 two at a time", mutants.two_at_a_time, _away),
    Tooth("13.5 acknowledgement sent once", mutants.acknowledgement_sent_once, lambda _: lost_acknowledgement(MARKERS)),
    Tooth("13.6 committed ahead of the manifest", mutants.committed_ahead_of_the_manifest, _MARKERS),
    Tooth("13.6 committed without a claim check", mutants.committed_without_a_claim_check, _MARKERS),
    Tooth("13.6 commit reported at once", mutants.commit_reported_at_once, _MARKERS),
    Tooth("13.7 no roll-back", mutants.no_roll_back, _MARKERS),
    Tooth("13.7 no commit ahead of the roll-back", mutants.no_commit_ahead_of_the_roll_back, _MARKERS),
    Tooth("13.7 started before all have rolled back", mutants.started_before_all_have_rolled_back, _late),
    Tooth("13.8 an old claim writes", mutants.old_claim_writes, _MARKERS),
    Tooth("13.9 newest epoch of a relay", mutants.newest_epoch_of_a_relay, _EPOCHS),
    Tooth("13.9 source goes on in its epoch", mutants.source_goes_on_in_its_epoch, _EPOCHS),
    Tooth("13.10 forwarded at the first input", mutants.forwarded_at_the_first_input, _EPOCHS),
    Tooth("13.10 ahead of data", mutants.ahead_of_data, _EPOCHS),
    Tooth("13.10 marker of an aborted one counted", mutants.marker_of_an_aborted_snapshot_counted, _EPOCHS),
    Tooth("13.11 one difference", mutants.one_difference, _EPOCHS),
    Tooth("13.12 all counted at one end", mutants.all_messages_counted_at_one_end, _EPOCHS),
    Tooth("13.12 all counted at both ends", mutants.all_messages_counted_at_both_ends, _EPOCHS),
    Tooth("13.13 end has the last stamp", mutants.end_has_the_last_stamp, lambda _: ends_of_two_edges()),
    Tooth(
        "13.13 onEnd has the last stamp", mutants.messages_of_on_end_have_the_last_stamp, lambda _: ends_of_one_edge()
    ),
    Tooth("13.13 ended in all snapshots", mutants.ended_in_all_snapshots, lambda _: ends_of_two_edges()),
    Tooth("13.13 inputs ended in all snapshots", mutants.inputs_ended_in_all_snapshots, _EPOCHS),
    Tooth("13.13 no markers of ended subtasks", mutants.no_markers_of_ended_subtasks, _EPOCHS),
    Tooth("13.14 gate never closes", mutants.gate_never_closes, _bounded),
    Tooth("13.14 no snapshot asked", mutants.no_snapshot_asked, _bounded),
    Tooth("13.14 gate closed ahead of the marker", mutants.gate_closed_ahead_of_the_marker, _bounded),
    Tooth("13.14 aborted difference closes the gate", mutants.aborted_difference_closes_the_gate, _FULL),
    Tooth("13.15 taken before the announcement", mutants.messages_taken_before_the_announcement, _NEGOTIATED),
    Tooth("13.15 inclusive answers", mutants.inclusive_answers, _NEGOTIATED),
    Tooth("13.15 lowest answer", mutants.lowest_answer, _NEGOTIATED),
    Tooth("13.16 slice at the clock", mutants.slice_at_the_clock_below_it, _NEGOTIATED),
    Tooth("13.17 source has what it has read", mutants.source_has_what_it_has_read, _NEGOTIATED),
    Tooth("13.15 one ended aggregate ends all", mutants.one_ended_aggregate_ends_all, _apart),
    Tooth("13.18 ended below any clock", mutants.ended_below_any_clock, _NEGOTIATED),
    Tooth("13.18 onEnd below any clock", mutants.messages_of_on_end_below_any_clock, _NEGOTIATED, first=124),
    Tooth("13.19 gates stay closed", mutants.gates_stay_closed, _frozen),
)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("tooth", TEETH if FACTOR >= 1 else TEETH[::6], ids=lambda tooth: tooth.rule)
def test_every_rule_of_totals_has_teeth(tooth: Tooth, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run without this rule is caught, and with it is right. A quick run takes one rule of six."""
    tooth.demand(monkeypatch, _SEEDS_MAX)
