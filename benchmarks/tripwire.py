"""The nodes of the recovery benchmark: a source that catches up, and a node that raises when it is told to.

A file of its own: a worker that is forked anew imports what its nodes' modules import, and that counts as recovery.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from snapshot import Context
from snapshot.node import End
from tests.system.programs import Numbers, Relay


class Steady(Numbers):
    """Sends `rate` records a second, as a queue would bring them: what it is behind after a fault it sends at once.

    Parameters
    ----------
    done : Path
        As `Numbers`.
    rate : float
        of each subtask.
    since : float
        when it began, in seconds since the epoch.
    """

    #: Records of one poll, however far it is behind.
    BURST_MAX = 200

    def __init__(self, done: Path, rate: float, since: float) -> None:
        super().__init__(done)
        self.rate, self.since = rate, since

    def poll(self, context: Context) -> float | End:
        assert self.next is not None
        behind = int((context.now - self.since) * self.rate) - self.next // context.parallelism
        self.burst = min(self.BURST_MAX, max(0, behind))
        wait = super().poll(context)
        return 0.0 if behind > self.burst and isinstance(wait, float) else wait


class Tripwire(Relay):
    """Raises once for each time that a file appears; notes its faults, and the first message of each incarnation.

    Parameters
    ----------
    folder : Path
        ``wire`` in it makes a subtask raise, which says when in ``tripped``; ``acting`` gets a line
        ``incarnation seconds`` with each first message. Seconds are of the monotonic clock.
    length : int
        of an array of numbers of 8 bytes that is carried along as state.
    """

    def __init__(self, folder: Path, length: int) -> None:
        super().__init__()
        self.folder, self.length = folder, length
        self.wire = folder / "wire"
        self.is_acting = False

    def onStart(self, context: Context) -> None:
        self.array = np.arange(self.length)

    def onMessage(self, message: Any, context: Context) -> None:
        if not self.is_acting:
            self.is_acting = True
            with (self.folder / "acting").open("a") as lines:
                lines.write(f"{context.incarnation} {time.monotonic()}\n")
        if self.wire.exists():
            try:
                self.wire.unlink()
            except FileNotFoundError:
                return super().onMessage(message, context)  # another subtask was faster
            (self.folder / "tripped").write_text(repr(time.monotonic()))
            raise RuntimeError("a benchmark's fault")
        return super().onMessage(message, context)

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.count, self.array

    def restoreState(self, state: Any) -> None:
        self.count, self.array = state
