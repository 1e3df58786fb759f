"""What the two ends of a channel note of it at their cuts, with the numbers of PROTOCOL 1."""

from __future__ import annotations

from dataclasses import dataclass

from snapshot.channel.frame import Frame


@dataclass(frozen=True, slots=True)
class SentCut:
    """What a sender notes of one channel at its cut, with the messages (written, sent] that it saves."""

    sent: int
    written: int
    frames: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class ReceivedCut:
    """What a receiver notes of one channel: its point, the marker's w, and the messages (processed, written]."""

    processed: int
    written: int
    frames: tuple[Frame, ...]
