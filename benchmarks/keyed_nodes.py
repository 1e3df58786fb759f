"""The nodes of the keyed benchmarks. Sources and ends note when they began and ended, by the machine's one clock."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from typing import Any

import pyarrow as pa

from benchmarks.keyed_rows import batches, bursts
from snapshot import END, Context, Node, Sink, Source
from snapshot.node import End


class TimedSource(Source):
    """Sends a round in each poll, for so many seconds.

    State: when it began, the rounds that it sent, and {stretch of so many seconds: rounds in it}.
    """

    def __init__(self, seconds: float, stretch_seconds: float = math.inf) -> None:
        self.seconds, self.stretch_seconds = seconds, stretch_seconds
        self.began_at = 0.0
        self.rounds = 0
        self.by_stretch: dict[int, int] = {}

    def poll(self, context: Context) -> float | End | None:
        now = time.monotonic()
        if not self.rounds:
            self.began_at = now
        elif now >= self.began_at + self.seconds:
            return END
        self.send_round(context)
        self.rounds += 1
        stretch = int(now // self.stretch_seconds)
        self.by_stretch[stretch] = self.by_stretch.get(stretch, 0) + 1
        return None

    @abstractmethod
    def send_round(self, context: Context) -> None:
        """Send what is due."""

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.began_at, self.rounds, self.by_stretch

    def restoreState(self, state: Any) -> None:
        self.began_at, self.rounds, self.by_stretch = state


class Messages(TimedSource):
    """Bursts of (key, value), each as a list, or message by message."""

    def __init__(self, seconds: float, stretch_seconds: float = math.inf, *, is_single: bool = False) -> None:
        super().__init__(seconds, stretch_seconds)
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


class Batches(TimedSource):
    """Record batches of (key, value)."""

    def __init__(self, seconds: float, key_type: str, rows_per_batch: int, stretch_seconds: float = math.inf) -> None:
        super().__init__(seconds, stretch_seconds)
        self.key_type, self.rows_per_batch = key_type, rows_per_batch

    def open(self, context: Context) -> None:
        self.batches = batches(self.key_type, self.rows_per_batch)

    def send_round(self, context: Context) -> None:
        context.send(self.batches[self.rounds % len(self.batches)])


class RunningSum(Node):
    """The sum of the values of each key, message by message. State: when the last one was in, and the sums."""

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
    """Keeps the batches that come. State: when the last one was in, and the batches."""

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
