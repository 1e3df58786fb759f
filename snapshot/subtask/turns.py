"""Decide what a subtask does in a turn, and whether anything can be done now."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cutline.snapshot.channel.channel_receiver import ChannelReceiver
from cutline.snapshot.channel.frame import Marker
from cutline.snapshot.ids import ChannelId
from cutline.snapshot.node import END
from cutline.snapshot.subtask.acts import Acts, Status
from cutline.snapshot.subtask.events import ControlEvent
from cutline.snapshot.subtask.input_processor import ReadyInputs
from cutline.snapshot.subtask.limits import SLICE_POLLS_MAX
from cutline.snapshot.subtask.timers import checked_seconds
from cutline.snapshot.subtask.user_code import calling

#: seconds; a wait up to this needs no further check, because no sum of such waits leaves the calendar
_USUAL_WAIT_MAX = 86_400.0


@dataclass(frozen=True, slots=True)
class TurnsOver:
    """Repeated turns have come to their end."""

    #: seconds since the epoch at the last event, on the clock of the host
    now: float
    #: control events that came before the end, in order
    waiting: Sequence[ControlEvent]


class Turns(ABC):
    """The turns of one subtask. All times are seconds since the epoch, on the clock of the host."""

    #: the end of these turns; None before
    over: TurnsOver | None = None

    @abstractmethod
    def tick(self, now: float) -> None:
        """Take the time of the next event."""

    @abstractmethod
    def begin(self) -> None:
        """Begin the turns. Called when the subtask is started."""

    @abstractmethod
    def run(self, limit: int) -> int:
        """Do up to `limit` things. Return the number of messages, timers and polls."""

    @abstractmethod
    def handle(self, channel: ChannelId, limit: int) -> int:
        """Handle up to `limit` messages of one channel, if that is possible. Return their number."""

    @abstractmethod
    def poll(self) -> None:
        """Poll the source once, if that is possible."""

    @abstractmethod
    def fire(self) -> None:
        """Fire the next due timer, if there is one."""

    @abstractmethod
    def may_handle(self, channel: ChannelId) -> bool:
        """Return whether the next message of an input may be handled now."""

    @property
    @abstractmethod
    def is_runnable(self) -> bool:
        """Whether `run` would do anything now, besides polls and timers that are due by the clock alone."""

    @property
    @abstractmethod
    def is_idle(self) -> bool:
        """Whether the subtask does nothing until a message arrives."""

    @property
    @abstractmethod
    def wake_at(self) -> float | None:
        """The time of the next timer or poll that is allowed now, which may be in the past. None without any."""

    @property
    @abstractmethod
    def poll_at(self) -> float | None:
        """The time when the source may be polled, or None while no poll is allowed."""

    @property
    @abstractmethod
    def timer_at(self) -> float | None:
        """The time when the next timer fires, or None."""

    @abstractmethod
    def takes(self, event: ControlEvent) -> bool:
        """Return whether a control event is processed now. Else it waits for the end of these turns."""

    @abstractmethod
    def arrived(self, channel: ChannelId) -> None:
        """Note that a frame or an aligned marker waits on an input."""


class LiveTurns(Turns):
    """The turns of a subtask whose events are new.

    Parameters
    ----------
    acts : Acts
    lead : float
        Seconds by which `Context.now` is ahead of the host's clock.
    """

    def __init__(self, acts: Acts, lead: float = 0.0) -> None:
        self._lead = lead
        self._acts = acts
        self._core = acts.core
        self._backpressure = acts.core.backpressure
        self._ready = ReadyInputs(acts.core.inputs)
        self._poll_at = 0.0

    def tick(self, now: float) -> None:
        now += self._lead
        if now > self._core.context.now:
            self._core.context.now = now

    def begin(self) -> None:
        pass

    def run(self, limit: int) -> int:
        """Fire due timers, then handle messages of the ready inputs in their order, then poll."""
        if self._acts.status is Status.ENDED:
            return self._handle_messages(limit)  # only markers can wait here (PROTOCOL 5.2, finished subtasks)
        done = self._fire_timers(limit)
        done += self._handle_messages(limit - done)
        return done + self._poll(limit)

    def handle(self, channel: ChannelId, limit: int) -> int:
        chosen = self._ready.get(channel)
        if chosen is None or chosen.end.held or not self._may_take(chosen.end):
            return 0
        handled = self._acts.take_head(chosen, limit)
        self._ready.requeue(chosen)
        return handled

    def poll(self) -> None:
        self._poll(1)

    def fire(self) -> None:
        self._fire_timers(1)

    # ---------------------------------------------------------------- what is possible

    def may_handle(self, channel: ChannelId) -> bool:
        end = self._acts.inputs[channel]
        return end.ready and not self._backpressure.closed and self._may_take(end)

    @property
    def is_runnable(self) -> bool:
        return not self._backpressure.closed and any(self._ready_now())

    @property
    def is_idle(self) -> bool:
        acts = self._acts
        if acts.status is Status.ENDED:
            return True
        return acts.exhausted and self._core.timers.next_at() is None and not self._ready

    @property
    def wake_at(self) -> float | None:
        if self._acts.status is not Status.RUNNING or self._backpressure.closed:
            return None
        due = self._core.timers.next_at()
        may_poll = not (self._acts.exhausted or self._spilling)
        if may_poll and (due is None or self._poll_at < due):
            due = self._poll_at
        return None if due is None else due - self._lead

    @property
    def poll_at(self) -> float | None:
        if self._acts.exhausted or self._acts.status is not Status.RUNNING or self._backpressure.closed:
            return None
        return None if self._spilling else self._poll_at - self._lead

    @property
    def timer_at(self) -> float | None:
        at = self._core.timers.next_at()
        if at is None or self._acts.status is not Status.RUNNING or self._backpressure.closed:
            return None
        return at - self._lead

    def takes(self, event: ControlEvent) -> bool:
        return True

    def arrived(self, channel: ChannelId) -> None:
        self._ready.mark_ready(channel)

    # ---------------------------------------------------------------- the parts of a turn

    def _fire_timers(self, limit: int) -> int:
        done = 0
        context, timers = self._core.context, self._core.timers
        while not self._backpressure.closed and done < limit and (due := timers.pop_due(context.now)) is not None:
            self._acts.fire(*due)
            done += 1
        if done:
            self._acts.end_if_over()
        return done

    def _handle_messages(self, limit: int) -> int:
        done, backpressure, take_head = 0, self._backpressure, self._acts.take_head
        for channel in self._ready:
            if backpressure.closed or done >= limit:
                break
            while channel.end.ready and not backpressure.closed and done < limit and self._may_take(channel.end):
                done += take_head(channel, limit - done)
            self._ready.requeue(channel)
        return done

    def _poll(self, limit: int) -> int:
        acts, context = self._acts, self._core.context
        done, most = 0, min(limit, SLICE_POLLS_MAX)
        while not acts.exhausted and not self._backpressure.closed and self._poll_at <= context.now and done < most:
            if self._spilling:
                break
            wait = acts.poll()
            done += 1
            if type(wait) is float and 0.0 <= wait <= _USUAL_WAIT_MAX:
                self._poll_at = context.now + wait
            elif wait is not None and wait is not END:
                with calling("poll", self._core.subtask):
                    self._poll_at = checked_seconds(wait, since=context.now)
        return done

    def _ready_now(self) -> Iterator[bool]:
        return (each.end.ready and self._may_take(each.end) for each in self._ready)

    @property
    def _spilling(self) -> bool:
        outputs = self._core.outputs
        return any(outputs[channel].buffer.spilling for channel in self._acts.ends.inner_output_channels)

    def _may_take(self, end: ChannelReceiver) -> bool:
        """Refuse messages from outside the cycle while an output buffer inside the cycle spills (PROTOCOL 9.2).

        Refuse messages of a later wave (PROTOCOL 6.11, waves). Markers pass.
        """
        gates = self._ready.gates
        if gates.edges and not isinstance(end.head, Marker) and not gates.may_take(end):
            return False
        ends = self._acts.ends
        return not ends.inner_output_channels or end.channel in ends.inner_inputs or not self._spilling
