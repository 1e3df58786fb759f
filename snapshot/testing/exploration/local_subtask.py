"""One real subtask machine, as the exploration steps it: what comes to it, what it can do, what it tells.

Owns what a worker does around a machine, one event at a time: seals and takes, obeys control messages, turns what it
took for a snapshot into its parts and their record. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Hashable
from logging import LoggerAdapter
from random import Random
from typing import Any, assert_never

from snapshot.channel.frame import Frame, Marker
from snapshot.channel.receiving_end import ReceivingEnd
from snapshot.channel.sending_end import SendingEnd
from snapshot.channel.serialization import Codec
from snapshot.coordinator import control
from snapshot.declared.built import Built
from snapshot.ids import ChannelId
from snapshot.stored.contribution import parts_of, record_of
from snapshot.stored.part import decode_frames, decode_part
from snapshot.subtask.assembly import RestoredChannels, Surroundings, assemble
from snapshot.subtask.limits import SubtaskLimits
from snapshot.subtask.machine import Status, SubtaskMachine
from snapshot.subtask.recorder import Phase
from snapshot.subtask.reports import AlignmentStarted, Report, SnapshotAsked, SnapshotFailed, SnapshotTaken
from snapshot.testing.exploration.fingerprint import fingerprint
from snapshot.testing.exploration.ledger import Ledger
from snapshot.testing.exploration.local_states import Said, View
from snapshot.testing.exploration.subtask_events import (
    COORDINATOR,
    Arrived,
    Contribution,
    Handled,
    Heard,
    Life,
    SubtaskEvent,
    Taken,
    TimedOut,
    Woken,
)

#: Time stands still, but for timers and polls, which come whenever they are due next.
_NOW = 0.0


class _Silent(LoggerAdapter[Any]):
    """Nobody reads what nodes log here."""

    def __init__(self) -> None:
        pass

    def isEnabledFor(self, level: int) -> bool:
        return False


class LocalSubtask:
    """One subtask in one life.

    Parameters
    ----------
    built : Built
    run : str
    life : Life
    seen : dict
        Situations that occurred are added.
    """

    def __init__(self, built: Built, run: str, life: Life, seen: dict[str, None]) -> None:
        self._run = run
        self._life = life
        self._seen = seen
        channels, state = _restored(life)
        if channels.frames:
            seen["restore with channel state"] = None
        self._drained_at = {channel: frames[-1].last for channel, frames in channels.frames.items()}
        parts = assemble(life.start.subtask, built, _surroundings(run, life), channels)
        self._parts = parts
        self.ledger = Ledger(parts, life.before)
        self._machine = SubtaskMachine(parts)
        self._machine.restore(state, _NOW)
        #: snapshots whose time to align may end
        self._aligning: list[int] = []
        #: snapshots that were started here
        self._initiated: list[int] = []
        self._cuts_before = 0

    # ---------------------------------------------------------------- events

    def step(self, event: SubtaskEvent) -> list[Said]:
        """Take one event to its end."""
        machine, said = self._machine, list[Said]()
        self._cuts_before = len(self.ledger.cuts)
        match event:
            case Arrived(channel, item):
                self._arrive(channel, item)
            case Heard(message):
                self._hear(message)
            case Handled(channel):
                machine.handle_next(channel, _NOW)
            case Taken(channel):
                said.append((channel, _take(machine.outputs[channel])))
            case Woken():
                machine.run(machine.next_wake() or _NOW, 1)
            case TimedOut(snapshot_id):
                self._time_out(snapshot_id)
            case _:
                assert_never(event)
        if isinstance(event, Handled | Woken):
            for end in machine.inputs.values():
                self.ledger.note_end(end)
        for report in machine.take_reports():
            said += self._report(report)
        return said

    def check(self) -> None:
        """Every invariant of the machine; and note what occurred."""
        self._machine.validate()
        inputs, recorder = self._machine.inputs.values(), self._machine.cutter.recorder
        has_cut = len(self.ledger.cuts) > self._cuts_before
        self._note(
            {
                "overlap": len(recorder.unfinished()) > 1,
                "channel held": any(end.held for end in inputs),
                "cut inside a frame": has_cut and any(map(_is_inside_a_frame, inputs)),
            }
        )

    def _arrive(self, channel: ChannelId, item: Frame | Marker) -> None:
        if isinstance(item, Frame):
            self._machine.deliver(channel, item)
            return
        recorder = self._machine.cutter.recorder
        if item.snapshot_id < recorder.floor:
            self._seen["late marker dropped"] = None
        elif recorder.phase(item.snapshot_id) is None:
            self._seen[f"first marker through {channel}"] = None
        self._machine.deliver_marker(channel, item)

    def _hear(self, message: control.CoordinatorMessage) -> None:
        """As a worker obeys."""
        machine = self._machine
        match message:
            case control.StartProcessing():
                machine.start(_NOW)
            case control.TriggerSnapshot(_, snapshot_id, _, running, floor):
                if machine.cutter.recorder.phase(snapshot_id) is None:
                    self._initiated.append(snapshot_id)
                machine.request(snapshot_id, running, floor)
            case control.AnswerSnapshotRequest():
                machine.answer_request()
            case control.SettleSnapshots(_, floor):
                self._settle(floor)
            case control.AnnouncePublished(_, snapshot_id, floor, _):
                self._settle(floor)
                machine.published(snapshot_id, _NOW)
            case control.EndComponent(_, nodes):
                if machine.subtask.node in nodes:
                    machine.end_component(_NOW)
            case _:
                raise AssertionError(f"{machine.subtask}: no message for a running subtask: {message}")

    def _settle(self, floor: int) -> None:
        self._machine.raise_floor(floor)
        self.ledger.settle(floor)
        self._aligning = [snapshot_id for snapshot_id in self._aligning if snapshot_id >= floor]
        self._initiated = [snapshot_id for snapshot_id in self._initiated if snapshot_id >= floor]

    def _time_out(self, snapshot_id: int) -> None:
        self._aligning.remove(snapshot_id)
        if self._machine.cutter.recorder.phase(snapshot_id) is Phase.ALIGNING:
            self._seen["alignment timed out"] = None
        self._machine.alignment_timed_out(snapshot_id)

    # ---------------------------------------------------------------- reports

    def _report(self, report: Report) -> list[Said]:
        at = self._life.incarnation
        match report:
            case SnapshotTaken():
                return [(COORDINATOR, self._contribution(report))]
            case SnapshotFailed(snapshot_id, subtask, reason):
                return [(COORDINATOR, control.SnapshotDeclined(at, snapshot_id, subtask, reason))]
            case SnapshotAsked(subtask):
                return [(COORDINATOR, control.SnapshotAskedFor(at, subtask))]
            case AlignmentStarted(snapshot_id):
                self._aligning.append(snapshot_id)
        return []

    def _contribution(self, taken: SnapshotTaken) -> Contribution:
        self._note_parts(taken)
        handles = [part.inline() for part in parts_of(taken, self._run, self._life.incarnation)]
        record = record_of(taken, self._life.incarnation, handles)
        return Contribution(
            control.SnapshotAcknowledged(self._life.incarnation, taken.snapshot_id, record, taken.spent),
            self.ledger.take_point(taken.snapshot_id),
            taken.snapshot_id in self._initiated,
        )

    # ---------------------------------------------------------------- what is seen

    def _note_parts(self, taken: SnapshotTaken) -> None:
        drained_at = self._drained_at
        self._note(
            {
                "receiver's part": any(cut.frames for cut in taken.received.values()),
                "sender's part": any(cut.frames for cut in taken.sent.values()),
                "snapshot before restored messages drained": any(
                    cut.processed < drained_at.get(channel, 0) for channel, cut in taken.received.items()
                ),
            }
        )

    def _note(self, occurred: dict[str, bool]) -> None:
        self._seen.update((name, None) for name, occurs in occurred.items() if occurs)

    # ---------------------------------------------------------------- states

    def key(self) -> Hashable:
        """All that is mutable."""
        return fingerprint((self._life.incarnation, self._machine, self.ledger, self._aligning, self._initiated))

    def view(self) -> View[SubtaskEvent]:
        """What can happen here."""
        machine, who = self._machine, self._machine.subtask
        if machine.status not in (Status.RUNNING, Status.ENDED):
            return View((), (), is_open=False, unsettled=f"{who} was not started")
        own: list[tuple[str, SubtaskEvent]] = [
            (f"{channel}: the sender's next goes on the link", Taken(channel))
            for channel, end in machine.outputs.items()
            if end.has_data or end.has_open_frame
        ]
        if not machine.gate.closed:
            own += [
                (f"{channel}: the next is handled", Handled(channel))
                for channel, end in machine.inputs.items()
                if end.ready
            ]
            if machine.next_wake() is not None:
                own.append((f"{who}: timer or poll", Woken()))
        faults: list[tuple[str, SubtaskEvent]] = [
            (f"{who}: time to align {snapshot_id} is over", TimedOut(snapshot_id)) for snapshot_id in self._aligning
        ]
        return View(tuple(own), tuple(faults), is_open=True, unsettled=self._unsettled())

    def _unsettled(self) -> str:
        machine = self._machine
        waiting = [str(channel) for channel, end in machine.inputs.items() if not end.drained]
        if waiting:
            return f"messages wait on {', '.join(waiting)}"
        held = [str(channel) for channel, end in machine.inputs.items() if end.held]
        if held:
            return f"held are {', '.join(held)}"
        if machine.gate.closed:
            return f"{machine.subtask} waits for an answer to requestSnapshot"
        if machine.cutter.recorder.unfinished() or any(end.recorded_bytes for end in machine.inputs.values()):
            return f"{machine.subtask} still records {machine.cutter.recorder.unfinished()}"
        return ""

    def final_state(self) -> bytes:
        """What the node would keep, now. The machine must not be used any more."""
        return self._parts.codec.encode(self._parts.node.snapshotState(0, _NOW))


def _surroundings(run: str, life: Life) -> Surroundings:
    return Surroundings(
        run=run,
        incarnation=life.incarnation,
        codec=Codec(),
        limits=SubtaskLimits(),
        spill_of=lambda _: None,
        logger_of=lambda _: _Silent(),
        chance_of=lambda subtask: Random(str(subtask)),
        stopwatch=lambda: _NOW,
    )


def _restored(life: Life) -> tuple[RestoredChannels, memoryview | None]:
    frames: dict[ChannelId, tuple[Frame, ...]] = {}
    for handle in life.start.channel_parts:
        assert handle.channel is not None and handle.inline is not None
        stored = decode_frames(handle, decode_part(handle, handle.inline))
        frames[handle.channel] = (*frames.get(handle.channel, ()), *stored)
    state = life.start.state
    body = None if state is None else decode_part(state, state.inline or b"")
    return RestoredChannels(dict(life.start.processed), frames, dict(life.start.sent)), body


def _take(end: SendingEnd) -> Frame | Marker:
    if end.has_open_frame and not end.has_marker:
        end.seal()
    item = end.take()
    assert item is not None
    return item


def _is_inside_a_frame(end: ReceivingEnd) -> bool:
    head = end.head
    return isinstance(head, Frame) and head.first <= end.processed
