"""Run one subtask: the user's node, its channel ends, its recorder. Only this machine calls the node's hooks.

The machine has no I/O and no clock. A host (a worker, the simulator, the explorer) passes control events to `step` and
frames to `deliver`, calls `run` for turns, and takes the reports. Time is a parameter of the calls. The calls of a
host, in order, are therefore a log that replays. After an error escapes, the host may call only `close`.

::

    CREATED ──restore──> RESTORED ──start──> RUNNING ──last input ended──> ENDED (still cuts, PROTOCOL 5.2)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from functools import partial
from typing import Any, assert_never

from cutline.snapshot.channel.channel_receiver import ChannelReceiver
from cutline.snapshot.channel.channel_sender import ChannelSender
from cutline.snapshot.channel.frame import Buffer, Frame, Marker, PayloadKind
from cutline.snapshot.channel.object_frame import AnyFrame
from cutline.snapshot.culprit import FailedTimer
from cutline.snapshot.error_text import describe, headline, shown
from cutline.snapshot.errors import ChannelError, NodeError, RestoreRefused, SnapshotAborted
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.keyed.migration import MigratedRows
from cutline.snapshot.keyed.segment import Segment
from cutline.snapshot.node import END, Sink, defines
from cutline.snapshot.operators.persistent_aggregate import PersistentAggregate
from cutline.snapshot.plan.modes import CutContent
from cutline.snapshot.plan.versions import unmigrated_text
from cutline.snapshot.replayable_source import ReplayableSource
from cutline.snapshot.steps.message_hash import content_hash
from cutline.snapshot.stored.certificate import SubtaskStatus
from cutline.snapshot.stored.node_state import NodeState
from cutline.snapshot.subtask.assembly import SubtaskParts
from cutline.snapshot.subtask.end_of_stream import EndOfStream
from cutline.snapshot.subtask.events import (
    AlignmentTimedOut,
    ClockAnnounced,
    ClockAsked,
    ComponentEnded,
    ControlEvent,
    MarkerArrived,
    MarkerReached,
    MinSnapshotIdRaised,
    RecordRequested,
    RecordStored,
    RequestAnswered,
    SnapshotPublished,
    SnapshotRequested,
    Started,
)
from cutline.snapshot.subtask.independent_recording import source_progress
from cutline.snapshot.subtask.inheritance import Donation, Donors, united
from cutline.snapshot.subtask.input_processor import InputProcessor, ReadyInputs
from cutline.snapshot.subtask.limits import SLICE_POLLS_MAX
from cutline.snapshot.subtask.positions import Positions
from cutline.snapshot.subtask.replaying import ReplayCalls, Replayer
from cutline.snapshot.subtask.reports import (
    ClockGiven,
    PublicationHandled,
    RecordTaken,
    Replayed,
    Report,
    SnapshotAsked,
    SnapshotFailed,
    SubtaskEnded,
    SuspectHandled,
)
from cutline.snapshot.subtask.restored import Restored
from cutline.snapshot.subtask.snapshotter import Snapshotter
from cutline.snapshot.subtask.state_capture import StateCapture
from cutline.snapshot.subtask.stepping import StateHashes, Stepping
from cutline.snapshot.subtask.strand import (
    Change,
    ChangeCaptured,
    DifferenceCaptured,
    RowsCaptured,
    Strand,
    VersionBegun,
)
from cutline.snapshot.subtask.timers import NO_KEY, checked_seconds
from cutline.snapshot.subtask.two_phase import PreparedOutput
from cutline.snapshot.subtask.user_code import calling, refusing

#: seconds; a wait up to this needs no further check, because no sum of such waits leaves the calendar
_USUAL_WAIT_MAX = 86_400.0


class Status(Enum):
    """Phase of a subtask. The module's docstring has the diagram."""

    CREATED = "created"
    RESTORED = "restored"
    RUNNING = "running"
    ENDED = "ended"


class SubtaskMachine:
    """Run one subtask.

    Parameters
    ----------
    parts : SubtaskParts
        The node and the parts around the node, made by `snapshot.subtask.assembly` from the compiled graph.
    """

    def __init__(self, parts: SubtaskParts) -> None:
        self.subtask: Subtask = parts.subtask
        self.status = Status.CREATED
        self.inputs: dict[ChannelId, ChannelReceiver] = {c.end.channel: c.end for c in parts.inputs}
        self.outputs: dict[ChannelId, ChannelSender] = parts.outputs
        self.context = parts.context
        self.backpressure = parts.backpressure
        self.node = parts.node
        self.observer = parts.observer
        self.parts = parts
        self._ready_inputs = ReadyInputs(parts.inputs)
        self._ends = EndOfStream(parts.subtask, parts.topology)
        self.snapshotter = Snapshotter(
            parts.recorder, self.inputs, self.outputs, self._capture, parts.cutting, parts.recording
        )
        self._prepared = PreparedOutput(parts.node, parts.codec, parts.observer)
        self._kept = StateCapture(parts, self._ends, self._prepared)
        self._reports: list[Report] = []
        self._exhausted = not parts.is_source
        self._poll_at = 0.0
        #: the replay of the steps behind the restored state, or None while there is none
        self._replayer: Replayer | None = None
        #: seconds by which the restored `Context.now` is ahead of this host's clock
        self._lead = 0.0
        self._asked = False
        parts.bind_requests(self._ask_snapshot)
        if self.observer is not None:
            self.observer.attached(self.node, self.inputs, self.outputs)

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
        self._tick(now)
        state = restored.state
        if self.parts.steps is not None and restored.steps:
            self.parts.steps.restore(restored.steps, restored.base)
            self._replayer = self._make_replayer(self.parts.steps)
            if state is not None:
                self.context.now = 0.0  # the state has the time, and rows of that time have not expired
        elif self.parts.steps is not None and state is None:
            self.parts.steps.begin()
        if self.observer is not None:
            self.observer.restoring()
        ended = False
        if state is not None:
            donations: list[Donation] = []
            kept = self._united(state, donations) if isinstance(state, Donors) else self._decoded(state)
            ended = kept.ended
            self._kept.apply(kept)
            if self.parts.steps is not None and kept.log_run is not None:
                self.parts.steps.go_on(kept.log_run, restored.snapshot_id)
            self._lead = max(0.0, kept.now - now)
            self._exhausted = kept.exhausted
            kept_states = [each.state for each in donations] if donations else [kept.state]
            has_changes = bool(restored.own) or any(each.changes for each in donations)
            self.parts.own.check_version(has_state=has_changes or any(each is not None for each in kept_states))
            with refusing(self.subtask), calling("restoreState", self.subtask):
                if isinstance(state, Donors):
                    self.parts.own.inherit(donations, restored.snapshot_id)
                else:
                    self.parts.own.restore(
                        kept.state, restored.own, restored.snapshot_id, needs_base=restored.needs_base
                    )
        migrated = self._migrated_rows(restored.rows)
        kept_rows = restored.rows if migrated is None else (migrated.segment,)
        self.parts.keyed.restore(
            kept_rows, self.context.now, is_rescaled=isinstance(state, Donors), version=restored.version,
            lists_rows=restored.lists_rows,
        )  # fmt: skip
        self._open(ended=ended)
        if (base := self.parts.keyed.regrouped or migrated) is not None:
            self._changed(Strand.ROWS, None, base)
        if self._prepared.is_two_phase:
            with calling("commit", self.subtask):
                self._prepared.commit_all()
        self._is_fresh = state is None
        self.status = Status.ENDED if ended else Status.RESTORED
        if self.observer is not None:
            self.observer.restored()

    def _migrated_rows(self, rows: Sequence[Segment]) -> MigratedRows | None:
        """Return rows of the node's `stateVersion`, or None where all rows have it."""
        version = self.node.stateVersion
        if self.parts.restored.state_version >= version:
            return None  # without a look at the rows, because they may exceed memory
        older = self.parts.keyed.older_version(rows)
        if older is None:
            return None
        if not defines(self.node, "migrateKeyedState"):
            raise RestoreRefused(unmigrated_text(str(self.subtask), older, version, "migrateKeyedState"))
        with calling("migrateKeyedState", self.subtask):
            return self.parts.keyed.migrated(rows, self.node.migrateKeyedState)

    def _united(self, donors: Donors, donations: list[Donation]) -> NodeState:
        states = [self._decoded(donor.state) for donor in donors.donors]
        donations += [Donation(each.state, donor.own) for each, donor in zip(states, donors.donors, strict=True)]
        self.context.seed_random(donors.seed)
        return united(donors, states)

    def _decoded(self, state: bytes | memoryview) -> NodeState:
        try:
            return NodeState.decode(state, self.parts.codec)
        except RestoreRefused as error:
            raise RestoreRefused(f"{self.subtask}: {error}") from error
        except BaseException as error:  # because unpickling runs the user's code, which may raise anything
            raise RestoreRefused(f"{self.subtask}: a stored state cannot be read here: {headline(error)}") from error

    def _start(self) -> None:
        """Discard output prepared after the snapshot, then call `onStart` on a fresh node (PROTOCOL 5.4, 8)."""
        assert self.status in (Status.RESTORED, Status.ENDED)
        # Discard only after every subtask has committed its output again, because parallel sinks may share a place.
        if isinstance(self.node, Sink) and defines(self.node, "discardUncommitted"):
            with calling("discardUncommitted", self.subtask):
                self.node.discardUncommitted(self.context)
        if self.status is not Status.ENDED:
            if self.parts.steps is not None and self._is_fresh:
                self.parts.steps.start()
            if self._is_fresh and defines(self.node, "onStart"):
                with calling("onStart", self.subtask):
                    self.node.onStart(self.context)
            self.status = Status.RUNNING
            self._end_if_over()
        if self._replayer is not None:
            self._replayer.settle()

    def close(self) -> str | None:
        """Call the node's `close`. Return an error as text, or None. `close` never raises."""
        self.context.silence("close")
        try:
            try:
                self.node.close()
            finally:
                self.parts.keyed.close()
        except BaseException as error:  # noqa: BLE001  # because user code may raise anything
            return f"close of {self.subtask}: {describe(error)}"
        return None

    # ---------------------------------------------------------------- frames

    def deliver(self, channel: ChannelId, frame: AnyFrame) -> None:
        """Queue a frame of a link. Raise ChannelError on a gap or a repeat."""
        end = self.inputs[channel]
        end.deliver(frame)
        self._ready_inputs.mark_ready(channel)
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
            if messages ahead of a marker are missing.
        """
        self._kept.step_time = now + self._lead
        self.context.hooks.calls += 1
        match event:
            case MarkerArrived(channel, marker):
                self._marker_arrived(channel, marker)
            case SnapshotRequested() | SnapshotPublished() if self._replayer is not None:
                self._replayer.waiting.append(event)
            case SnapshotRequested():
                assert self.status in (Status.RUNNING, Status.ENDED)  # PROTOCOL 5.4: onStart comes first
                self.snapshotter.step(event)
                self._answer_request()  # the snapshot is the answer
            case MinSnapshotIdRaised(min_snapshot_id):
                self.snapshotter.step(event)
                if self.parts.division is not None:
                    self.parts.division.settle(min_snapshot_id)
            case AlignmentTimedOut():
                self.snapshotter.step(event)
            case RequestAnswered():
                self._answer_request()
            case SnapshotPublished(snapshot_id):
                self._tick(now)
                if self.parts.division is not None:
                    self.parts.division.published(snapshot_id)
                self._published(snapshot_id)
            case RecordRequested(number):
                self._record_alone(number)
            case RecordStored():
                assert self.parts.recording is not None
                self.parts.recording.stored()
            case ComponentEnded():
                self._tick(now)
                self._end_component()
            case ClockAsked(snapshot_id):
                assert isinstance(self.parts.division, Positions)
                seen, has_ended = self.parts.division.ask(snapshot_id), self.status is Status.ENDED
                self._reports.append(ClockGiven(snapshot_id, self.subtask, seen, has_ended))
            case ClockAnnounced(snapshot_id, clock):
                assert isinstance(self.parts.division, Positions)
                self.parts.division.announce(snapshot_id, clock)
            case Started():
                self._tick(now)
                self._start()
            case _:
                assert_never(event)

    def _marker_arrived(self, channel: ChannelId, marker: Marker) -> None:
        """Process a marker immediately, not behind the waiting data (PROTOCOL 1.2, receiver)."""
        assert self.status in (Status.RUNNING, Status.ENDED)  # PROTOCOL 5.4: onStart comes first
        if self.observer is not None:
            self.observer.marker_arrived(channel, marker)
        self.inputs[channel].deliver_marker(marker)
        if marker.aligned:
            self._ready_inputs.mark_ready(channel)
        self.snapshotter.step(MarkerArrived(channel, marker))

    def _answer_request(self) -> None:
        if self._asked:
            self._asked = False
            self.backpressure.closed -= 1

    def _record_alone(self, number: int) -> None:
        """Capture a record of this subtask (PROTOCOL 14.1, one record, one write)."""
        assert self.parts.recording is not None
        try:
            taken = self.parts.recording.taken(number, self._capture)
            self._reports.append(RecordTaken(taken, source_progress(self.node, taken)))
        except SnapshotAborted as error:
            self._reports.append(SnapshotFailed(number, self.subtask, str(error)))

    def _published(self, snapshot_id: int) -> None:
        """Commit the output prepared up to the snapshot, in order. Then call `onPublished`."""
        with calling("commit", self.subtask):
            self._prepared.commit_through(snapshot_id)
        if defines(self.node, "onPublished"):
            if self.parts.steps is not None and self.parts.steps.is_logging:
                self.parts.steps.log.published(snapshot_id, self.context.now)
            with calling("onPublished", self.subtask):
                self.node.onPublished(snapshot_id)
        self._reports.append(PublicationHandled(snapshot_id, self.subtask))
        if self.observer is not None:
            self.observer.published(snapshot_id)

    def _end_component(self) -> None:
        if self.status is not Status.RUNNING:
            return
        self.context.close_outputs(self._ends.inner_outputs)
        for channel in self._ends.open_inner_inputs():  # empty if a new coordinator repeats the message
            self._input_ended(channel)
        self._end_if_over()

    # ---------------------------------------------------------------- turns

    @property
    def runnable(self) -> bool:
        """Whether a turn would now handle a message, pass a marker of an ended subtask on (PROTOCOL 5.2), or free rows.

        Rows of a tier can be what closes `backpressure`, so they are freed also while it is closed.
        """
        if self.status not in (Status.RUNNING, Status.ENDED):
            return False
        if not self.backpressure.closed and (
            any(self._ready()) if self._replayer is None else self._replayer.is_possible or self._replayer.needs_room
        ):
            return True
        return self.parts.keyed.needs_sweep and self.parts.keyed.is_due

    def next_wake(self) -> float | None:
        """Return the time of the next timer or poll that is allowed now, which may be in the past. None without any.

        A replay waits for no time, so it is `runnable` or waits for messages.
        """
        if self.status is not Status.RUNNING or self._replayer is not None or self.backpressure.closed:
            return None
        due = self.parts.timers.next_at()
        may_poll = not (self._exhausted or (self._ends.inner_output_channels and self._spilling))
        if may_poll and (due is None or self._poll_at < due):
            due = self._poll_at
        return None if due is None else due - self._lead

    @property
    def idle(self) -> bool:
        """Whether this subtask does nothing until a message arrives."""
        if self._replayer is not None:
            return False
        if self.status is Status.ENDED:
            return True
        return self._exhausted and self.parts.timers.next_at() is None and not self._ready_inputs

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
        self._tick(now)
        if self._replayer is not None:
            done = self._repeat(limit)
        elif self.status is Status.ENDED:
            done = self._handle_messages(limit)  # only markers can wait here (PROTOCOL 5.2, finished subtasks)
        else:
            done = self._fire_timers(limit)
            done += self._handle_messages(limit - done)
            done += self._poll(limit)
        self.sweep()
        return done

    def sweep(self) -> None:
        """Free rows that are not needed, and report rows that leave memory. Part of `run`."""
        if self.parts.keyed.needs_sweep and self.status in (Status.RUNNING, Status.ENDED):
            self.parts.keyed.sweep()
            if (rows := self.parts.keyed.take_sealed(self.context.now)) is not None:
                self._changed(Strand.ROWS, None, rows)

    def handle_next(self, channel: ChannelId, now: float, limit: int = 1) -> int:
        """Handle up to `limit` messages of one channel, for a host that chooses the order itself."""
        self._tick(now)
        if self.backpressure.closed:
            return 0
        if self._replayer is not None:
            return self._replayer.repeat(limit)
        chosen = self._ready_inputs.get(channel)
        if chosen is None or chosen.end.held or not self._may_take(chosen.end):
            return 0
        handled = self._take_head(chosen, limit)
        self._ready_inputs.requeue(chosen)
        return handled

    # ---------------------------------------------------------------- one event at a time

    def poll_next(self, now: float) -> None:
        """Poll the source once and do nothing else. A host that chooses the order itself calls this method."""
        self._tick(now)
        if self._replayer is not None:
            self._replayer.repeat(1)
        else:
            self._poll(1)

    def fire_next(self, now: float) -> None:
        """Fire the next due timer and do nothing else. A host that chooses the order itself calls this method."""
        self._tick(now)
        if self._replayer is not None:
            self._replayer.repeat(1)
        else:
            self._fire_timers(1)

    def inject(self, message: object, now: float) -> None:
        """Pass a message that came on no channel to the node."""
        self._tick(now)
        self.context.sender = None
        self.context.hooks.calls += 1
        hook = "onMessages" if defines(self.node, "onMessages") else "onMessage"
        with calling(hook, self.subtask):
            getattr(self.node, hook)([message] if hook == "onMessages" else message, self.context)

    def may_handle(self, channel: ChannelId) -> bool:
        """Return whether the next message of an input may be handled now."""
        if self._replayer is not None:
            return self._replayer.channel == channel and not self.backpressure.closed
        end = self.inputs[channel]
        return end.ready and not self.backpressure.closed and self._may_take(end)

    def next_poll_at(self) -> float | None:
        """Return the time in seconds when the source may be polled, or None while no poll is allowed."""
        if self._replayer is not None:
            return 0.0 if self._replayer.is_poll and not self.backpressure.closed else None
        if self._exhausted or self.status is not Status.RUNNING or self.backpressure.closed or self._spilling:
            return None
        return self._poll_at - self._lead

    def next_timer_at(self) -> float | None:
        """Return the time in seconds when the next timer fires, or None."""
        if self._replayer is not None:
            return 0.0 if self._replayer.is_timer and not self.backpressure.closed else None
        at = self.parts.timers.next_at()
        return None if at is None or self.status is not Status.RUNNING or self.backpressure.closed else at - self._lead

    # ---------------------------------------------------------------- reports

    def seal(self) -> None:
        """Close all open frames, because only closed frames can be taken for the links."""
        for end in self.outputs.values():
            if end.has_open_frame:
                end.seal()

    def state_hashes(self, snapshot_id: int) -> StateHashes | None:
        """Return what a cut of the snapshot would log of the state now. See `StateCapture.hashes`."""
        return self._kept.hashes(snapshot_id)

    def take_reports(self) -> list[Report]:
        """Return the reports since the last call."""
        reports, self._reports = self._reports, []
        return reports + self.snapshotter.take_reports()

    def validate(self) -> None:
        """Assert every invariant of the subtask. Tests and the simulator call this method."""
        self.snapshotter.recorder.validate()
        for end in self.inputs.values():
            end.validate()
        for output in self.outputs.values():
            output.validate()
        assert self.backpressure.closed >= 0

    # ---------------------------------------------------------------- events of the node

    def _fire_timers(self, limit: int) -> int:
        done = 0
        while (
            not self.backpressure.closed
            and done < limit
            and (due := self.parts.timers.pop_due(self.context.now)) is not None
        ):
            self._fire(*due)
            done += 1
        if done:
            self._end_if_over()
        return done

    def _fire(self, at: float, key: Any) -> None:
        """Call `onTimer` for a timer that is removed. Its key may be `NO_KEY`."""
        self.context.has_key = key is not NO_KEY
        self.context.key = key if self.context.has_key else None
        self.context.sender = None
        self.context.hooks.calls += 1
        if self.parts.steps is not None and self.parts.steps.is_logging:
            self.parts.steps.fired(at, key, has_key=self.context.has_key)
        if self.observer is not None:
            self.observer.hook_begins("onTimer")
        with calling("onTimer", self.subtask, partial(self._failed_timer, at, key)):
            self.node.onTimer(at, self.context)
        suspects = self.parts.suspected_timers
        if suspects and (timer := self._failed_timer(at, key)) in suspects:
            suspects.remove(timer)
            self._reports.append(SuspectHandled(timer))
        if self.observer is not None:
            self.observer.hook_ended("onTimer")
        self.context.key, self.context.has_key = None, False

    def _failed_timer(self, at: float, key: Any) -> FailedTimer:
        if key is NO_KEY:
            return FailedTimer(self.subtask, "", b"", at)
        return FailedTimer(self.subtask, shown(key), content_hash(key, self.parts.codec), at)

    def _handle_messages(self, limit: int) -> int:
        done = 0
        for channel in self._ready_inputs:
            if self.backpressure.closed or done >= limit:
                break
            while channel.end.ready and not self.backpressure.closed and done < limit and self._may_take(channel.end):
                done += self._take_head(channel, limit - done)
            self._ready_inputs.requeue(channel)
        return done

    def _take_head(self, channel: InputProcessor, limit: int) -> int:
        """Handle messages of the head frame of a channel, or the end of its stream, or a marker."""
        head = channel.end.head
        assert head is not None
        division = self.parts.division
        if isinstance(head, Marker):
            channel.end.pass_marker()
            if division is not None:
                division.marker_came(head.snapshot_id, is_final=head.is_final)
            self.snapshotter.step(MarkerReached(channel.end.channel, head.snapshot_id))
            return 0
        if isinstance(head, Frame) and head.kind is PayloadKind.END:
            if self.observer is not None:
                self.observer.end_received(channel.end.channel)
            if division is not None:
                division.input_ended(channel.end, head)
            channel.end.advance(1)
            if self.parts.steps is not None:
                self.parts.steps.took(channel.end.channel, 1, together=False)
            self._input_ended(channel.end.channel)
            self._end_if_over()
            return 1
        if division is not None:
            limit = min(limit, division.enter(channel.end, head))
        handled = channel.handle(head, limit)
        if channel.isolation is not None:
            self._reports += map(SuspectHandled, channel.isolation.take_handled())
        if division is not None:
            division.handled(channel.end.channel, handled)
        if self.parts.steps is not None:
            self.parts.steps.took(channel.end.channel, handled, together=channel.takes_together(head))
        self.context.key, self.context.has_key = None, False
        self.context.sender = None
        if self.parts.gate is not None:
            self.parts.gate.check()
            if self.parts.gate.needs_snapshot:
                self._ask_snapshot()
        return handled

    def _poll(self, limit: int) -> int:
        done, most = 0, min(limit, SLICE_POLLS_MAX)
        context = self.context
        while not self._exhausted and not self.backpressure.closed and self._poll_at <= context.now and done < most:
            if self._spilling:
                break
            if self.observer is not None:
                self.observer.hook_begins("poll")
            context.hooks.calls += 1
            with calling("poll", self.subtask):
                wait = self.node.poll(context)  # type: ignore[attr-defined]  # only sources are not exhausted
            done += 1
            if self.parts.division is not None and self.parts.division.needs_snapshot:
                self._ask_snapshot()
            if self.parts.steps is not None:
                self._log_poll(wait)
            if wait is END:
                self._exhaust()
            elif type(wait) is float and 0.0 <= wait <= _USUAL_WAIT_MAX:
                self._poll_at = context.now + wait
            elif wait is not None:
                with calling("poll", self.subtask):
                    self._poll_at = checked_seconds(wait, since=context.now)
            if self.observer is not None:
                self.observer.hook_ended("poll")
        return done

    def _log_poll(self, wait: object) -> None:
        assert self.parts.steps is not None and isinstance(self.node, ReplayableSource)
        if self.node.last_read is not None:
            self.parts.steps.read(self.node.last_read)
        if wait is END:
            self.parts.steps.log.exhausted(self.context.now)

    def _exhaust(self) -> None:
        """Note that the source has returned END."""
        self._exhausted = True
        self._end_if_over()

    # ---------------------------------------------------------------- replay

    def _make_replayer(self, steps: Stepping) -> Replayer:
        calls = ReplayCalls(
            self._take_head, self._fire, self._remove_timer, self._exhaust, self._end_if_over, self._note_end,
            self._kept.hashes, self._end_of_replay,
        )  # fmt: skip
        return Replayer(self.node, self.context, steps, calls)

    def _repeat(self, limit: int) -> int:
        done = 0
        while self._replayer is not None and not self.backpressure.closed and done < limit:
            handled = self._replayer.repeat(limit - done)
            if not handled:
                break
            done += handled
        return done

    def _remove_timer(self, at: float, key: bytes | None) -> Any | None:
        """Remove a timer, and return its key; None without such a timer. `key` is encoded."""
        assert self.parts.steps is not None
        found = NO_KEY if key is None else self.parts.steps.key_of_timer(key)
        if not self.parts.timers.holds(at, found):
            return None
        self.parts.timers.delete(at, found)
        return found

    def _note_end(self, channel: ChannelId) -> None:
        if self.observer is not None:
            self.observer.end_received(channel)

    def _end_of_replay(self) -> None:
        """Go on with new events. `Context.now` does not go back."""
        replayer, self._replayer = self._replayer, None
        assert replayer is not None
        self._lead = max(0.0, self.context.now - replayer.host_now)
        self._ready_inputs = ReadyInputs(self.parts.inputs)
        self._reports.append(Replayed(self.subtask))
        for event in replayer.waiting:
            self.step(event, replayer.host_now)

    def _ready(self) -> Iterator[bool]:
        return (each.end.ready and self._may_take(each.end) for each in self._ready_inputs)

    @property
    def _spilling(self) -> bool:
        return any(self.outputs[channel].buffer.spilling for channel in self._ends.inner_output_channels)

    def _may_take(self, end: ChannelReceiver) -> bool:
        """Refuse messages from outside the cycle while an output buffer inside the cycle spills (PROTOCOL 9.2).

        Refuse messages of a later wave (PROTOCOL 6.11, waves). Markers pass.
        """
        gates = self._ready_inputs.gates
        if gates and not isinstance(end.head, Marker) and not gates.may_take(end):
            return False
        return not self._ends.inner_output_channels or end.channel in self._ends.inner_inputs or not self._spilling

    def _ask_snapshot(self) -> None:
        if not self._asked:
            self._asked = True
            self.backpressure.closed += 1  # no further event until the answer (PROTOCOL 3.1, ids)
            self._reports.append(SnapshotAsked(self.subtask))

    def _input_ended(self, channel: ChannelId) -> None:
        """Mark a channel as ended (PROTOCOL 5.1, end of stream). After the last channel of an edge, call `onEnd`."""
        if self.inputs[channel].ended:
            raise ChannelError(f"{channel}: its end came twice")
        self.inputs[channel].ended = True
        if not self._ends.channel_ended(channel):
            return
        self.context.inputs = self._ends.open_inputs
        if defines(self.node, "onEnd"):
            self.context.sender = channel.source
            self.context.hooks.calls += 1
            with calling("onEnd", self.subtask):
                self.node.onEnd(self.context)
            self.context.sender = None

    def _end_if_over(self) -> None:
        """Send the end of the stream if nothing can happen at this subtask any more."""
        if (
            self.status is not Status.RUNNING
            or not self._exhausted
            or self.parts.timers.next_at() is not None
            or not self._ends.all_ended
        ):
            return
        if self.parts.division is not None:
            self.parts.division.stamp_end()
        for channel, end in self.outputs.items():
            if channel not in self._ends.inner_output_channels:
                end.send_end()
                if self.observer is not None:
                    self.observer.end_sent(channel)
        self.status = Status.ENDED
        self._reports.append(SubtaskEnded(self.subtask))

    def _capture(self, snapshot_id: int) -> tuple[tuple[Buffer, ...], SubtaskStatus]:
        """Call prepareCommit, then snapshotState, then serialise, all before the next event (PROTOCOL 8)."""
        if self.observer is not None:
            self.observer.cut(snapshot_id)
        if self._prepared.is_two_phase:
            with calling("prepareCommit", self.subtask):
                self._prepared.prepare(snapshot_id)
        steps, division = self.parts.steps, self.parts.division
        is_ended = self.status is Status.ENDED and (division is None or division.is_over(snapshot_id))
        is_exhausted = self._exhausted
        if isinstance(division, Positions) and self.parts.is_source:
            is_exhausted = self._exhausted and division.is_final(snapshot_id)
        held = self.parts.content(snapshot_id)
        try:
            state = self._kept.capture(
                snapshot_id, is_exhausted=is_exhausted, is_ended=is_ended, keeps_state=held.state
            )
        finally:
            if self.parts.own.has_deltas and held.state:  # a captured delta is stored, whatever becomes of the snapshot
                self._changed(Strand.OWN, snapshot_id, self.parts.own.take_change())
        if self.observer is not None:
            self.observer.captured(snapshot_id, state)
        status = self._ends.status(
            is_ended,
            passive=is_exhausted,
            has_timers=self.parts.timers.next_at() is not None,
            uncommitted=self._prepared.ids,
            partitions=self.parts.restored.partitions,
            own_state=self._kept.own_state,
        )
        # Last, because whatever fails before must leave the changed rows to the next cut.
        if self.parts.keyed.is_keyed and held.state:
            self._capture_rows(snapshot_id, held)
        if isinstance(self.node, PersistentAggregate):
            bound = snapshot_id if division is None else division.bound(snapshot_id)
            states, size = self.node.take_difference(bound)
            self._changed(Strand.TOTALS, snapshot_id, DifferenceCaptured(states, size))
        if steps is not None:
            step = steps.captured(snapshot_id, self._kept.hashes(snapshot_id), is_base=held.is_base)
            self._changed(Strand.STEPS, snapshot_id, step)
        if division is not None and not self.inputs:
            division.begin(snapshot_id)
        return state, status

    def _capture_rows(self, snapshot_id: int, held: CutContent) -> None:
        keyed, groups = self.parts.keyed, self.context.keyGroups
        rows = keyed.capture(self.context.now)
        if held.rows:
            self._changed(Strand.ROWS, snapshot_id, RowsCaptured(groups, rows))
        if held.version:
            version = VersionBegun(groups, keyed.begin_version(snapshot_id))
            self._changed(Strand.VERSIONS, snapshot_id, version)

    def _changed(self, strand: Strand, snapshot_id: int | None, change: Change) -> None:
        self._reports.append(ChangeCaptured(self.subtask, strand, snapshot_id, change))

    def _tick(self, now: float) -> None:
        if self._replayer is not None:
            self._replayer.host_now = now  # the log has the time of the node
            return
        now += self._lead
        if now > self.context.now:
            self.context.now = now

    def _open(self, *, ended: bool) -> None:
        if ended:
            self.context.drop_messages()
        else:
            self.context.send_directly(self.parts.codec, self.parts.shapes)
        if self.observer is not None:
            self.observer.hook_begins("open")
        try:
            with calling("open", self.subtask):
                self.node.open(self.context)
        except NodeError as error:
            raise self.parts.keyed.refusal or error from None  # another start would meet the refusal again
        self.parts.keyed.opened()
        if self.parts.steps is not None and self.parts.steps.hashes_states:
            self.parts.lost_state.opened()
        if ended:
            self.context.accept_messages()
        if self.observer is not None:
            self.observer.hook_ended("open")
