"""Run one subtask: the user's node, its channel ends, its recorder. Only this machine calls the node's hooks.

The machine has no I/O and no clock. A host (a worker, the simulator, the explorer) passes control events to `step` and
frames to `deliver`, calls `run` for turns, and takes the reports. Time is a parameter of the calls. The calls of a
host, in order, are therefore a log that replays. After an error escapes, the host may call only `close`.

::

    CREATED ──restore──> RESTORED ──start──> RUNNING ──last input ended──> ENDED (still cuts, PROTOCOL 5.2)
"""

from __future__ import annotations

from typing import assert_never

from cutline.snapshot.channel.channel_receiver import ChannelReceiver
from cutline.snapshot.channel.channel_sender import ChannelSender
from cutline.snapshot.channel.frame import Buffer, Marker
from cutline.snapshot.channel.object_frame import AnyFrame
from cutline.snapshot.error_text import describe
from cutline.snapshot.errors import NodeError, SnapshotAborted
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.node import Sink, defines
from cutline.snapshot.stored.certificate import SubtaskStatus
from cutline.snapshot.subtask.acts import Acts, Status
from cutline.snapshot.subtask.components import SubtaskComponents
from cutline.snapshot.subtask.events import (
    AlignmentTimedOut,
    ClockAnnounced,
    ClockAsked,
    ComponentEnded,
    ControlEvent,
    MarkerArrived,
    MinSnapshotIdRaised,
    RecordRequested,
    RecordStored,
    RequestAnswered,
    SnapshotPublished,
    SnapshotRequested,
    Started,
)
from cutline.snapshot.subtask.input_ends import InputEnds
from cutline.snapshot.subtask.reports import ClockGiven, PublicationHandled, Replayed, Report, SnapshotFailed
from cutline.snapshot.subtask.restored import Restored
from cutline.snapshot.subtask.snapshotter import CutSettings, Snapshotter
from cutline.snapshot.subtask.state_capture import StateCapture
from cutline.snapshot.subtask.state_restore import StateRestore
from cutline.snapshot.subtask.strand import Change, ChangeCaptured, Strand, SubtaskCut
from cutline.snapshot.subtask.turns import LiveTurns, Turns
from cutline.snapshot.subtask.two_phase import PreparedOutput
from cutline.snapshot.subtask.user_code import calling


class SubtaskMachine:
    """Run one subtask.

    Parameters
    ----------
    components : SubtaskComponents
        The node and the components around the node, made by `snapshot.assembly` from the compiled graph.
    """

    def __init__(self, components: SubtaskComponents) -> None:
        self.components = components
        self.core = core = components.core
        self.context = core.context
        self.subtask: Subtask = core.subtask
        self.inputs: dict[ChannelId, ChannelReceiver] = {c.end.channel: c.end for c in core.inputs}
        self.outputs: dict[ChannelId, ChannelSender] = core.outputs
        self.backpressure = core.backpressure
        self.node = core.node
        self.snapshotter = Snapshotter(
            core.recorder, self.inputs, self.outputs, self._capture, CutSettings.of(core), components.assigner
        )
        ends = InputEnds(core.subtask, core.topology)
        self._acts = Acts(core, self.inputs, ends, self.snapshotter, components.listeners)
        self._turns: Turns = LiveTurns(self._acts)
        self._prepared = PreparedOutput(core.node, core.codec, core.observer)
        self._state = StateCapture(components, self._acts, self._prepared)
        #: seconds by which the restored `Context.now` is ahead of this host's clock
        self._lead = 0.0
        self._is_fresh = True
        core.bind_requests(self._acts.ask_snapshot)
        if self.core.observer is not None:
            self.core.observer.attached(self.node, self.inputs, self.outputs)

    @property
    def status(self) -> Status:
        """The phase of the subtask."""
        return self._acts.status

    # ---------------------------------------------------------------- restore, start, close

    def restore(self, restored: Restored, now: float) -> None:
        """Restore the node from a snapshot and open the node. Without a state, the node starts fresh.

        Commit again the prepared output that the snapshot holds (PROTOCOL 8).

        Parameters
        ----------
        restored : Restored
        now : float
            Seconds since the epoch.

        Raises
        ------
        NodeError
            if a hook fails.
        RestoreRefused
            if this machine cannot read the state.
        """
        assert self.status is Status.CREATED
        self._turns.tick(now)
        self.components.log.restoring(restored)
        if self.core.observer is not None:
            self.core.observer.restoring()
        state = StateRestore(self.core)
        ended = restored.state is not None and self._restore_state(state, restored, now)
        migrated = state.restore_rows(restored)
        self._open(ended=ended)
        if (base := self.core.keyed.regrouped or migrated) is not None:
            self._changed(Strand.ROWS, None, base)
        if self._prepared.is_two_phase:
            with calling("commit", self.subtask):
                self._prepared.commit_all()
        self._is_fresh = restored.state is None
        self._acts.status = Status.ENDED if ended else Status.RESTORED
        self._turns = self.components.repeated_turns(self._acts) or LiveTurns(self._acts, self._lead)
        if self.core.observer is not None:
            self.core.observer.restored()

    def _restore_state(self, state: StateRestore, restored: Restored, now: float) -> bool:
        """Restore the state part and the node's own state. Return whether the subtask had ended."""
        assert restored.state is not None
        read = state.read(restored.state)
        kept = read.kept
        self._state.apply(kept)
        if kept.log_run is not None:
            self.components.log.go_on(kept.log_run, restored.snapshot_id)
        self._lead = max(0.0, kept.now - now)
        self._acts.exhausted = kept.exhausted
        state.restore_own(read, restored)
        return kept.ended

    def _open(self, *, ended: bool) -> None:
        core = self.core
        if ended:
            core.context.drop_messages()
        else:
            core.context.send_directly(core.codec, core.shapes)
        if self.core.observer is not None:
            self.core.observer.hook_begins("open")
        try:
            with calling("open", self.subtask):
                self.node.open(core.context)
        except NodeError as error:
            raise core.keyed.refusal or error from None  # another start would meet the refusal again
        core.keyed.opened()
        self.components.log.opened()
        if ended:
            core.context.accept_messages()
        if self.core.observer is not None:
            self.core.observer.hook_ended("open")

    def _start(self) -> None:
        """Discard output prepared after the snapshot, then call `onStart` on a fresh node (PROTOCOL 5.4, 8)."""
        assert self.status in (Status.RESTORED, Status.ENDED)
        context = self.core.context
        # Discard only after every subtask has committed its output again, because parallel sinks may share a place.
        if isinstance(self.node, Sink) and defines(self.node, "discardUncommitted"):
            with calling("discardUncommitted", self.subtask):
                self.node.discardUncommitted(context)
        if self.status is not Status.ENDED:
            if self._is_fresh:
                self.components.log.started()
            if self._is_fresh and defines(self.node, "onStart"):
                with calling("onStart", self.subtask):
                    self.node.onStart(context)
            self._acts.status = Status.RUNNING
            self._acts.end_if_over()
        self._turns.begin()

    def close(self) -> str | None:
        """Call the node's `close`. Return an error as text, or None. `close` never raises."""
        self.core.context.silence("close")
        try:
            try:
                self.node.close()
            finally:
                self.core.keyed.close()
        except BaseException as error:  # noqa: BLE001  # because user code may raise anything
            return f"close of {self.subtask}: {describe(error)}"
        return None

    # ---------------------------------------------------------------- frames

    def deliver(self, channel: ChannelId, frame: AnyFrame) -> None:
        """Queue a frame of a link. Raise ChannelError on a gap or a repeat."""
        end = self.inputs[channel]
        end.deliver(frame)
        self._turns.arrived(channel)
        if end.recorded_bytes:
            self.snapshotter.limit_recordings()

    # ---------------------------------------------------------------- control

    def step(self, event: ControlEvent, now: float) -> None:
        """Process one control event. The results are in `take_reports` and in the output buffers.

        Parameters
        ----------
        event : ControlEvent
            A marker or a snapshot request must not come before `Started` (PROTOCOL 5.4, start).
        now : float
            Seconds since the epoch, for `Context.now` of sending hooks. A cut has the time of the last event before it.

        Raises
        ------
        NodeError
            if a hook fails.
        ChannelError
            if messages before a marker are missing.
        """
        self._state.step_time = now + self._lead
        self.core.context.hooks.calls += 1
        if not self._turns.takes(event):
            return
        match event:
            case MarkerArrived(channel, marker):
                self._marker_arrived(channel, marker)
            case SnapshotRequested():
                assert self.status in (Status.RUNNING, Status.ENDED)  # PROTOCOL 5.4: onStart comes first
                self.snapshotter.step(event)
                if self._acts.has_asked:
                    self._acts.answer_request()  # the snapshot is the answer
            case MinSnapshotIdRaised(min_snapshot_id):
                self.snapshotter.step(event)
                self.components.assigner.settle(min_snapshot_id)
            case AlignmentTimedOut():
                self.snapshotter.step(event)
            case RequestAnswered():
                if self._acts.has_asked:
                    self._acts.answer_request()
            case SnapshotPublished(snapshot_id):
                self._turns.tick(now)
                self._published(snapshot_id)
            case RecordRequested(number):
                self._record_alone(number)
            case RecordStored():
                assert self.components.recording is not None
                self.components.recording.stored()
            case ComponentEnded():
                self._turns.tick(now)
                self._end_component()
            case ClockAsked(snapshot_id):
                seen, has_ended = self.components.assigner.ask(snapshot_id), self.status is Status.ENDED
                self._report(ClockGiven(snapshot_id, self.subtask, seen, has_ended))
            case ClockAnnounced(snapshot_id, clock):
                self.components.assigner.announce(snapshot_id, clock)
            case Started():
                self._turns.tick(now)
                self._start()
                self._go_on()
            case _:
                assert_never(event)

    def _marker_arrived(self, channel: ChannelId, marker: Marker) -> None:
        """Process a marker immediately, not after the waiting data (PROTOCOL 1.2, receiver)."""
        assert self.status in (Status.RUNNING, Status.ENDED)  # PROTOCOL 5.4: onStart comes first
        if self.core.observer is not None:
            self.core.observer.marker_arrived(channel, marker)
        self.inputs[channel].deliver_marker(marker)
        if marker.aligned:
            self._turns.arrived(channel)
        self.snapshotter.step(MarkerArrived(channel, marker))

    def _record_alone(self, number: int) -> None:
        """Capture a record of this subtask (PROTOCOL 14.1, one record, one write)."""
        assert self.components.recording is not None
        try:
            self._report(self.components.recording.record(number, self._capture))
        except SnapshotAborted as error:
            self._report(SnapshotFailed(number, self.subtask, str(error)))

    def _published(self, snapshot_id: int) -> None:
        """Commit the output prepared up to the snapshot, in order. Then call `onPublished`."""
        with calling("commit", self.subtask):
            self._prepared.commit_through(snapshot_id)
        for each in self._acts.listeners:
            each.published(snapshot_id)
        if defines(self.node, "onPublished"):
            with calling("onPublished", self.subtask):
                self.node.onPublished(snapshot_id)
        self._report(PublicationHandled(snapshot_id, self.subtask))
        if self.core.observer is not None:
            self.core.observer.published(snapshot_id)

    def _end_component(self) -> None:
        if self.status is not Status.RUNNING:
            return
        ends = self._acts.ends
        self.core.context.close_outputs(ends.inner_outputs)
        for channel in ends.open_inner_inputs():  # empty if a new coordinator repeats the message
            self._acts.input_ended(channel)
        self._acts.end_if_over()

    # ---------------------------------------------------------------- turns

    @property
    def runnable(self) -> bool:
        """Whether a turn would now handle a message, pass a marker of an ended subtask on (PROTOCOL 5.2), or free rows.

        Rows of a tier can be what closes `backpressure`, so they are freed also while it is closed.
        """
        if self.status not in (Status.RUNNING, Status.ENDED):
            return False
        return self._turns.is_runnable or (self.core.keyed.needs_sweep and self.core.keyed.is_due)

    def next_wake(self) -> float | None:
        """Return the time of the next timer or poll that is allowed now, which may be in the past. None without any."""
        return self._turns.wake_at

    @property
    def idle(self) -> bool:
        """Whether this subtask does nothing until a message arrives."""
        return self._turns.is_idle

    def run(self, now: float, limit: int) -> int:
        """Run one turn: due timers, then messages of the ready inputs in their order, then polls.

        Parameters
        ----------
        now : float
            Seconds since the epoch.
        limit : int
            Messages to handle at most. One batch may exceed the limit.

        Returns
        -------
        int
            Handled messages, timers and polls. 0 if there was nothing to do.
        """
        self._turns.tick(now)
        done = self._turns.run(limit)
        self._go_on()
        self.sweep()
        return done

    def sweep(self) -> None:
        """Free rows that are not needed, and report rows that leave memory. Part of `run`."""
        keyed = self.core.keyed
        if keyed.needs_sweep and self.status in (Status.RUNNING, Status.ENDED):
            keyed.sweep()
            if (rows := keyed.take_sealed(self.core.context.now)) is not None:
                self._changed(Strand.ROWS, None, rows)

    def _go_on(self) -> None:
        """Go on with new events when repeated turns are over. `Context.now` does not go back."""
        over = self._turns.over
        if over is None:
            return
        self._lead = max(0.0, self.core.context.now - over.now)
        self._turns = LiveTurns(self._acts, self._lead)
        self._report(Replayed(self.subtask))
        for event in over.waiting:
            self.step(event, over.now)

    # ---------------------------------------------------------------- one event at a time

    def handle_next(self, channel: ChannelId, now: float, limit: int = 1) -> int:
        """Handle up to `limit` messages of one channel, for a host that chooses the order itself."""
        self._turns.tick(now)
        if self.backpressure.closed:
            return 0
        handled = self._turns.handle(channel, limit)
        self._go_on()
        return handled

    def poll_next(self, now: float) -> None:
        """Poll the source once and do nothing else. A host that chooses the order itself calls this method."""
        self._turns.tick(now)
        self._turns.poll()
        self._go_on()

    def fire_next(self, now: float) -> None:
        """Fire the next due timer and do nothing else. A host that chooses the order itself calls this method."""
        self._turns.tick(now)
        self._turns.fire()
        self._go_on()

    def inject(self, message: object, now: float) -> None:
        """Pass a message that came on no channel to the node."""
        self._turns.tick(now)
        self.core.context.sender = None
        self.core.context.hooks.calls += 1
        hook = "onMessages" if defines(self.node, "onMessages") else "onMessage"
        with calling(hook, self.subtask):
            getattr(self.node, hook)([message] if hook == "onMessages" else message, self.core.context)

    def may_handle(self, channel: ChannelId) -> bool:
        """Return whether the next message of an input may be handled now."""
        return self._turns.may_handle(channel)

    def next_poll_at(self) -> float | None:
        """Return the time in seconds when the source may be polled, or None while no poll is allowed."""
        return self._turns.poll_at

    def next_timer_at(self) -> float | None:
        """Return the time in seconds when the next timer fires, or None."""
        return self._turns.timer_at

    # ---------------------------------------------------------------- reports

    def seal(self) -> None:
        """Close all open frames, because only closed frames can be taken for the links."""
        for end in self.outputs.values():
            if end.has_open_frame:
                end.seal()

    def take_reports(self) -> list[Report]:
        """Return the reports since the last call."""
        reports, self._acts.reports = self._acts.reports, []
        return reports + self.snapshotter.take_reports()

    def validate(self) -> None:
        """Assert every invariant of the subtask. Tests and the simulator call this method."""
        self.snapshotter.recorder.validate()
        for end in self.inputs.values():
            end.validate()
        for output in self.outputs.values():
            output.validate()
        assert self.backpressure.closed >= 0

    # ---------------------------------------------------------------- cuts

    def _capture(self, snapshot_id: int) -> tuple[tuple[Buffer, ...], SubtaskStatus]:
        """Call prepareCommit, then snapshotState, then serialise, all before the next event (PROTOCOL 8)."""
        if self.core.observer is not None:
            self.core.observer.cut(snapshot_id)
        if self._prepared.is_two_phase:
            with calling("prepareCommit", self.subtask):
                self._prepared.prepare(snapshot_id)
        content, own = self.core.content(snapshot_id), self.core.own
        try:
            state, status = self._state.capture(snapshot_id, keeps_state=content.state)
        finally:
            if own.has_deltas and content.state:  # a captured delta is stored, whatever becomes of the snapshot
                self._changed(Strand.OWN, snapshot_id, own.take_change())
        if self.core.observer is not None:
            self.core.observer.captured(snapshot_id, state)
        # Last, because whatever fails before must leave what has changed to the next cut.
        for each in self.components.strands:
            if each.holds(content):
                self._changed(each.strand, snapshot_id, each.capture(SubtaskCut(snapshot_id, content)))
        if not self.inputs:
            self.components.assigner.begin(snapshot_id)
        return state, status

    def _changed(self, strand: Strand, snapshot_id: int | None, change: Change) -> None:
        self._report(ChangeCaptured(self.subtask, strand, snapshot_id, change))

    def _report(self, report: Report) -> None:
        self._acts.reports.append(report)
