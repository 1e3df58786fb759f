"""Log the determinants of one subtask from cut to cut."""

from __future__ import annotations

from cutline.snapshot.modes.steps.determinants import (
    At,
    Compacted,
    Cut,
    Entry,
    Exhausted,
    Fired,
    Opened,
    Published,
    Read,
    Started,
    Took,
    TookTogether,
    encode_step,
)


class StepLog:
    """The step that is being written.

    Each method takes `now`, the value of `Context.now` in the event, because a replay must give the node the same.
    """

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        #: `now` of the last entry, or None before the first
        self._now: float | None = None
        #: input and count of the messages that are not written yet; -1 without any
        self._input, self._count = -1, 0

    def took(self, place: int, count: int, now: float) -> None:
        """Log messages of the input at `place`, handled one by one. Neighbours become one entry."""
        if place != self._input or now != self._now:
            self._turn(now)
            self._input = place
        self._count += count

    def took_together(self, place: int, count: int, now: float) -> None:
        """Log messages of the input at `place`, handled by one call."""
        self._write(TookTogether(place, count), now)

    def opened(self, run: str, now: float) -> None:
        """Log that a fresh node was opened."""
        self._write(Opened(run), now)

    def started(self, now: float) -> None:
        """Log that a fresh node was started."""
        self._write(Started(), now)

    def fired(self, at: float, key: bytes | None, now: float) -> None:
        """Log a timer."""
        self._write(Fired(at, key), now)

    def read(self, partition: str, stop: bytes, now: float) -> None:
        """Log a read of a source."""
        self._write(Read(partition, stop), now)

    def compacted(self, partition: str, stop: bytes, messages: bytes, now: float) -> None:
        """Log messages that a source has sent in the place of a partition up to `stop`."""
        self._write(Compacted(partition, stop, messages), now)

    def exhausted(self, now: float) -> None:
        """Log that a source has returned END."""
        self._write(Exhausted(), now)

    def published(self, snapshot_id: int, now: float) -> None:
        """Log a call of `onPublished`."""
        self._write(Published(snapshot_id), now)

    def at(self, now: float) -> None:
        """Log the time of a cut whose state is hashed, because it decides which rows have expired."""
        self._turn(now)

    def cut(self, cut: Cut) -> bytes:
        """End the step, and return its bytes."""
        self._flush()
        entries, self._entries = [*self._entries, cut], []
        return encode_step(entries)

    def _write(self, entry: Entry, now: float) -> None:
        self._turn(now)
        self._entries.append(entry)

    def _turn(self, now: float) -> None:
        self._flush()
        if now != self._now:
            self._now = now
            self._entries.append(At(now))

    def _flush(self) -> None:
        if self._count:
            self._entries.append(Took(self._input, self._count))
        self._input, self._count = -1, 0
