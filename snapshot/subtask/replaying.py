"""Repeat the steps of a subtask: the same calls of its hooks, in the same order, with the same values (PROTOCOL 12.3).

Decides what is repeated next, and whether it can be repeated now. The machine makes the calls. A subtask whose state
each snapshot stores, as of a sink, repeats nothing: its messages are compared, and dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cutline.snapshot.channel.channel_receiver import ChannelReceiver
from cutline.snapshot.channel.frame import Frame, Marker, PayloadKind
from cutline.snapshot.ids import ChannelId
from cutline.snapshot.node import Node
from cutline.snapshot.replayable_source import ReplayableSource
from cutline.snapshot.steps.determinants import (
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
from cutline.snapshot.steps.replay import Replay
from cutline.snapshot.subtask.context import SubtaskContext
from cutline.snapshot.subtask.events import SnapshotPublished, SnapshotRequested
from cutline.snapshot.subtask.input_processor import InputProcessor
from cutline.snapshot.subtask.stepping import StateHashes, Stepping
from cutline.snapshot.subtask.user_code import calling


@dataclass(frozen=True, slots=True)
class ReplayCalls:
    """Functions of a subtask's machine, by which a replay acts."""

    #: handles messages of the head frame of an input, up to a number, or the end of its stream; returns their number
    take_head: Callable[[InputProcessor, int], int]
    #: calls `onTimer` for a time and a key, which may be `NO_KEY`
    fire: Callable[[float, Any], None]
    #: removes the timer of a time and an encoded key, and returns its key; None without such a timer
    remove_timer: Callable[[float, bytes | None], Any | None]
    #: notes that the source has returned END
    exhaust: Callable[[], None]
    #: sends the end of the stream if nothing can happen at the subtask any more
    end_if_over: Callable[[], None]
    #: notes the end of a stream that is dropped
    note_end: Callable[[ChannelId], None]
    #: returns the hashes of the state at the cut of a snapshot, or None where there are none
    hashes: Callable[[int], StateHashes | None]
    #: goes on with new events
    end_of_replay: Callable[[], None]


class Replayer:
    """The replay of one subtask.

    Parameters
    ----------
    node : Node
    context : SubtaskContext
    steps : Stepping
        Holds the replay.
    calls : ReplayCalls
    """

    def __init__(self, node: Node, context: SubtaskContext, steps: Stepping, calls: ReplayCalls) -> None:
        #: events that came before the replay was over (PROTOCOL 12.4, replay first)
        self.waiting: list[SnapshotRequested | SnapshotPublished] = []
        #: seconds since the epoch at the last event, on the clock of the host
        self.host_now = 0.0
        self._node = node
        self._context = context
        self._steps = steps
        self._calls = calls
        #: whether the next step waits for room on disk, or the end until nothing waits there (PROTOCOL 12.10)
        self._is_between = False

    @property
    def _replay(self) -> Replay:
        assert self._steps.replay is not None
        return self._steps.replay

    @property
    def channel(self) -> ChannelId | None:
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
    def is_timer(self) -> bool:
        """Whether a timer is next, or the next step can begin."""
        if self._is_between:
            return not self._must_wait
        return isinstance(self._replay.head, Fired)

    @property
    def is_poll(self) -> bool:
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
    def needs_room(self) -> bool:
        """Whether a turn would give credit back, so that the messages of a call can come (PROTOCOL 12.10)."""
        return self._short_of is not None

    @property
    def is_possible(self) -> bool:
        """Whether what is next can be repeated now."""
        return self.is_timer or self.is_poll or self.channel is not None

    def repeat(self, limit: int) -> int:
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
        if not self.is_possible:
            return 0
        if self._is_between:
            self.settle()
            return 1
        calls, entry = self._calls, self._replay.head
        done = 1
        match entry:
            case Took(place, count) | TookTogether(place, count) if self._steps.keeps_state:
                done = self._drop(self._steps.inputs[place], min(limit, count))
                self._replay.took(done)
            case Took(place, count):
                done = calls.take_head(self._steps.inputs[place], min(limit, count))
                self._replay.took(done)
            case TookTogether(place, count):
                self._steps.inputs[place].handle_together(count)
                done = count
                self._replay.done()
            case Fired(at, key):
                found = calls.remove_timer(at, key)
                if found is None:
                    raise self._steps.differs(f"has no timer for {at}, which had fired")
                calls.fire(at, found)
                calls.end_if_over()
                self._replay.done()
            case Read(partition, stop):
                self._read(partition, stop)
                self._replay.done()
            case Compacted(partition, stop, messages):
                self._send_compacted(partition, stop, messages)
                self._replay.done()
            case Exhausted():
                calls.exhaust()
                self._replay.done()
        self.settle()
        return done

    def settle(self) -> None:
        """Repeat what needs nothing to come: times, cuts, publications. End the replay behind the last entry."""
        while not (self._is_between and self._must_wait):
            self._is_between = False
            match entry := self._replay.head:
                case None:
                    self._steps.finish()
                    self._calls.end_of_replay()
                    return
                case Cut():
                    self._steps.repeat_cut(entry, self._calls.hashes(entry.snapshot_id))
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
        if isinstance(head, Frame) and head.kind is PayloadKind.END:
            self._calls.note_end(channel.end.channel)
            channel.end.advance(1)
            return 1
        return channel.drop(head, limit)
