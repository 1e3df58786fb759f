"""The nodes of runs that are rescaled: a source with partitions, a node with keyed state, and an output that verifies.

Records are numbered within lanes. A lane is a partition of the source and the key of all edges, so its records arrive
in order at whatever parallelism. Each node that verifies raises at a record that is lost, doubled or late.

The module has few imports, because forked workers import it.
"""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path
from typing import Any

from cutline import END, Context, Graph, Node, Sink, Source
from cutline.snapshot.node import End

#: Lanes of a job. Each parallelism that is measured gives lanes to all subtasks.
LANES = 24


def lane_of(record: tuple[int, int]) -> int:
    """Return the key of a record."""
    return record[0]


class Lanes(Source):
    """Sends `rate` records a second of all lanes together, until the file `enough` is there.

    Parameters
    ----------
    enough : Path
    rate : float
        records a second, or 0 for as fast as the channels take records.
    """

    guarantee = "exactly_once"

    def __init__(self, enough: Path, rate: float) -> None:
        self.enough, self.rate = enough, rate
        self.next: dict[str, int] = {}
        self.sent = 0
        self.began: float | None = None

    def partitions(self) -> list[str]:
        return [str(lane) for lane in range(LANES)]

    def open(self, context: Context) -> None:
        self.began, self.sent = None, 0

    def poll(self, context: Context) -> float | End | None:
        if self.enough.exists():
            return END
        if self.began is None:
            self.began = context.now
        share = self.rate * len(context.partitions) / LANES
        if self.rate and self.sent >= (context.now - self.began) * share:
            return 0.001
        for partition in context.partitions:
            number = self.next.get(partition, 0)
            context.send((int(partition), number))
            self.next[partition] = number + 1
        self.sent += len(context.partitions)
        return None

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.next

    def restoreState(self, state: Any) -> None:
        self.next = dict(state)


class Ordered(Node):
    """Passes records on, and raises at a record that is not the next of its lane. Keeps rows of keyed state.

    Parameters
    ----------
    rows : int
        rows of all lanes together, besides one of each lane. A lane gets its rows with its first record.
    """

    def __init__(self, rows: int = 0) -> None:
        self.rows = rows // LANES

    def open(self, context: Context) -> None:
        self.due = context.getValueState("due")
        self.held = context.getMapState("rows")

    def onMessage(self, record: tuple[int, int], context: Context) -> None:
        due = self.due.get() or 0
        if record[1] != due:
            raise AssertionError(f"{context.subtask}: lane {record[0]} sent {record[1]}, and {due} was due")
        if due == 0:
            for number in range(self.rows):
                self.held.updateValue(number, number)
        self.due.update(due + 1)
        context.send(record)


class Output(Sink):
    """Notes when records come that no earlier incarnation has output, as lines ``incarnation first|last seconds``.

    The highest number of each lane survives the process in a mapped file. Seconds are of the monotonic clock, because
    all processes of a machine share it.

    Parameters
    ----------
    folder : Path
    delay : float
        seconds that a record takes, or 0.
    """

    def __init__(self, folder: Path, delay: float = 0.0) -> None:
        self.folder, self.delay = folder, delay

    def open(self, context: Context) -> None:
        self.last = 0.0
        self.incarnation = context.incarnation
        self.lines = (self.folder / f"output-{context.incarnation}-{context.subtask.index}").open("a", buffering=1)
        with (self.folder / "highest").open("a+b") as file:
            file.truncate(8 * LANES)
            self.map = mmap.mmap(file.fileno(), 8 * LANES)

    def onMessage(self, record: tuple[int, int], context: Context) -> None:
        if self.delay:
            time.sleep(self.delay)
        place = slice(8 * record[0], 8 * record[0] + 8)
        if record[1] + 1 <= int.from_bytes(self.map[place], "big"):
            return
        self.map[place] = (record[1] + 1).to_bytes(8, "big")
        if not self.last:
            self.lines.write(f"{self.incarnation} first {time.monotonic()}\n")
        self.last = time.monotonic()

    def close(self) -> None:
        self.lines.write(f"{self.incarnation} last {self.last}\n")
        self.lines.close()
        self.map.close()


def lanes_graph(folder: Path, parallelism: int, *, rate: float, rows: int = 0, sink: Sink | None = None) -> Graph:
    """Make the job: lanes, the node with keyed state, the output. A given sink replaces the output."""
    os.makedirs(folder, exist_ok=True)
    graph = Graph("lanes").add("lanes", Lanes(folder / "enough", rate), parallelism=parallelism)
    graph.add("ordered", Ordered(rows), parallelism=parallelism)
    graph.add("output", sink or Output(folder), parallelism=parallelism)
    return graph.connect("lanes", "ordered", key=lane_of).connect("ordered", "output", key=lane_of)


def everywhere(parallelism: int) -> dict[str, int]:
    """Return the parallelism of all nodes of the job."""
    return dict.fromkeys(("lanes", "ordered", "output"), parallelism)


def pause_seconds(folder: Path, incarnation: int) -> float | None:
    """Return the seconds without output that ended with the first new record after `incarnation`, or None so far."""
    lines = [line.split() for path in folder.glob("output-*") for line in path.read_text().splitlines()]
    first = [float(at) for number, what, at in lines if what == "first" and int(number) > incarnation]
    last = [float(at) for number, what, at in lines if what == "last" and int(number) <= incarnation]
    return min(first) - max(last) if first and last else None
