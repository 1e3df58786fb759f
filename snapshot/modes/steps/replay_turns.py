"""Repeat the steps of a subtask: the same calls of its hooks, in the same order, with the same values (PROTOCOL 12.3).

Decides what is repeated next, and whether it can be repeated now. The machine makes the calls. A subtask whose state
each snapshot stores, as of a sink, repeats nothing: its messages are compared, and dropped.
"""

from __future__ import annotations

from typing import Any

from cutline.snapshot.channel.channel_receiver import ChannelReceiver
from cutline.snapshot.channel.control_frames import StreamEnd, statement_of
from cutline.snapshot.channel.frame import Frame, Marker
from cutline.snapshot.ids import ChannelId
from cutline.snapshot.modes.steps.determinants import (
    At,
    Compacted,
    Cut,
    Exhausted,
    Fired,
    Published,
    Read,
    Took,
    TookTogether,
)
from cutline.snapshot.modes.steps.replay import Replay
from cutline.snapshot.modes.steps.stepping import Stepping
from cutline.snapshot.replayable_source import ReplayableSource
from cutline.snapshot.subtask.acts import Acts
from cutline.snapshot.subtask.events import ControlEvent, SnapshotPublished, SnapshotRequested
from cutline.snapshot.subtask.input_processor import InputProcessor
from cutline.snapshot.subtask.timers import NO_KEY
from cutline.snapshot.subtask.turns import Turns, TurnsOver
from cutline.snapshot.subtask.user_code import calling


def replay_turns(stepping: Stepping, acts: Acts) -> ReplayTurns | None:
    """Return the turns that repeat what `stepping` holds, or None if it holds nothing. See `SubtaskComponents`."""
    return None if stepping.replay is None else ReplayTurns(stepping, acts)


class ReplayTurns(Turns):
    """The turns of one subtask that repeat its log. No event is logged meanwhile, because the log has it.

    Parameters
    ----------
    stepping : Stepping
        Holds the replay.
    acts : Acts
    """

    def __init__(self, stepping: Stepping, acts: Acts) -> None:
        self.over: TurnsOver | None = None
        #: events that came before the replay was over (PROTOCOL 12.4, replay first)
        self._waiting: list[ControlEvent] = []
        #: time of the last event, on the clock of the host; the log has the time of the node
        self._host_now = 0.0
        self._acts = acts
        self._listeners, acts.listeners = acts.listeners, ()
        self._node = acts.core.node
        self._context = acts.core.context
        self._backpressure = acts.core.backpressure
        self._steps = stepping
        #: whether the next step waits for room on disk, or the end until nothing waits there (PROTOCOL 12.10)
        self._is_between = False

    # ---------------------------------------------------------------- turns

    def tick(self, now: float) -> None:
        self._host_now = now

    def begin(self) -> None:
        self._settle()

    def run(self, limit: int) -> int:
        done = 0
        while self.over is None and not self._backpressure.closed and done < limit:
            handled = self._repeat(limit - done)
            if not handled:
                break
            done += handled
        return done

    def handle(self, channel: ChannelId, limit: int) -> int:
        return self._repeat(limit)

    def poll(self) -> None:
        self._repeat(1)

    def fire(self) -> None:
        self._repeat(1)

    def may_handle(self, channel: ChannelId) -> bool:
        return self._channel == channel and not self._backpressure.closed

    @property
    def is_runnable(self) -> bool:
        """Whether what is next can be repeated now, or a turn would give credit back (PROTOCOL 12.10)."""
        return not self._backpressure.closed and (self._is_possible or self._short_of is not None)

    @property
    def is_idle(self) -> bool:
        return False

    @property
    def wake_at(self) -> float | None:
        """None, because a replay waits for no time: it can go on, or waits for messages."""
        return None

    @property
    def poll_at(self) -> float | None:
        return 0.0 if self._is_poll and not self._backpressure.closed else None

    @property
    def timer_at(self) -> float | None:
        return 0.0 if self._is_timer and not self._backpressure.closed else None

    def takes(self, event: ControlEvent) -> bool:
        """Let requests and publications wait (PROTOCOL 12.4, replay first)."""
        waits = isinstance(event, SnapshotRequested | SnapshotPublished)
        if waits:
            self._waiting.append(event)
        return not waits

    def arrived(self, channel: ChannelId) -> None:
        """Do nothing, because the log decides which input is next."""

    # ---------------------------------------------------------------- what is next

    @property
    def _replay(self) -> Replay:
        assert self._steps.replay is not None
        return self._steps.replay

    @property
    def _channel(self) -> ChannelId | None:
        """The channel whose messages are next and have come, or None."""
        if self._is_between:
            return None
        match self._replay.head:
            case Took(place, count) | TookTogether(place, count):
                end = self._steps.inputs[place].end
                is_whole = isinstance(self._replay.head, TookTogether) and not self._steps.keeps_state
                due = count if is_whole else 1
                return end.channel if end.arrived - end.processed >= due and end.ready else None
        return None

    @property
    def _must_wait(self) -> bool:
        """Return whether the next step cannot begin yet, or the replay cannot end."""
        return self._steps.is_spilling if self._replay.head is None else self._steps.is_crowded

    @property
    def _is_timer(self) -> bool:
        """Whether a timer is next, or the next step can begin."""
        if self._is_between:
            return not self._must_wait
        return isinstance(self._replay.head, Fired)

    @property
    def _is_poll(self) -> bool:
        """Whether a read of the source is next, or its end."""
        return not self._is_between and isinstance(self._replay.head, Read | Exhausted | Compacted)

    @property
    def _short_of(self) -> ChannelReceiver | None:
        """The input of which a call needs more messages than have come, while those that have come take credit."""
        head = self._replay.head
        if self._is_between or not isinstance(head, TookTogether) or self._steps.keeps_state:
            return None
        end = self._steps.inputs[head.input].end
        return end if end.arrived - end.processed < head.count and end.has_charged_frames else None

    @property
    def _is_possible(self) -> bool:
        """Whether what is next can be repeated now."""
        return self._is_timer or self._is_poll or self._channel is not None

    def _repeat(self, limit: int) -> int:
        """Repeat what is next. Return the number of messages, at least 1, or 0 if its messages have not come.

        Raises
        ------
        NodeError
            if a hook fails.
        RestoreRefused
            if the node does something else than before.
        """
        if (end := self._short_of) is not None:
            end.free_ahead()
        if not self._is_possible:
            return 0
        if self._is_between:
            self._settle()
            return 1
        acts, entry = self._acts, self._replay.head
        done = 1
        match entry:
            case Took(place, count) | TookTogether(place, count) if self._steps.keeps_state:
                done = self._drop(self._steps.inputs[place], min(limit, count))
                self._replay.took(done)
            case Took(place, count):
                done = acts.take_head(self._steps.inputs[place], min(limit, count))
                self._replay.took(done)
            case TookTogether(place, count):
                self._steps.inputs[place].handle_together(count)
                done = count
                self._replay.done()
            case Fired(at, key):
                found = self._remove_timer(at, key)
                if found is None:
                    raise self._steps.differs(f"has no timer for {at}, which had fired")
                acts.fire(at, found)
                acts.end_if_over()
                self._replay.done()
            case Read(partition, stop):
                self._read(partition, stop)
                self._replay.done()
            case Compacted(partition, stop, messages):
                self._send_compacted(partition, stop, messages)
                self._replay.done()
            case Exhausted():
                acts.exhaust()
                self._replay.done()
        self._settle()
        return done

    def _settle(self) -> None:
        """Repeat what needs nothing to come: times, cuts, publications. End the replay after the last entry."""
        while not (self._is_between and self._must_wait):
            self._is_between = False
            match entry := self._replay.head:
                case None:
                    self._end()
                    return
                case Cut():
                    self._steps.repeat_cut(entry, self._steps.hashes(entry.snapshot_id))
                    self._is_between = True
                case Took() | TookTogether():
                    return
                case _ if self._steps.keeps_state:
                    pass
                case At(now):
                    self._context.now = now
                case Published(snapshot_id):
                    with calling("onPublished", self._context.subtask):
                        self._node.onPublished(snapshot_id)
                case _:
                    return
            self._replay.done()

    def _end(self) -> None:
        self._steps.finish()
        self._acts.listeners = self._listeners
        self.over = TurnsOver(self._host_now, tuple(self._waiting))

    def _remove_timer(self, at: float, key: bytes | None) -> Any | None:
        """Remove a timer, and return its key; None without such a timer. `key` is encoded."""
        timers = self._acts.core.timers
        found = NO_KEY if key is None else self._steps.decoded(key)
        if not timers.holds(at, found):
            return None
        timers.delete(at, found)
        return found

    def _read(self, partition: str, stop: bytes) -> None:
        source = self._node
        assert isinstance(source, ReplayableSource)
        with calling("read", self._context.subtask):
            source.read_again(partition, self._steps.decoded(stop), self._context)

    def _send_compacted(self, partition: str, stop: bytes, messages: bytes) -> None:
        source, decoded = self._node, self._steps.decoded
        assert isinstance(source, ReplayableSource)
        with calling("compactInput", self._context.subtask):
            source.send_compacted(partition, decoded(stop), decoded(messages), self._context)

    def _drop(self, channel: InputProcessor, limit: int) -> int:
        head = channel.end.head
        assert head is not None and not isinstance(head, Marker)
        return self._drop_control(channel, head) if head.is_control else channel.drop(head, limit)

    def _drop_control(self, channel: InputProcessor, frame: Frame) -> int:
        """Count a statement as one message, without a call of the node."""
        match statement_of(frame, channel.end.channel):
            case StreamEnd():
                self._acts.note_end(channel.end.channel)
                channel.end.advance(1)
                return 1
