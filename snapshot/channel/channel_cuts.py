"""The numbers and frames that the two ends of a channel record at their cuts (PROTOCOL 1)."""

from __future__ import annotations

from dataclasses import dataclass

from snapshot.channel.frame import Frame


@dataclass(frozen=True, slots=True)
class SentCut:
    """Numbers of a sender at its cut, with the messages (written, sent] that the sender saves."""

    sent: int
    written: int
    frames: tuple[Frame, ...]


@dataclass(frozen=True, slots=True)
class ReceivedCut:
    """Numbers of a receiver at its cut: p, the marker's w, and the messages (processed, written]."""

    processed: int
    written: int
    frames: tuple[Frame, ...]
