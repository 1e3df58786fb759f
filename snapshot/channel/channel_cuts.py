"""Records of one channel at the cuts of its two ends, with the numbers of PROTOCOL 1."""

from __future__ import annotations

from dataclasses import dataclass

from cutline.snapshot.channel.frame import Frame


@dataclass(frozen=True, slots=True)
class SentCut:
    """A sender's record of one channel at its cut, with the messages (written, sent] that the sender saves."""

    sent: int
    written: int
    frames: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class ReceivedCut:
    """A receiver's record of one channel: its point, the marker's w, and the messages (processed, written]."""

    processed: int
    written: int
    frames: tuple[Frame, ...]
    #: waves of the messages: (number of the last message, wave) pairs, ascending (PROTOCOL 6.11, waves)
    waves: tuple[tuple[int, int], ...] = ()
