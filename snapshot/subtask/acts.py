"""Act on one subtask: call the hooks of its node, each between two events. Live and repeated turns share the acts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any

from cutline.snapshot.channel.channel_receiver import ChannelReceiver
from cutline.snapshot.channel.control_frames import StreamEnd, statement_of
from cutline.snapshot.channel.frame import Frame, Marker
from cutline.snapshot.channel.message_hash import content_hash
from cutline.snapshot.channel.object_frame import AnyFrame
from cutline.snapshot.error_text import shown
from cutline.snapshot.errors import ChannelError
from cutline.snapshot.failed_event import FailedTimer
from cutline.snapshot.ids import ChannelId
from cutline.snapshot.node import END, defines
from cutline.snapshot.subtask.core import SubtaskCore
from cutline.snapshot.subtask.events import MarkerReached
from cutline.snapshot.subtask.input_ends import InputEnds
from cutline.snapshot.subtask.input_processor import InputProcessor
from cutline.snapshot.subtask.listener import Listener
from cutline.snapshot.subtask.reports import Report, SnapshotAsked, SubtaskEnded, SuspectHandled
from cutline.snapshot.subtask.snapshotter import Snapshotter
from cutline.snapshot.subtask.timers import NO_KEY
from cutline.snapshot.subtask.user_code import calling


class Status(Enum):
    """Phase of a subtask. The module `machine` has the diagram."""

    CREATED = "created"
    RESTORED = "restored"
    RUNNING = "running"
    ENDED = "ended"


class Acts:
    """The acts of one subtask.

    Parameters
    ----------
    core : SubtaskCore
    inputs : mapping of ChannelId to ChannelReceiver
    ends : InputEnds
    snapshotter : Snapshotter
    listeners : sequence of Listener
    """

    def __init__(
        self,
        core: SubtaskCore,
        inputs: Mapping[ChannelId, ChannelReceiver],
        ends: InputEnds,
        snapshotter: Snapshotter,
        listeners: Sequence[Listener],
    ) -> None:
        self.core = core
        self.ends = ends
        self.inputs = inputs
        self.listeners = tuple(listeners)
        self.status = Status.CREATED
        #: whether there is nothing to poll, or no more
        self.exhausted = not core.is_source
        #: reports to the host since the last turn
        self.reports: list[Report] = []
        #: whether the subtask waits for the answer to its request for a snapshot
        self.has_asked = False
        self._snapshotter = snapshotter

    # ---------------------------------------------------------------- messages and ends

    def take_head(self, channel: InputProcessor, limit: int) -> int:
        """Handle messages of the head frame of an input, or a control frame, or a marker.

        Return the number of messages, at most `limit`. A control frame counts as one message, and a marker as none.
        """
        head = channel.end.head
        assert head is not None
        if isinstance(head, Marker):
            channel.end.pass_marker()
            for each in self.listeners:
                each.marker_reached(head)
            self._snapshotter.step(MarkerReached(channel.end.channel, head.snapshot_id))
            return 0
        if head.is_control:
            return self._take_control(channel, head)
        for each in self.listeners:
            limit = each.slice_begins(channel.end, head, limit)
        handled = channel.handle(head, limit)
        self._slice_handled(channel, head, handled)
        return handled

    def _slice_handled(self, channel: InputProcessor, head: AnyFrame, handled: int) -> None:
        if channel.isolation is not None:
            self.reports += map(SuspectHandled, channel.isolation.take_handled())
        for each in self.listeners:
            each.slice_handled(channel.end.channel, handled, together=channel.takes_together(head))
        context = self.core.context
        context.key, context.has_key = None, False
        context.sender = None
        self._ask_if_needed()

    def _take_control(self, channel: InputProcessor, frame: Frame) -> int:
        """Take a statement, which counts as one message."""
        match statement_of(frame, channel.end.channel):
            case StreamEnd():
                return self._take_end(channel, frame)

    def _take_end(self, channel: InputProcessor, head: Frame) -> int:
        self.note_end(channel.end.channel)
        for each in self.listeners:
            each.input_ended(channel.end, head)
        channel.end.advance(1)
        self.input_ended(channel.end.channel)
        self.end_if_over()
        return 1

    def note_end(self, channel: ChannelId) -> None:
        """Tell the observer of the end of a stream."""
        if self.core.observer is not None:
            self.core.observer.end_received(channel)

    def input_ended(self, channel: ChannelId) -> None:
        """Mark a channel as ended (PROTOCOL 5.1, end of stream). After the last channel of an edge, call `onEnd`."""
        core = self.core
        if self.inputs[channel].ended:
            raise ChannelError(f"{channel}: its end came twice")
        self.inputs[channel].ended = True
        if not self.ends.channel_ended(channel):
            return
        core.context.inputs = self.ends.open_inputs
        if defines(core.node, "onEnd"):
            core.context.sender = channel.source
            core.context.hooks.calls += 1
            with calling("onEnd", core.subtask):
                core.node.onEnd(core.context)
            core.context.sender = None

    def end_if_over(self) -> None:
        """Send the end of the stream if nothing can happen at this subtask any more."""
        core = self.core
        if (
            self.status is not Status.RUNNING
            or not self.exhausted
            or core.timers.next_at() is not None
            or not self.ends.all_ended
        ):
            return
        for each in self.listeners:
            each.stream_ends()
        for channel, end in core.outputs.items():
            if channel not in self.ends.inner_output_channels:
                end.send_end()
                if core.observer is not None:
                    core.observer.end_sent(channel)
        self.status = Status.ENDED
        self.reports.append(SubtaskEnded(core.subtask))

    # ---------------------------------------------------------------- timers and polls

    def fire(self, at: float, key: Any) -> None:
        """Call `onTimer` for a timer that is removed. Its key may be `NO_KEY`."""
        core, context = self.core, self.core.context
        context.has_key = key is not NO_KEY
        context.key = key if context.has_key else None
        context.sender = None
        context.hooks.calls += 1
        for each in self.listeners:
            each.timer_fires(at, key, has_key=context.has_key)
        if core.observer is not None:
            core.observer.hook_begins("onTimer")
        with calling("onTimer", core.subtask, partial(self._failed_timer, at, key)):
            core.node.onTimer(at, context)
        suspects = core.suspected_timers
        if suspects and (timer := self._failed_timer(at, key)) in suspects:
            suspects.remove(timer)
            self.reports.append(SuspectHandled(timer))
        if core.observer is not None:
            core.observer.hook_ended("onTimer")
        context.key, context.has_key = None, False

    def _failed_timer(self, at: float, key: Any) -> FailedTimer:
        subtask = self.core.subtask
        if key is NO_KEY:
            return FailedTimer(subtask, "", b"", at)
        return FailedTimer(subtask, shown(key), content_hash(key, self.core.codec), at)

    def poll(self) -> Any:
        """Call `poll` of the source. Return what it returns, which may be `END`."""
        core = self.core
        if core.observer is not None:
            core.observer.hook_begins("poll")
        core.context.hooks.calls += 1
        with calling("poll", core.subtask):
            wait = core.node.poll(core.context)  # type: ignore[attr-defined]  # only sources are polled
        for each in self.listeners:
            each.polled(wait)
        self._ask_if_needed()
        if wait is END:
            self.exhaust()
        if core.observer is not None:
            core.observer.hook_ended("poll")
        return wait

    def exhaust(self) -> None:
        """Note that the source has returned END."""
        self.exhausted = True
        self.end_if_over()

    # ---------------------------------------------------------------- requests

    def ask_snapshot(self) -> None:
        """Ask for a snapshot, and let the subtask handle no event until the answer (PROTOCOL 3.1, ids)."""
        if not self.has_asked:
            self.has_asked = True
            self.core.backpressure.closed += 1
            self.reports.append(SnapshotAsked(self.core.subtask))

    def answer_request(self) -> None:
        """Let the subtask go on after the answer to its request."""
        self.has_asked = False
        self.core.backpressure.closed -= 1

    def _ask_if_needed(self) -> None:
        if any(each.needs_snapshot for each in self.listeners):
            self.ask_snapshot()
