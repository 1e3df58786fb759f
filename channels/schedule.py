"""What a link sends next: markers first, then data in turn over the channels that have credit. No I/O.

A channel without credit is passed over, so a full one never holds another (DESIGN 6). Used by every link.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from channels.credits import SendingCredit
from snapshot.channel.frame import Frame, Marker
from snapshot.channel.sending_end import SendingEnd


class _Outgoing(NamedTuple):
    end: SendingEnd
    credit: SendingCredit


class SendingSchedule:
    """The sending ends of one link, numbered by channel, each with its credit."""

    def __init__(self) -> None:
        self._outgoing: dict[int, _Outgoing] = {}
        #: channels in the order of their turns
        self._turns: deque[int] = deque()

    def attach(self, channel: int, end: SendingEnd, window_bytes: int) -> None:
        """Serve one more channel."""
        assert channel not in self._outgoing
        self._outgoing[channel] = _Outgoing(end, SendingCredit(window_bytes))
        self._turns.append(channel)

    def credit(self, channel: int) -> SendingCredit | None:
        """The account of `channel`, or None if it does not leave by this link."""
        outgoing = self._outgoing.get(channel)
        return outgoing.credit if outgoing else None

    @property
    def sendable(self) -> bool:
        """Something may be taken now."""
        return any(o.end.has_marker or (o.credit.balance > 0 and o.end.has_data) for o in self._outgoing.values())

    def markers(self) -> list[tuple[int, Marker]]:
        """Take every marker that is next on its channel. They cost no credit (PROTOCOL 1.1)."""
        taken: list[tuple[int, Marker]] = []
        for channel, outgoing in self._outgoing.items():
            while outgoing.end.has_marker:
                marker = outgoing.end.take()
                assert isinstance(marker, Marker)
                taken.append((channel, marker))
        return taken

    def next_frame(self) -> tuple[int, Frame] | None:
        """Take one frame, from the next channel in turn that has one and credit; None if there is none.

        Take `markers` before and after: a frame may have an aligned marker right behind it.
        """
        for _ in range(len(self._turns)):
            channel = self._turns[0]
            self._turns.rotate(-1)
            end, credit = self._outgoing[channel]
            if credit.balance > 0 and end.has_data and not end.has_marker:
                frame = end.take()
                assert isinstance(frame, Frame)
                credit.spend(len(frame.payload))
                return channel, frame
        return None
