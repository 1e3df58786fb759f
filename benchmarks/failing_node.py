"""The nodes of the recovery benchmark: a source that catches up, and a node that raises on request.

The module has few imports, because a forked worker imports it and that time counts as recovery.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.numbered_nodes import Numbers, Relay
from cutline import Context
from cutline.snapshot.node import End


class Steady(Numbers):
    """Sends `rate` records a second like a queue. The records that are late after a fault are sent at once.

    Parameters
    ----------
    done : Path
        as of `Numbers`.
    rate : float
        records a second of each subtask.
    since : float
        when the source began, in seconds since the epoch.
    """

    #: Records of one poll at most.
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


class FailingNode(Relay):
    """Raises once each time that a file appears. Notes its faults, and the first message of each incarnation.

    Parameters
    ----------
    folder : Path
        a file ``fail`` in it makes a subtask raise. The subtask notes when in the file ``failed``. The file
        ``acting`` gets a line ``incarnation seconds`` with each first message. Seconds are of the monotonic clock.
    length : int
        of an array of numbers of 8 bytes, which is part of the state.
    """

    def __init__(self, folder: Path, length: int) -> None:
        super().__init__()
        self.folder, self.length = folder, length
        self.request = folder / "fail"
        self.is_acting = False

    def onStart(self, context: Context) -> None:
        self.array = np.arange(self.length)

    def onMessage(self, message: Any, context: Context) -> None:
        if not self.is_acting:
            self.is_acting = True
            with (self.folder / "acting").open("a") as lines:
                lines.write(f"{context.incarnation} {time.monotonic()}\n")
        if self.request.exists():
            try:
                self.request.unlink()
            except FileNotFoundError:
                return super().onMessage(message, context)  # because another subtask was faster
            (self.folder / "failed").write_text(repr(time.monotonic()))
            raise RuntimeError("a benchmark's fault")
        return super().onMessage(message, context)

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.count, self.array

    def restoreState(self, state: Any) -> None:
        self.count, self.array = state
