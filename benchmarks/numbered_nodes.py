"""The nodes of jobs of numbered records: a source, a relay, and a ledger that verifies.

Every record is a number, a header computed from the number, and payload bytes computed from both (RELIABILITY,
checker 7). Numbers with the same remainder form a lane, and take the same way through a graph. Records of a lane must
arrive in order. So the ledger finds records that are lost, doubled, late or damaged.

The module has few imports, because forked workers import it.
"""

from __future__ import annotations

import mmap
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from cutline import END, Context, Node, Sink, Source
from cutline.snapshot.node import End

#: Lanes of one source subtask. Eight reach every subtask at each parallelism that is tested.
LANES = 8
#: Records that a source sends before it ends, because they show damage done by a late fault.
TAIL = 200
#: Multiplier of the headers (Knuth's golden ratio). Neighbouring numbers differ in all bytes of their headers.
_MIX = 0x9E3779B97F4A7C15
_HEADER_MASK = 2**63 - 1

Record = tuple[int, int, bytes]


def record_of(number: int) -> Record:
    """Compute the record of a number."""
    header = number * _MIX & _HEADER_MASK
    return number, header, header.to_bytes(8, "big") * (number % 5)


class Numbers(Source):
    """Sends i, i + n, i + 2n, … (i: index, n: parallelism) until the folder `done` holds `enough` files, then a tail.

    Parameters
    ----------
    done : Path
    enough : int
    burst : int
        records in a poll.
    pause : float
        seconds between two polls, or 0 for as fast as the channels take records.
    """

    def __init__(self, done: Path, enough: int = 1, *, burst: int = 20, pause: float = 0.02) -> None:
        self.done, self.enough, self.burst, self.pause = done, enough, burst, pause
        self.next: int | None = None
        self.left: int | None = None

    def open(self, context: Context) -> None:
        if self.next is None:
            self.next = context.subtask.index

    def poll(self, context: Context) -> float | End:
        assert self.next is not None
        if self.left is None and len(os.listdir(self.done)) >= self.enough:
            self.left = TAIL
        count = self.burst if self.left is None else min(self.burst, self.left)
        for _ in range(count):
            context.send(record_of(self.next))
            self.next += context.parallelism
        if self.left is not None:
            self.left -= count
            if not self.left:
                return END
        return self.pause

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.next, self.left

    def restoreState(self, state: Any) -> None:
        self.next, self.left = state


class Lane:
    """The key of a record: the number of its lane within its source."""

    def __init__(self, sources: int) -> None:
        self.sources = sources

    def __call__(self, record: Record) -> int:
        return record[0] // self.sources % LANES


class Relay(Node):
    """Passes every message on, and counts."""

    def __init__(self) -> None:
        self.count = 0

    def onMessage(self, message: Any, context: Context) -> None:
        self.count += 1
        context.send(message)

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.count

    def restoreState(self, state: Any) -> None:
        self.count = state


class Ledger(Sink):
    """Verifies every record, and writes it in two phases: files in ``prepared`` are moved to ``committed``.

    State: the next number of every lane, the skipped numbers, and the counts of errors by kind.
    """

    def __init__(self, folder: Path, sources: int, *, delay: float = 0.0) -> None:
        self.folder, self.stride, self.delay = folder, sources * LANES, delay
        self.next: dict[int, int] = {}
        self.skipped: list[int] = []
        self.wrong = {"duplicate": 0, "disorder": 0, "corrupt": 0}
        self.fresh: list[int] = []
        self.watch: Watermark | None = None

    def open(self, context: Context) -> None:
        self.place = f"{context.incarnation}-{context.subtask.index}"
        self.watch = Watermark(self.folder / f"watch-{context.subtask.index}", context.incarnation)

    def close(self) -> None:
        if self.watch is not None:
            self.watch.close()

    def onMessage(self, message: Any, context: Context) -> None:
        assert self.watch is not None
        if self.delay:
            time.sleep(self.delay)
        number = message[0]
        self.verify(tuple(message), number)
        self.fresh.append(number)
        self.watch.see(number)

    def verify(self, record: Record, number: int) -> None:
        self.wrong["corrupt"] += record != record_of(number)
        lane = number % self.stride
        expected = self.next.get(lane, lane)
        if number >= expected:
            self.skipped += range(expected, number, self.stride)
            self.next[lane] = number + self.stride
        elif number in self.skipped:
            self.skipped.remove(number)
            self.wrong["disorder"] += 1
        else:
            self.wrong["duplicate"] += 1

    def prepareCommit(self, snapshotId: int) -> Any:
        if not self.fresh:
            return None
        name = f"{self.place}-{snapshotId}"
        (self.folder / "prepared" / name).write_text("".join(f"{number}\n" for number in self.fresh))
        self.fresh = []
        return name

    def commit(self, snapshotId: int, prepared: Any) -> None:
        with suppress(FileNotFoundError):  # moved already
            (self.folder / "prepared" / prepared).rename(self.folder / "committed" / prepared)

    def discardUncommitted(self, context: Context) -> None:
        for path in (self.folder / "prepared").iterdir():
            if int(path.name.partition("-")[0]) < context.incarnation:
                path.unlink(missing_ok=True)

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.next, self.skipped, self.wrong

    def restoreState(self, state: Any) -> None:
        self.next, self.skipped, self.wrong = state


class Watermark:
    """Notes for other processes when a subtask acted on something new, as lines ``incarnation seconds what value``.

    The highest number ever seen survives the process in a mapped file. ``new`` is noted with the first record of an
    incarnation that no earlier one had processed. ``gap`` is noted with every pause of more than `GAP_SECONDS`.
    Seconds are of the monotonic clock, because all processes of a machine share it.
    """

    #: seconds of a pause that is noted. A busy core alone causes shorter pauses.
    GAP_SECONDS = 0.1

    def __init__(self, path: Path, incarnation: int) -> None:
        self.incarnation = incarnation
        self.lines = path.with_suffix(".lines").open("a", buffering=1)
        with path.open("a+b") as file:
            file.truncate(8)
            self.map = mmap.mmap(file.fileno(), 8)
        self.ceiling = self.highest
        self.is_past = False
        self.last = time.monotonic()

    @property
    def highest(self) -> int:
        return int.from_bytes(self.map, "big") - 1

    def see(self, number: int) -> None:
        now = time.monotonic()
        if now - self.last > self.GAP_SECONDS:
            self.lines.write(f"{self.incarnation} {now} gap {now - self.last}\n")
        self.last = now
        if number > self.highest:
            self.map[:] = (number + 1).to_bytes(8, "big")
        if not self.is_past and number > self.ceiling:
            self.is_past = True
            self.lines.write(f"{self.incarnation} {now} new {number}\n")

    def close(self) -> None:
        self.lines.close()
