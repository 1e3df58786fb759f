"""A small keyed run whose snapshot has rows of every kind and messages in flight, for tests that edit it."""

from __future__ import annotations

from typing import Any

from cutline import Context, Graph, Node, Snapshot
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.stored.backend import StateBackend
from cutline.snapshot.stored.memory_files import MemoryFiles
from cutline.snapshot.stored.run_store import RunStore
from cutline.snapshot.testing.steps import Deliver, Initiate, Poll, Quiesce, Step
from cutline.testing import ListSink, ListSource, Simulator

RUN = "mended"

#: Messages of the run. Keys a, b and c are of one subtask.
ITEMS = [(letter, number) for number, letter in enumerate("abcabcabcab")]


class Kinds(Node):
    """Keeps each kind of keyed state, with and without time-to-live, a timer of each key, and own state in deltas."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def open(self, context: Context) -> None:
        self.last = context.getValueState("last")
        self.words = context.getListState("words")
        self.brief = context.getListState("brief", ttl=10_000.0)
        self.entries = context.getMapState("entries", ttl=10_000.0)
        self.n = context.getReducingState("n", "sum")

    def onMessage(self, message: Any, context: Context) -> None:
        self.last.update({"message": message[1]})
        self.words.appendValue(message[1])
        self.brief.appendValue(message[1])
        self.entries.updateValue(message[1], message[0])
        self.n.add(1)
        context.registerTimer(5_000.0)
        self.seen.append(message[1])

    def onEnd(self, context: Context) -> None:
        for state in (self.last, self.words, self.brief, self.entries, self.n):
            context.sendAll(sorted(state.items()))

    def snapshotState(self, snapshotId: int, timestamp: float) -> list[Any]:
        return list(self.seen)

    def restoreState(self, state: list[Any] | None) -> None:
        self.seen = list(state or ())

    def snapshotDelta(self, sinceSnapshotId: int) -> list[Any] | None:
        return None

    def applyDelta(self, delta: list[Any]) -> None:
        self.seen += delta


def _letter(message: Any) -> Any:
    return message[0]


def graph(name: str = RUN) -> Graph:
    """Words by their letter, through two subtasks."""
    made = Graph(name).add("words", ListSource(*ITEMS)).add("kinds", Kinds(), parallelism=2).add("out", ListSink())
    return made.connect("words", "kinds", key=_letter).connect("kinds", "out")


#: Six messages are sent, three are processed, and then a snapshot is taken.
SCHEDULE: list[Step] = [
    *(Poll("words"),) * 6,
    *(Deliver("words", "kinds[1]"),) * 3,
    Initiate(1, "words"),
    *(Deliver("words", "kinds[0]", marker=True), Quiesce(), Deliver("words", "kinds[1]", marker=True), Quiesce()),
    *(Deliver("kinds[0]", "out", marker=True), Quiesce(), Deliver("kinds[1]", "out", marker=True), Quiesce()),
]


def simulated() -> tuple[dict[str, bytes], Simulator]:
    """The store of a run with one snapshot, and the run, which goes on."""
    files: dict[str, bytes] = {}
    simulator = Simulator(graph(), [], files=files)
    for step in SCHEDULE:
        simulator.take(step)
    return files, simulator


def opened(backend: StateBackend, run: str = RUN) -> Snapshot:
    """The newest snapshot of a run."""
    return RunStore(backend, run).read_snapshots(Codec())[-1]


def in_memory(files: dict[str, bytes]) -> MemoryFiles:
    """A backend whose parts are in files and inside manifests."""
    return MemoryFiles(files, inline_bytes_max=250)


def outcome(files: dict[str, bytes], run: str = RUN, *, seed: int = 0, faults: int = 0) -> list[Any]:
    """What the run puts out from its newest snapshot to its end."""
    history = Simulator(graph(run), seed, files=files, faults=faults).run()
    assert history.reason == "all nodes have ended"
    return history.output("out")
