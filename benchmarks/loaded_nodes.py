"""The nodes of the snapshot and scale benchmarks: a source with bursts or pauses, and a holder of a large state.

The module has few imports, because forked workers import it.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from cutline import Context, Node, Source

#: seconds of a pause between two messages that is noted. A busy loop has shorter pauses.
GAP_SECONDS_MIN = 0.0005

State = tuple[int, npt.NDArray[np.uint64]]


class Flow(Source):
    """Sends `burst` messages of `message_bytes`, pauses, and repeats without an end. State: the number sent."""

    def __init__(self, message_bytes: int, *, burst: int = 1, pause: float = 0.0) -> None:
        self.message_bytes, self.burst, self.pause = message_bytes, burst, pause
        self.sent = 0

    def poll(self, context: Context) -> float | None:
        for _ in range(self.burst):
            context.send(bytes(self.message_bytes))
        self.sent += self.burst
        return self.pause

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.sent

    def restoreState(self, state: Any) -> None:
        self.sent = state


class Holder(Node):
    """Changes a number of a large array with each message, and notes every long pause between two messages.

    Parameters
    ----------
    length : int
        numbers of 8 bytes in the array.
    delay : float
        seconds that a message takes. A delay above the pause of the source causes back-pressure.
    gaps : Path or None
        File that gets a line ``end length`` for each pause, in seconds of the monotonic clock. None: no notes.
    """

    def __init__(self, length: int, *, delay: float = 0.0, gaps: Path | None = None) -> None:
        self.length, self.delay, self.gaps = length, delay, gaps
        self.count = 0
        self.last_at = 0.0
        self.lines: TextIO | None = None

    def open(self, context: Context) -> None:
        if not self.count:
            self.array = np.zeros(self.length, np.uint64)
        if self.gaps is not None:
            self.lines = self.gaps.open("a")
        self.last_at = time.monotonic()

    def onMessage(self, message: Any, context: Context) -> None:
        now = time.monotonic()
        if self.lines is not None and now > self.last_at + GAP_SECONDS_MIN:
            self.lines.write(f"{now} {now - self.last_at}\n")
        self.last_at = now
        if self.delay:
            time.sleep(self.delay)
        self.array[self.count % self.length] += 1
        self.count += 1

    def close(self) -> None:
        if self.lines is not None:
            self.lines.close()

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.count, self.array

    def restoreState(self, state: Any) -> None:
        self.count, self.array = state


def is_right(state: State, count: int) -> bool:
    """Return whether the state of a holder is that after `count` messages."""
    found, array = state
    rounds, rest = divmod(count, len(array))
    return found == count and bool((array[:rest] == rounds + 1).all()) and bool((array[rest:] == rounds).all())
