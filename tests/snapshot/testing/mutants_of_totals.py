"""Mutants of PROTOCOL 13: totals in a store, with one rule taken away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from cutline.snapshot.channel.channel_receiver import ChannelReceiver
from cutline.snapshot.channel.object_frame import AnyFrame
from cutline.snapshot.channel.stamps import Numbers, Position
from cutline.snapshot.coordinator.control import Deploy
from cutline.snapshot.coordinator.fence import Fence, FenceState
from cutline.snapshot.coordinator.fence_events import FenceEffect
from cutline.snapshot.coordinator.snapshot_table import SnapshotTable
from cutline.snapshot.coordinator.snapshot_tracker import SnapshotTracker
from cutline.snapshot.errors import CutlineError
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.modes.clocks.epoch_assigner import EpochAssigner
from cutline.snapshot.modes.clocks.negotiator import Negotiator
from cutline.snapshot.modes.clocks.slice_assigner import SliceAssigner
from cutline.snapshot.modes.totals.difference_gate import DifferenceGate, HeldDifferences
from cutline.snapshot.modes.totals.ledger import TotalsLedger, TotalsTask, WriteTotals
from cutline.snapshot.modes.totals.store_calls import StoreCalls
from cutline.snapshot.operators.aggregate_store import AggregateStore, StoreClaim
from cutline.snapshot.operators.persistent_aggregate import PersistentAggregate
from cutline.snapshot.plan import compiled_graph
from cutline.snapshot.subtask.acts import Status
from cutline.snapshot.subtask.events import ControlEvent, Effect, SnapshotRequested
from cutline.snapshot.subtask.machine import SubtaskMachine
from cutline.snapshot.subtask.recorder import Phase, Recorder
from cutline.snapshot.subtask.strand import DifferenceCaptured
from cutline.snapshot.testing.simulation import totals
from cutline.snapshot.testing.simulation.kept_totals import KeptTotals
from cutline.snapshot.testing.simulation.scheduler import Group
from cutline.snapshot.testing.simulation.totals import StoreConnection, StoreThreads
from cutline.snapshot.worker.acknowledgements import Acknowledgements

Patch = pytest.MonkeyPatch


# ---------------------------------------------------------------- 13.1 to 13.3: cells, and what is written


def no_value_before(patch: Patch) -> None:
    def write(self: StoreConnection, claim: StoreClaim, snapshotId: int, items: Any) -> None:
        KeptTotals.write(self, claim, snapshotId, items)
        for key, _ in items:
            self._stored.cells[key].before = None

    patch.setattr(StoreConnection, "write", write)


def commit_for_each_subtask(patch: Patch) -> None:
    """The cells that a subtask has written count when this subtask commits."""
    write = StoreConnection.write
    written: dict[int, dict[Any, None]] = {}

    def note(self: StoreConnection, claim: StoreClaim, snapshotId: int, items: Any) -> None:
        write(self, claim, snapshotId, items)
        written.setdefault(id(self), {}).update(dict.fromkeys(key for key, _ in items))

    def commit(self: StoreConnection, claim: StoreClaim, snapshotId: int) -> None:
        for key in written.pop(id(self), {}):
            self._stored.cells[key].snapshot_id = 0

    patch.setattr(StoreConnection, "write", note)
    patch.setattr(StoreConnection, "commit", commit)


def acknowledged_at_once(patch: Patch) -> None:
    patch.setattr(TotalsLedger, "ready", lambda self, cut: {})


def added_to_the_newest_value(patch: Patch) -> None:
    rule = StoreCalls._write

    def write(self: StoreCalls, snapshot_id: int, left: list[tuple[Any, Any]]) -> None:
        cells = self._store._stored.cells  # type: ignore[attr-defined]  # of a simulated store
        left[:] = [
            (key, self._monoid.plus(cells[key].value, state) if _is_open(self._store, key) else state)
            for key, state in left
        ]
        rule(self, snapshot_id, left)

    patch.setattr(StoreCalls, "_write", write)


def _is_open(store: AggregateStore, key: Any) -> bool:
    stored = store._stored  # type: ignore[attr-defined]  # of a simulated store
    return key in stored.cells and stored.cells[key].snapshot_id > stored.committed


# ---------------------------------------------------------------- 13.4 and 13.5: aborted differences, one at a time


def aborted_difference_forgotten(patch: Patch) -> None:
    settled = TotalsLedger._settled_below

    def mutant(self: TotalsLedger, min_snapshot_id: int) -> list[TotalsTask]:
        tasks = settled(self, min_snapshot_id)
        self._carried = None
        return tasks

    patch.setattr(TotalsLedger, "_settled_below", mutant)


def undecided_taken_for_aborted(patch: Patch) -> None:
    """The next difference does not wait until it is known whether the last snapshot was published."""
    captured = TotalsLedger.captured

    def mutant(self: TotalsLedger, cut: int | None, change: DifferenceCaptured) -> list[TotalsTask]:
        self._carried, self._undecided = self._undecided or self._carried, None
        return captured(self, cut, change)

    patch.setattr(TotalsLedger, "captured", mutant)


def undecided_taken_for_published(patch: Patch) -> None:
    captured = TotalsLedger.captured

    def mutant(self: TotalsLedger, cut: int | None, change: DifferenceCaptured) -> list[TotalsTask]:
        self._undecided = None
        return captured(self, cut, change)

    patch.setattr(TotalsLedger, "captured", mutant)


def found_published_not_announced_first(patch: Patch) -> None:
    """A coordinator that adopts a run announces first what is settled."""
    announce, settle = SnapshotTracker.announce, SnapshotTracker.announce_min_snapshot_id

    def mutant(self: SnapshotTracker, snapshot_id: int, *, is_last: bool = False) -> None:
        settle(self)
        announce(self, snapshot_id, is_last=is_last)

    patch.setattr(SnapshotTracker, "announce", mutant)


def timeout_while_the_store_is_away(patch: Patch) -> None:
    patch.setattr(SnapshotTable, "_may_be_late", lambda self, snapshot: True)


def two_at_a_time(patch: Patch) -> None:
    made = SnapshotTable.__init__

    def mutant(self: SnapshotTable, policy: Any, *args: Any, **settings: Any) -> None:
        made(self, policy, *args, **settings)
        self.policy = policy

    patch.setattr(SnapshotTable, "__init__", mutant)


def acknowledgement_sent_once(patch: Patch) -> None:
    none_kept = property(lambda self: {}, lambda self, value: None)
    patch.setattr(Acknowledgements, "repeated", none_kept, raising=False)


# ---------------------------------------------------------------- 13.6 to 13.8: commit, restore, claims


def committed_ahead_of_the_manifest(patch: Patch) -> None:
    step = StoreCalls.step

    def mutant(self: StoreCalls) -> TotalsTask | None:
        done = step(self)
        if isinstance(done, WriteTotals):
            self._store.commit(self._claim, done.snapshot_id)
        return done

    patch.setattr(StoreCalls, "step", mutant)


def committed_without_a_claim_check(patch: Patch) -> None:
    """A coordinator announces a manifest without a check for the next claim."""
    check = Fence._check_claim

    def mutant(self: Fence) -> list[FenceEffect]:
        return self._on_claim_checked(None) if self.state is FenceState.PUBLISHING else check(self)

    patch.setattr(Fence, "_check_claim", mutant)


def commit_reported_at_once(patch: Patch) -> None:
    patch.setattr(Acknowledgements, "may_report", lambda self, handled: True)


def _opening(patch: Patch, *, commits: bool = True, rolls_back: bool = True) -> None:
    def opening(store: AggregateStore, claim: StoreClaim, node: str, snapshot_id: int) -> Iterator[None]:
        store.take(claim)
        yield
        if commits:
            store.commit(claim, snapshot_id)
            yield
        if rolls_back:
            store.rollBack(claim, snapshot_id)
            yield

    patch.setattr(totals, "opening", opening)


def no_roll_back(patch: Patch) -> None:
    _opening(patch, rolls_back=False)


def no_commit_ahead_of_the_roll_back(patch: Patch) -> None:
    _opening(patch, commits=False)


def started_before_all_have_rolled_back(patch: Patch) -> None:
    rule = StoreThreads.open

    def mutant(self: StoreThreads, deploy: Deploy, group: Group, opened: Callable[[CutlineError | None], None]) -> None:
        opened(None)
        rule(self, deploy, group, lambda error: None)

    patch.setattr(StoreThreads, "open", mutant)


def old_claim_writes(patch: Patch) -> None:
    """The claim is no condition of a write, but of all else."""
    write = StoreConnection.write

    def mutant(self: StoreConnection, claim: StoreClaim, snapshotId: int, items: Any) -> None:
        newest = self._stored.claim
        write(self, claim if newest is None else newest, snapshotId, items)

    patch.setattr(StoreConnection, "write", mutant)


# ---------------------------------------------------------------- 13.9 to 13.11: epochs, markers, two differences


def newest_epoch_of_a_relay(patch: Patch) -> None:
    rule = EpochAssigner._pass_on
    patch.setattr(EpochAssigner, "_pass_on", lambda self, stamp: rule(self, max(stamp, self._stamp)))


def source_goes_on_in_its_epoch(patch: Patch) -> None:
    patch.setattr(EpochAssigner, "begin", lambda self, snapshot_id: None)


def forwarded_at_the_first_input(patch: Patch) -> None:
    def mutant(self: Recorder, channel: ChannelId, snapshot_id: int) -> list[Effect]:
        if self.phase(snapshot_id) is not Phase.ALIGNING:
            return []
        self._snapshots[snapshot_id].held[channel] = None
        return self._cut(snapshot_id)

    patch.setattr(Recorder, "_on_reached", mutant)


def ahead_of_data(patch: Patch) -> None:
    patch.setattr(compiled_graph, "_aligned", lambda topology, mode: replace(topology, mode=mode))


def marker_of_an_aborted_snapshot_counted(patch: Patch) -> None:
    rule = Recorder._on_reached

    def mutant(self: Recorder, channel: ChannelId, snapshot_id: int) -> list[Effect]:
        aligning = [number for number, each in self._snapshots.items() if each.phase is Phase.ALIGNING]
        if snapshot_id not in self._snapshots and aligning:
            self._snapshots[aligning[0]].arrived.setdefault(channel, 0)
            return rule(self, channel, aligning[0])
        return rule(self, channel, snapshot_id)

    patch.setattr(Recorder, "_on_reached", mutant)


def one_difference(patch: Patch) -> None:
    """All that has come is of the snapshot whose marker has come on all inputs."""
    take = PersistentAggregate.take_difference
    patch.setattr(PersistentAggregate, "take_difference", lambda self, snapshot_id: take(self, 1 << 62))


# ---------------------------------------------------------------- 13.12 to 13.14: certificate, ends, memory


def all_messages_counted_at_one_end(patch: Patch) -> None:
    received = EpochAssigner.received
    patch.setattr(EpochAssigner, "received", lambda self, channel, snapshot_id: received(self, channel, 1 << 62))


def all_messages_counted_at_both_ends(patch: Patch) -> None:
    all_messages_counted_at_one_end(patch)
    sent = EpochAssigner.sent
    patch.setattr(EpochAssigner, "sent", lambda self, channel, snapshot_id: sent(self, channel, 1 << 62))


def end_has_the_last_stamp(patch: Patch) -> None:
    patch.setattr(EpochAssigner, "stream_ends", lambda self: None)


def messages_of_on_end_have_the_last_stamp(patch: Patch) -> None:
    def mutant(self: EpochAssigner, end: ChannelReceiver, frame: AnyFrame) -> None:
        self.slice_begins(end, frame, 1)
        self._received[end.channel].add(self._epoch, 1)
        self._ends[end.channel] = self._epoch

    patch.setattr(EpochAssigner, "input_ended", mutant)


def ended_in_all_snapshots(patch: Patch) -> None:
    """A subtask counts as ended as soon as it has ended."""
    patch.setattr(EpochAssigner, "is_over", lambda self, snapshot_id: True)


def inputs_ended_in_all_snapshots(patch: Patch) -> None:
    patch.setattr(EpochAssigner, "had_ended", lambda self, channel, snapshot_id: True)


def no_markers_of_ended_subtasks(patch: Patch) -> None:
    step = SubtaskMachine.step

    def mutant(self: SubtaskMachine, event: ControlEvent, now: float) -> None:
        if not (isinstance(event, SnapshotRequested) and self.status is Status.ENDED):
            step(self, event, now)

    patch.setattr(SubtaskMachine, "step", mutant)


def gate_never_closes(patch: Patch) -> None:
    patch.setattr(DifferenceGate, "check", lambda self: None)


def no_snapshot_asked(patch: Patch) -> None:
    patch.setattr(DifferenceGate, "needs_snapshot", False)


def gate_closed_ahead_of_the_marker(patch: Patch) -> None:
    """The gate closes above the bytes, whatever waits."""
    check = DifferenceGate.check

    def mutant(self: DifferenceGate) -> None:
        before, self.held = self.held, replace(self.held, is_waiting=True)
        check(self)
        self.held = before

    patch.setattr(DifferenceGate, "check", mutant)


def aborted_difference_closes_the_gate(patch: Patch) -> None:
    hold = DifferenceGate.hold

    def mutant(self: DifferenceGate, held: HeldDifferences) -> None:
        hold(self, replace(held, is_waiting=held.size > 0))

    patch.setattr(DifferenceGate, "hold", mutant)


# ---------------------------------------------------------------- 13.15 to 13.19: negotiated clocks


def messages_taken_before_the_announcement(patch: Patch) -> None:
    """An aggregate answers, and goes on."""
    rule = SliceAssigner.ask

    def mutant(self: SliceAssigner, snapshot_id: int) -> Numbers:
        seen = rule(self, snapshot_id)
        self._resume()
        return seen

    patch.setattr(SliceAssigner, "ask", mutant)


def inclusive_answers(patch: Patch) -> None:
    """An answer has the last slice that was seen, and not the next one."""
    rule = SliceAssigner.ask

    def mutant(self: SliceAssigner, snapshot_id: int) -> Numbers:
        return tuple((partition, number - 1) for partition, number in rule(self, snapshot_id))

    patch.setattr(SliceAssigner, "ask", mutant)


def lowest_answer(patch: Patch) -> None:
    """The clock is the minimum of the answers."""

    def mutant(self: Negotiator, snapshot_id: int, subtask: Subtask, seen: Numbers, *, has_ended: bool) -> bool:
        if snapshot_id != self._snapshot_id or subtask not in self._missing:
            return False
        is_first = len(self._missing) == len(self.aggregates)
        del self._missing[subtask]
        answer = dict(seen)
        self._clock = answer if is_first else {each: min(n, answer.get(each, 0)) for each, n in self._clock.items()}
        self._have_ended &= has_ended
        return not self._missing

    patch.setattr(Negotiator, "answer", mutant)


def one_ended_aggregate_ends_all(patch: Patch) -> None:
    """The clock is above everything as soon as the inputs of one aggregate have ended."""
    rule = Negotiator.answer
    ended: dict[tuple[int, int], None] = {}

    def mutant(self: Negotiator, snapshot_id: int, subtask: Subtask, seen: Numbers, *, has_ended: bool) -> bool:
        if has_ended:
            ended[id(self), snapshot_id] = None
        was_last = rule(self, snapshot_id, subtask, seen, has_ended=has_ended)
        self._have_ended = was_last and (id(self), snapshot_id) in ended
        return was_last

    patch.setattr(Negotiator, "answer", mutant)


def slice_at_the_clock_below_it(patch: Patch) -> None:
    rule = SliceAssigner._epoch_of

    def mutant(self: SliceAssigner, position: Position) -> int:
        partition, number = position
        return rule(self, position if number >= 1 << 62 else (partition, number - 1))

    patch.setattr(SliceAssigner, "_epoch_of", mutant)


def source_has_what_it_has_read(patch: Patch) -> None:
    patch.setattr(SliceAssigner, "state_at", lambda self, snapshot_id, state: state)


def ended_below_any_clock(patch: Patch) -> None:
    """A subtask has ended in a snapshot as soon as it has ended."""
    patch.setattr(SliceAssigner, "had_ended", lambda self, channel, snapshot_id: True)
    patch.setattr(SliceAssigner, "is_over", lambda self, snapshot_id: True)


def messages_of_on_end_below_any_clock(patch: Patch) -> None:
    patch.setattr(SliceAssigner, "input_ended", lambda self, end, frame: None)


def gates_stay_closed(patch: Patch) -> None:
    """A round without all answers opens no gate."""
    rule = SliceAssigner.settle

    def mutant(self: SliceAssigner, min_snapshot_id: int) -> None:
        asked, self._asked = self._asked, 0
        rule(self, min_snapshot_id)
        self._asked = asked

    patch.setattr(SliceAssigner, "settle", mutant)
