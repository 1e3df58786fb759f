"""The nodes of the keyed benchmarks. Sources and sinks note when they began and ended, by the monotonic clock.

The module has few imports, because forked workers import it.
"""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.keyed_rows import batches, bursts
from cutline import END, Context, Node, Sink, Source
from cutline.snapshot.node import End


class TimedSource(Source):
    """Sends a round in each poll, for `seconds`.

    State: when the source began, the rounds sent, and ``{number of the window of window_seconds: rounds in it}``.
    """

    def __init__(self, seconds: float, window_seconds: float = math.inf) -> None:
        self.seconds, self.window_seconds = seconds, window_seconds
        self.began_at = 0.0
        self.rounds = 0
        self.by_window: dict[int, int] = {}

    def poll(self, context: Context) -> float | End | None:
        now = time.monotonic()
        if not self.rounds:
            self.began_at = now
        elif now >= self.began_at + self.seconds:
            return END
        self.send_round(context)
        self.rounds += 1
        window = int(now // self.window_seconds)
        self.by_window[window] = self.by_window.get(window, 0) + 1
        return None

    @abstractmethod
    def send_round(self, context: Context) -> None:
        """Send one round."""

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.began_at, self.rounds, self.by_window

    def restoreState(self, state: Any) -> None:
        self.began_at, self.rounds, self.by_window = state


class Messages(TimedSource):
    """Sends bursts of (key, value), each burst as a list, or message by message if `is_single`."""

    def __init__(self, seconds: float, window_seconds: float = math.inf, *, is_single: bool = False) -> None:
        super().__init__(seconds, window_seconds)
        self.is_single = is_single

    def open(self, context: Context) -> None:
        self.bursts = bursts()

    def send_round(self, context: Context) -> None:
        burst = self.bursts[self.rounds % len(self.bursts)]
        if not self.is_single:
            context.sendAll(burst)
            return
        for message in burst:
            context.send(message)


class SharedCounters:
    """A counter of each source subtask and a sign to end, in memory shared by all processes that open the same file.

    Parameters
    ----------
    path : Path
        made if it does not exist.
    parallelism : int
        subtasks of the source.
    """

    def __init__(self, path: Path, parallelism: int) -> None:
        path.touch()
        with path.open("r+b") as file:
            file.truncate(8 * (parallelism + 1))
        self._numbers = np.memmap(path, np.int64, "r+", shape=(parallelism + 1,))

    @property
    def rounds(self) -> int:
        """The rounds sent by all subtasks."""
        return int(self._numbers[:-1].sum())

    @property
    def all_have_begun(self) -> bool:
        """Whether each subtask has sent a round."""
        return bool(self._numbers[:-1].min() > 0)

    def count(self, index: int) -> None:
        """Count one more round of a subtask."""
        self._numbers[index] += 1

    def end(self) -> None:
        """Request that all subtasks end."""
        self._numbers[-1] = 1

    @property
    def has_ended(self) -> bool:
        """Whether subtasks are to end."""
        return bool(self._numbers[-1])


class CountedMessages(Messages):
    """Sends bursts of (key, value) as lists until the counters in `path` request the end."""

    def __init__(self, path: Path) -> None:
        super().__init__(math.inf)
        self.path = path

    def open(self, context: Context) -> None:
        super().open(context)
        self.counters, self.index = SharedCounters(self.path, context.parallelism), context.subtask.index

    def poll(self, context: Context) -> float | End | None:
        wait = super().poll(context)
        self.counters.count(self.index)
        return END if self.counters.has_ended else wait


class Batches(TimedSource):
    """Sends record batches of (key, value)."""

    def __init__(self, seconds: float, key_type: str, rows_per_batch: int, window_seconds: float = math.inf) -> None:
        super().__init__(seconds, window_seconds)
        self.key_type, self.rows_per_batch = key_type, rows_per_batch

    def open(self, context: Context) -> None:
        self.batches = batches(self.key_type, self.rows_per_batch)

    def send_round(self, context: Context) -> None:
        context.send(self.batches[self.rounds % len(self.batches)])


class RunningSum(Node):
    """Adds up the values of each key, message by message. State: when the last message arrived, and the sums."""

    def __init__(self) -> None:
        self.ended_at = 0.0
        self.sums: dict[str, int] = {}

    def onMessage(self, message: Any, context: Context) -> None:
        key, value = message
        self.sums[key] = self.sums.get(key, 0) + value

    def onEnd(self, context: Context) -> None:
        self.ended_at = time.monotonic()

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.ended_at, self.sums

    def restoreState(self, state: Any) -> None:
        self.ended_at, self.sums = state


class Collected(Sink):
    """Keeps all batches. State: when the last batch arrived, and the batches."""

    def __init__(self) -> None:
        self.ended_at = 0.0
        self.batches: list[pa.RecordBatch] = []

    def onBatch(self, batch: pa.RecordBatch, context: Context) -> None:
        self.batches.append(batch)

    def onEnd(self, context: Context) -> None:
        self.ended_at = time.monotonic()

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.ended_at, self.batches

    def restoreState(self, state: Any) -> None:
        self.ended_at, self.batches = state
