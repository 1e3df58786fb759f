"""Makes the stored snapshots of format 1 below ``format_1/``: ``python -m tests.stored_format.generate``.

Each fixture is a simulated run of a graph of `tests.stored_format.graphs`. The schedule names each step, so the bytes
are the same each time. The simulator runs the real subtask machines, the real coordinator and the real store; what its
store holds at the end of the schedule is written by `FileSystemBackend`, file by file.

Two fixtures add a snapshot to that, by the real store. ``reused`` lists parts of the snapshot before it, because no
release has reused a part so far and format 1 allows that. ``sent_together`` holds flat tuples, because the simulator
observes each message and so takes them one by one.

Never make the files of a released format again: write new ones beside them. A fixture is a promise about old stores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cutline import FileSystemBackend, Graph, MemoryBackend
from cutline.snapshot.channel.frame import Frame, PayloadKind
from cutline.snapshot.channel.frame_codec import encoded_together, frame_of_pieces, messages_of
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.plan.declarations import AlignmentWish
from cutline.snapshot.stored.manifest import Manifest
from cutline.snapshot.stored.part import Part, channel_part, decode_frames, state_part
from cutline.snapshot.stored.run_store import RunStore
from cutline.snapshot.testing.steps import (
    Arrive,
    Crash,
    Deliver,
    Doubt,
    Initiate,
    Inject,
    Poll,
    Quiesce,
    RequestSnapshot,
    Step,
    Tick,
    Timer,
    Transmit,
)
from cutline.testing import Simulator
from tests.stored_format import graphs

#: Where the fixtures are: a folder each, which is the root of a `FileSystemBackend`.
FORMAT_1 = Path(__file__).parent / "format_1"

#: Seeds whose runs put several messages into a frame are even; without a seed each message has its own.
SHARED_FRAMES = 2

#: Nodes of `partitions` whose edges have two channels from each subtask.
SPREADS = ("turns", "all")


@dataclass(frozen=True)
class Fixture:
    """A stored run, and how to make it."""

    #: of the folder; the run has the graph's name
    name: str
    graph: Callable[[], Graph]
    #: none: the run goes to its end
    schedule: Sequence[Step]
    seed: int | None = None
    alignment: AlignmentWish = "unaligned"
    #: changes the store behind the run
    finish: Callable[[RunStore], None] = lambda store: None

    def make(self) -> dict[str, bytes]:
        """The files of the run, ``{path: bytes}``."""
        files: dict[str, bytes] = {}
        simulator = Simulator(self.graph(), [], seed=self.seed, alignment=self.alignment, files=files)
        for step in self.schedule:
            simulator.take(step)
        if not self.schedule:
            simulator.finish()
        backend = MemoryBackend()
        for path, data in files.items():
            backend.put_if_absent(path, [data])
        self.finish(RunStore(backend, self.graph().name))
        return {path: backend.get(path) for path in backend.files()}


def move(source: str, target: str, count: int = 1) -> list[Step]:
    """`count` frames come into the receiver's queue."""
    return [step for _ in range(count) for step in (Transmit(source, target), Arrive(source, target))]


def polls(source: str, count: int) -> list[Step]:
    """`count` polls."""
    return [Poll(source)] * count


def cut(source: str, *targets: str) -> list[Step]:
    """Snapshot 1 begins at `source`; its markers overtake all messages on the way along `targets`."""
    markers: list[Step] = []
    for earlier, later in zip((source, *targets), targets, strict=False):
        markers.append(Deliver(earlier, later, marker=True))
    return [Initiate(1, source), *markers, Quiesce()]


def reuse(store: RunStore) -> None:
    """Publish a snapshot that lists the parts of the newest one: nothing has changed since."""
    newest = store.manifests()[-1]
    manifest = store.read_manifest(newest)
    assert isinstance(manifest, Manifest)
    assert store.write_manifest(replace(manifest, snapshot_id=newest + 1, timestamp=manifest.timestamp + 1.0))


def flatten(store: RunStore) -> None:
    """Publish a snapshot whose parts hold flat tuples, as `sendAll` encodes them where nobody observes the sender."""
    newest, codec = store.manifests()[-1], Codec()
    manifest = store.read_manifest(newest)
    assert isinstance(manifest, Manifest)
    records = []
    for record in manifest.records:
        parts: list[Part] = []
        for handle in record.handles:
            origin, body = (handle.run, handle.incarnation, newest + 1), store.read_part(handle)
            if handle.channel is None:
                parts.append(state_part(*origin, handle.subtask, [body]))
            else:
                frames = [_flat(frame, codec) for frame in decode_frames(handle, body)]
                parts.append(channel_part(handle.kind, *origin, handle.channel, frames))
        records.append(replace(record, handles=tuple(store.put_parts(parts))))
    timestamp = manifest.timestamp + 1.0
    assert store.write_manifest(replace(manifest, snapshot_id=newest + 1, timestamp=timestamp, records=tuple(records)))


def _flat(frame: Frame, codec: Codec) -> Frame:
    """The frame as `sendAll` makes it."""
    messages = messages_of(frame, codec)
    if frame.kind is not PayloadKind.TUPLES or not isinstance(messages, list):
        return frame
    encoded = encoded_together(messages, codec, are_tuples=True)
    assert encoded is not None
    kind, piece = encoded
    return frame_of_pieces(frame.first, kind, [piece], frame.count)


# ---------------------------------------------------------------- fixtures

#: One message comes all the way from the first node to the last.
_PLAIN_MESSAGE = [Poll("numbers"), Deliver("numbers", "tally"), Deliver("tally", "out")]

FIXTURES = (
    # Nothing is in flight: two of four messages came through.
    Fixture("plain", graphs.plain, [*_PLAIN_MESSAGE, *_PLAIN_MESSAGE, *cut("numbers", "tally", "out")]),
    # A frame each: two handled, five in the receiver's queue, the rest and the end in the sender's out-buffer.
    Fixture(
        "channel_state",
        graphs.channel_state,
        [
            *polls("source", 12),
            *move("source", "keeper", 7),
            *(Deliver("source", "keeper"), Deliver("source", "keeper")),
            *cut("source", "keeper", "out"),
        ],
    ),
    # Shared frames: a cut falls inside one, and the end is in the receiver's queue.
    Fixture(
        "shared_frames",
        graphs.channel_state,
        [
            *polls("source", 4),
            *move("source", "keeper"),
            *polls("source", 8),
            *move("source", "keeper", 3),
            *(Transmit("source", "keeper"), Arrive("source", "keeper", end=True)),
            *(Deliver("source", "keeper"), Deliver("source", "keeper")),
            *cut("source", "keeper", "out"),
        ],
        seed=SHARED_FRAMES,
    ),
    # Messages that were sent together; the cut falls inside the first frame.
    Fixture(
        "sent_together",
        graphs.together,
        [
            *(Poll("source"), *move("source", "keeper"), Deliver("source", "keeper"), *polls("source", 3)),
            *cut("source", "keeper", "out"),
        ],
        seed=SHARED_FRAMES,
        finish=flatten,
    ),
    # The partial aggregate holds a row; a batch is in a queue, and two share a frame in an out-buffer.
    Fixture(
        "batches",
        graphs.batches,
        [
            *(Poll("source"), Deliver("source", "keeper"), Deliver("keeper", "partial")),
            *(Poll("source"), Deliver("source", "keeper"), Deliver("keeper", "partial"), Deliver("partial", "totals")),
            *(Poll("source"), Deliver("source", "keeper"), Deliver("keeper", "partial")),
            *(Poll("source"), *move("source", "keeper"), Poll("source"), Poll("source")),
            *cut("source", "keeper", "partial", "totals", "out"),
        ],
    ),
    Fixture(
        "timers",
        graphs.timers,
        [
            *polls("source", 3),
            *(Deliver("source", "keyed"), Deliver("source", "keyless")) * 2,
            Tick(0.5),
            *(Deliver("source", "keyed"), Deliver("source", "keyless")),
            *(Tick(0.5), Timer("keyed")),
            Initiate(1, "source"),
            *(Deliver("source", "keyed", marker=True), Deliver("source", "keyless", marker=True)),
            *(Deliver("keyed", "out", marker=True), Deliver("keyless", "out", marker=True), Quiesce()),
        ],
    ),
    # Snapshot 1 is published, snapshot 2 is aborted, and snapshot 3 holds the output of both that wait.
    Fixture(
        "prepared",
        graphs.prepared,
        [
            *(Poll("numbers"), Deliver("numbers", "out"), *cut("numbers", "out")),
            *(Poll("numbers"), Deliver("numbers", "out"), Doubt("never"), Initiate(2, "numbers")),
            *(Deliver("numbers", "out", marker=True), Quiesce()),
            *(Poll("numbers"), Deliver("numbers", "out"), Initiate(3, "numbers")),
            *(Deliver("numbers", "out", marker=True), Quiesce()),
        ],
    ),
    # Offsets differ, and one sender's turn has moved on; aligned edges hold no messages, others do.
    Fixture(
        "partitions",
        graphs.partitions,
        [
            *(Poll("shelves"), *polls("shelves[1]", 2), *move("shelves[1]", "director")),
            *(Deliver(f"shelves[{i}]", f"turns[{j}]") for i in (0, 1) for j in (0, 1)),
            *(Deliver(f"shelves[{i}]", f"all[{j}]") for i in (0, 0, 1, 1) for j in (0, 1)),
            *(Initiate(1, "shelves"), Initiate(1, "shelves[1]")),
            *(Deliver(f"shelves[{index}]", "director", marker=True) for index in range(2)),
            *(
                Deliver(f"shelves[{i}]", f"{node}[{j}]", marker=True)
                for node in SPREADS
                for i in (0, 1)
                for j in (0, 1)
            ),
            *(Deliver("director", f"out[{index}]", marker=True) for index in range(2)),
            *(Deliver(f"turns[{i}]", f"out[{j}]", marker=True) for i in (0, 1) for j in (0, 1)),
            *(Deliver(f"all[{index}]", f"out[{index}]", marker=True) for index in range(2)),
            Quiesce(),
        ],
    ),
    Fixture(
        "cycle",
        graphs.cycle,
        [
            *(Initiate(1, "P"), Inject("P", "green"), Inject("Q", "orange"), Transmit("Q", "P")),
            *(Deliver("P", "Q", marker=True), Deliver("P", "Q"), Deliver("Q", "P", marker=True), Quiesce()),
        ],
    ),
    Fixture(
        "chance",
        graphs.chance,
        [Poll("numbers"), Deliver("numbers", "dice"), Deliver("dice", "out"), *cut("numbers", "dice", "out")],
    ),
    Fixture(
        "pickled",
        graphs.pickled,
        [
            *polls("source", 4),
            *(*move("source", "keeper", 2), Deliver("source", "keeper")),
            *cut("source", "keeper", "out"),
        ],
    ),
    Fixture("large_state", graphs.large, [Poll("numbers"), *cut("numbers", "keeper", "out")]),
    # Snapshot 1 is pinned; snapshot 2 is the newest.
    Fixture(
        "pinned",
        graphs.prepared,
        [
            *(Poll("numbers"), Deliver("numbers", "out"), RequestSnapshot(pinned=True), Quiesce()),
            *(Deliver("numbers", "out", marker=True), Quiesce(), Poll("numbers"), Deliver("numbers", "out")),
            *(RequestSnapshot(), Quiesce(), Deliver("numbers", "out", marker=True), Quiesce()),
        ],
    ),
    # Published: 1 of claim 1, 1 of claim 2. Aborted: 2 of claim 1. A worker died, and so claim 2 has a base.
    Fixture(
        "claims",
        graphs.prepared,
        [
            *(Poll("numbers"), Deliver("numbers", "out"), *cut("numbers", "out")),
            *(Poll("numbers"), Deliver("numbers", "out"), Doubt("never"), Initiate(2, "numbers")),
            *(Deliver("numbers", "out", marker=True), Quiesce()),
            *(Crash("out"), Quiesce(), Poll("numbers"), Deliver("numbers", "out")),
            *(Poll("numbers"), *cut("numbers", "out")),
        ],
    ),
    # Snapshot 2 lists the parts of snapshot 1, those in files and those inside its manifest.
    Fixture(
        "reused",
        graphs.pickled,
        [
            *polls("source", 4),
            *(*move("source", "keeper", 2), Deliver("source", "keeper")),
            *cut("source", "keeper", "out"),
        ],
        finish=reuse,
    ),
    Fixture("finished", graphs.plain, []),
)


def write(fixtures: Sequence[Fixture], folder: Path) -> None:
    """Write all fixtures that are not there."""
    for fixture in fixtures:
        backend = FileSystemBackend(folder / fixture.name)
        for path, data in fixture.make().items():
            assert backend.put_if_absent(path, [data]) or backend.get(path) == data, f"{fixture.name}: {path} differs"


if __name__ == "__main__":
    write(FIXTURES, FORMAT_1)
