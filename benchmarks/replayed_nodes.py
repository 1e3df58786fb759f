"""The nodes of runs in each mode: records that can be read again, sums of keyed state, and a sink that notes progress.

The module has few imports, because forked workers import it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.keyed_rows import BURST_MESSAGES, bursts
from cutline import END, Context, Graph, Node, ReplayableSource, Sink

#: Machines of the job `state_machine`, and the next state by state and event: ordered, paid, sent, returned.
MACHINES = 100_000
_NEXT = ((1, 0, 0, 0), (1, 2, 1, 0), (2, 2, 3, 3), (3, 0, 3, 3))
#: A job of four nodes, of which the third is slow: seconds that it takes for each list.
LAGGARD, _SLOW_S = "laggard", 0.002
#: Keys of the job `keyed_sum`.
SUM_KEYS = 1_000_000
#: Incarnations of a run that can be told apart.
_INCARNATIONS = 64
PARTITIONS = ("a", "b", "c", "d")
#: Keys of the job `large_state`, bytes of each value, and of the noise that values are cut from.
LARGE_KEYS, BLOB_BYTES = 4_000_000, 1_000
_NOISE_BYTES = 1 << 20

Record = tuple[Any, int]


def _words() -> list[list[Record]]:
    """Return bursts of (word, 1) over 10,000 words."""
    return [[(word, 1) for word, _ in burst] for burst in bursts()]


def _numbers() -> list[list[Record]]:
    """Return bursts of (number, value), in which each of 1 M numbers is there once, in mixed order."""
    numbers = np.random.default_rng(7).permutation(SUM_KEYS).tolist()
    table = [(number, number % 1_000) for number in numbers]
    return [table[at : at + BURST_MESSAGES] for at in range(0, SUM_KEYS, BURST_MESSAGES)]


def _large() -> list[npt.NDArray[np.int64]]:
    """Return bursts of numbers, in which each of 4 M is there once, in mixed order. A record is (number, 0)."""
    return np.array_split(np.random.default_rng(7).permutation(LARGE_KEYS), LARGE_KEYS // BURST_MESSAGES)


def _events() -> list[list[Record]]:
    """Return bursts of (number of a machine, event), of 100,000 machines, in mixed order."""
    rng = np.random.default_rng(7)
    machines, events = rng.integers(0, MACHINES, SUM_KEYS).tolist(), rng.integers(0, len(_NEXT[0]), SUM_KEYS).tolist()
    table = list(zip(machines, events, strict=True))
    return [table[at : at + BURST_MESSAGES] for at in range(0, SUM_KEYS, BURST_MESSAGES)]


#: {job: returns its bursts}
JOBS: dict[str, Callable[[], Sequence[Any]]] = {
    "wordcount": _words,
    "state_machine": _events,
    "keyed_sum": _numbers,
    "large_state": _large,
    LAGGARD: _words,
}


def first_burst(partition: str, bursts: int) -> int:
    """Return the number of the burst that a partition sends first."""
    return PARTITIONS.index(partition) * bursts // len(PARTITIONS)


class Records(ReplayableSource):
    """Sends the bursts of a job from four partitions, until the file `enough` is there. An offset counts bursts."""

    def __init__(self, job: str, enough: Path) -> None:
        self.job, self.enough = job, enough

    def partitions(self) -> tuple[str, ...]:
        return PARTITIONS

    def open(self, context: Context) -> None:
        self.bursts = JOBS[self.job]()

    def first(self, partition: str) -> int:
        return 0

    def available(self, partition: str, start: int) -> Any:
        return END if self.enough.exists() else start + 1

    def read(self, partition: str, start: int, stop: int, context: Context) -> None:
        behind = first_burst(partition, len(self.bursts))
        for number in range(start, stop):
            burst = self.bursts[(number + behind) % len(self.bursts)]
            context.sendAll(burst if isinstance(burst, list) else [(key, 0) for key in burst.tolist()])


class Sums(Node):
    """Adds up the values of each key. Sends (records, sum of values) of each list, and at the end (0, minus all)."""

    deterministic = True

    def open(self, context: Context) -> None:
        self.sums = context.getReducingState("sums", "sum")

    def onMessages(self, messages: list[Record], context: Context) -> None:
        keys, values = zip(*messages, strict=True)
        self.sums.addAll(keys, values)
        context.send((len(messages), sum(values)))

    def onEnd(self, context: Context) -> None:
        context.send((0, -sum(value for _, value in self.sums.items())))


class Pass(Node):
    """Sends what it gets."""

    deterministic = True

    def onMessages(self, messages: list[Record], context: Context) -> None:
        context.sendAll(messages)


class SlowSums(Sums):
    """Takes its time for each list."""

    def onMessages(self, messages: list[Record], context: Context) -> None:
        time.sleep(_SLOW_S)
        super().onMessages(messages, context)


class Machines(Node):
    """Moves a machine of four states by events. Sends (records, change of the sum of all states) of each list."""

    deterministic = True

    def open(self, context: Context) -> None:
        self.states = context.getValueState("state")

    def onMessages(self, messages: list[Record], context: Context) -> None:
        keys = list(dict.fromkeys(key for key, _ in messages))
        states = dict(zip(keys, (state or 0 for state in self.states.getAll(keys)), strict=True))
        before = sum(states.values())
        for key, event in messages:
            states[key] = _NEXT[states[key]][event]
        self.states.updateAll(keys, list(states.values()))
        context.send((len(messages), sum(states.values()) - before))

    def onEnd(self, context: Context) -> None:
        context.send((0, -sum(state for _, state in self.states.items())))


class Blobs(Node):
    """Keeps a value of 1,000 bytes for each key. Sends (records, 0) of each list. At the end compares all values."""

    deterministic = True

    def open(self, context: Context) -> None:
        self.blobs = context.getValueState("blobs")
        self.noise = np.random.default_rng(7).bytes(_NOISE_BYTES)

    def onMessages(self, messages: list[Record], context: Context) -> None:
        keys = [key for key, _ in messages]
        self.blobs.updateAll(keys, [self._blob(key) for key in keys])
        context.send((len(messages), 0))

    def onEnd(self, context: Context) -> None:
        context.send((0, sum(blob != self._blob(key) for key, blob in self.blobs.items())))

    def _blob(self, key: int) -> bytes:
        at = key * 37 % (_NOISE_BYTES - BLOB_BYTES)
        return self.noise[at : at + BLOB_BYTES]


class Progress:
    """Records that a run has put out: of each incarnation, and of the newest restore.

    Memory shared by all processes that open the same file.
    """

    def __init__(self, path: Path) -> None:
        path.touch()
        with path.open("r+b") as file:
            file.truncate(8 * (_INCARNATIONS + 1))
        self._numbers = np.memmap(path, np.int64, "r+", shape=(_INCARNATIONS + 1,))

    def note(self, incarnation: int, records: int) -> None:
        """Note how many records were put out, those before the incarnation included."""
        self._numbers[incarnation] = records

    def note_restored(self, records: int) -> None:
        """Note how many records had been put out at the snapshot that is restored."""
        self._numbers[0] = records

    @property
    def restored(self) -> int:
        """Records that had been put out at the snapshot that was restored last."""
        return int(self._numbers[0])

    def until(self, incarnation: int) -> int:
        """Return the most records that incarnations up to this one have put out."""
        return int(self._numbers[1 : incarnation + 1].max())

    def after(self, incarnation: int) -> int:
        """Return the most records that later incarnations have put out."""
        return int(self._numbers[incarnation + 1 :].max())


class Balance(Sink):
    """Notes progress in a file. State: the records put out, and the sum of all values, which is 0 after the end."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.records = self.values = 0

    def open(self, context: Context) -> None:
        self.progress = Progress(self.path)
        self.progress.note_restored(self.records)

    def onMessage(self, message: tuple[int, int], context: Context) -> None:
        self.records += message[0]
        self.values += message[1]
        self.progress.note(context.incarnation, self.records)

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.records, self.values

    def restoreState(self, state: Any) -> None:
        self.records, self.values = state


#: {job: its node}; of any other job `Sums`
_NODES: dict[str, type[Node]] = {"state_machine": Machines, "large_state": Blobs, LAGGARD: SlowSums}


def sums_graph(job: str, folder: Path, parallelism: int) -> Graph:
    """Make a job. It ends when the file ``enough`` is in the folder, and notes progress in the file ``progress``."""
    graph = Graph(job).add("records", Records(job, folder / "enough"), parallelism=parallelism)
    graph.add("sums", _NODES.get(job, Sums)(), parallelism=parallelism).add("balance", Balance(folder / "progress"))
    graph.connect("sums", "balance")
    if job != LAGGARD:
        return graph.connect("records", "sums", key=itemgetter(0))
    graph.add("pass", Pass(), parallelism=parallelism).connect("records", "pass")
    return graph.connect("pass", "sums", key=itemgetter(0))
