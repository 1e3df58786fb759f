"""Stamps: where each message of a frame comes from, and how many messages of a channel belong to an epoch.

An epoch has the id of the last snapshot that its source had begun (Lai & Yang 1987 call it a colour). A message
belongs to a snapshot if its epoch is lower than the snapshot's id (PROTOCOL 13.9). Where clocks are negotiated, a stamp
is the position of the slice that the message comes from (PROTOCOL 13.15, negotiated clocks).
"""

from __future__ import annotations

from typing import Final

#: partition, and number of a slice of the partition in this incarnation
Position = tuple[str, int]

#: position of messages that come from no slice, as of `onStart`: below every clock
NOWHERE: Final[Position] = ("", -1)

#: an epoch, or a position
Stamp = int | Position

#: (stamp, messages), in the order of the messages of a frame
StampRuns = tuple[tuple[Stamp, int], ...]

#: (partition, number of the first slice above a clock)
Numbers = tuple[Position, ...]

#: None: above everything
Clock = Numbers | None


class StampCounts:
    """Messages of a channel by epoch.

    Parameters
    ----------
    count : int
        Messages that belong to the restored snapshot.
    """

    def __init__(self, count: int) -> None:
        self._settled = count
        self._counts: dict[int, int] = {}

    def add(self, stamp: int, count: int) -> None:
        """Count messages."""
        self._counts[stamp] = self._counts.get(stamp, 0) + count

    def below(self, snapshot_id: int) -> int:
        """Return how many messages belong to a snapshot that is not settled."""
        return self._settled + sum(count for stamp, count in self._counts.items() if stamp < snapshot_id)

    def settle(self, min_snapshot_id: int) -> None:
        """Forget the stamps below the lowest snapshot that may still be begun."""
        for stamp in [stamp for stamp in self._counts if stamp < min_snapshot_id]:
            self._settled += self._counts.pop(stamp)


class OpenStamps:
    """Stamps of a sender's messages that are in no frame yet.

    Parameters
    ----------
    sent : int
        Number of the last message that was sent.
    first : Stamp
        Stamp of the first messages.
    """

    def __init__(self, sent: int, first: Stamp = 0) -> None:
        self.counts = StampCounts(sent)
        #: stamp of the messages that are sent now
        self._stamp = first
        #: number of the last message that is in a run
        self._through = sent
        self._runs: list[tuple[Stamp, int]] = []

    def change(self, stamp: Stamp, sent: int) -> None:
        """Stamp all messages after number `sent` otherwise."""
        if stamp != self._stamp:
            self._end_run(sent)
            self._stamp = stamp

    def take(self, last: int) -> StampRuns:
        """Return the stamps of a frame whose last message has this number, and that holds all open messages."""
        self._end_run(last)
        runs, self._runs = tuple(self._runs), []
        return runs

    def _end_run(self, last: int) -> None:
        if count := last - self._through:
            self._runs.append((self._stamp, count))
            if isinstance(self._stamp, int):
                self.counts.add(self._stamp, count)
            self._through = last
