"""Order of sending on a link: markers first, then data in turn over the channels that have credit. No I/O.

A channel without credit is passed over, so a full one never holds another (DESIGN 6). Ends say when they have something
to take, so what a step costs does not grow with the channels that have nothing. Used by every link.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from channels.credits import SendingCredit
from snapshot.channel.channel_sender import ChannelSender
from snapshot.channel.frame import Frame, Marker


class _Outgoing(NamedTuple):
    end: ChannelSender
    credit: SendingCredit


class SendingSchedule:
    """The sending ends of one link, numbered by channel, each with its credit."""

    def __init__(self) -> None:
        self._outgoing: dict[int, _Outgoing] = {}
        # The first two are read by links, too: behind a property and a call a small frame took 7 % longer.
        #: channels that may have something to take, in the order of their turns
        self.waiting: dict[int, _Outgoing] = {}
        #: channels of which a marker is next
        self.marked: dict[int, ChannelSender] = {}
        #: channels that had no credit when it was their turn
        self._blocked: dict[int, _Outgoing] = {}

    def attach(self, channel: int, end: ChannelSender, credit: SendingCredit) -> None:
        """Serve one more channel."""
        assert channel not in self._outgoing
        self._outgoing[channel] = _Outgoing(end, credit)
        end.buffer.on_waiting = partial(self._note, channel, self._outgoing[channel])
        if end.buffer.has_data:
            end.buffer.on_waiting()

    def __contains__(self, channel: int) -> bool:
        return channel in self._outgoing

    def grant(self, channel: int, granted_bytes: int) -> None:
        """The receiver of `channel`, which leaves by this link, gives credit back.

        Raises
        ------
        ChannelError
            if it gives more than it got.
        """
        self._outgoing[channel].credit.grant(granted_bytes)
        outgoing = self._blocked.pop(channel, None)
        if outgoing is not None:
            self.waiting[channel] = outgoing

    @property
    def sendable(self) -> bool:
        """Something may be taken now."""
        if self.marked or not self.waiting:  # the usual cases, checked before each sleep
            return bool(self.marked)
        return any(o.credit.balance > 0 and o.end.buffer.has_data for o in self.waiting.values())

    @property
    def has_data(self) -> bool:
        """Something waits, if only for credit."""
        return any(o.end.buffer.has_data for waiting in (self.waiting, self._blocked) for o in waiting.values())

    def markers(self) -> list[tuple[int, Marker]]:
        """Take every marker that is next on its channel. They cost no credit (PROTOCOL 1.1)."""
        taken: list[tuple[int, Marker]] = []
        for channel, end in self.marked.items():
            while end.buffer.has_marker:
                marker = end.buffer.take()
                assert isinstance(marker, Marker)
                taken.append((channel, marker))
        self.marked.clear()
        return taken

    def next_frame(self) -> tuple[int, Frame] | None:
        """Take one frame, from the next channel in turn that has one and credit; None if there is none.

        Take `markers` before and after: a frame may have an aligned marker right behind it.
        """
        while self.waiting:
            channel = next(iter(self.waiting))
            outgoing = self.waiting.pop(channel)
            end, credit = outgoing
            if credit.balance <= 0:
                self._blocked[channel] = outgoing
                continue
            frame = end.buffer.take()
            if frame is None:
                continue
            assert isinstance(frame, Frame), channel  # a marker goes first
            credit.spend(len(frame.payload))
            if end.buffer.has_data:
                self._note(channel, outgoing)
            return channel, frame
        return None

    def _note(self, channel: int, outgoing: _Outgoing) -> None:
        """Something may be taken from `channel`: it waits its turn, unless it has one already."""
        if outgoing.end.buffer.has_marker:
            self.marked[channel] = outgoing.end
        if channel not in self._blocked:
            self.waiting.setdefault(channel, outgoing)
