"""Makes the stored snapshots below ``format_2/``: ``python -m tests.stored_format.generate``.

Each fixture is a simulated run of a graph of `tests.stored_format.graphs`. The schedule names each step, so the bytes
are the same each time. The simulator runs the real subtask machines, the real coordinator and the real store. What its
store holds at the end of the schedule is written by `FileSystemBackend`, file by file.

Three fixtures add snapshots, by the real store. ``reused`` lists parts of the snapshot before it. ``sent_together``
holds flat tuples, because the simulator observes each message and so takes them one by one. ``lists`` has lists that a
small run does not have: pieces inside the manifest, a clip, a base, and a key group in two pieces. The bodies of its
pieces are plain text, because nothing opens them.

Make the files again only with another number of the format. A fixture is a promise about stores of its format.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cutline import FileSystemBackend, Graph, MemoryBackend, Subtask
from cutline.snapshot.channel.frame import Frame, PayloadKind
from cutline.snapshot.channel.frame_codec import encoded_together, frame_of_pieces, messages_of
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.plan.declarations import AlignmentWish
from cutline.snapshot.plan.topology import KEY_GROUPS
from cutline.snapshot.stored.certificate import ListEntry
from cutline.snapshot.stored.manifest import Manifest
from cutline.snapshot.stored.part import Handle, Part, channel_part, decode_frames, own_part, rows_part, state_part
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
FORMAT_2 = Path(__file__).parent / "format_2"

#: Subtask of the lists that ``lists`` adds.
OUT = Subtask("out")

#: Seeds whose runs put several messages into a frame are even; without a seed each message has its own.
SHARED_FRAMES = 2

#: Nodes of `partitions` whose edges have two channels from each subtask.
DIVIDED = ("turns", "all")


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


def piece(
    store: RunStore, snapshot_id: int, generations: tuple[int, int], groups: tuple[int, int], text: str, *, inline: bool
) -> Handle:
    """A piece of the sink's rows."""
    origin = (store.run, snapshot_id // 1_000_000, snapshot_id, OUT)
    (handle,) = store.put_rows([rows_part(*origin, generations, groups, [text.encode()], 1)], inline=inline)
    return handle


def own(store: RunStore, snapshot_id: int, generation: int, text: str, *, inline: bool) -> Handle:
    """The whole own state of the sink, or a delta."""
    part = own_part(store.run, snapshot_id // 1_000_000, snapshot_id, OUT, (generation, generation), [text.encode()])
    (handle,) = store.put_rows([part], inline=inline)
    return handle


def whole(handle: Handle) -> ListEntry:
    """An entry that reads all of a piece."""
    assert handle.groups is not None
    return ListEntry(handle, *handle.groups)


def publish(store: RunStore, rows: tuple[ListEntry, ...], deltas: tuple[Handle, ...]) -> None:
    """A snapshot behind the newest: the same, with lists of the sink."""
    newest = store.manifests()[-1]
    manifest = store.read_manifest(newest)
    assert isinstance(manifest, Manifest)
    records = tuple(
        replace(each, groups=(0, KEY_GROUPS), rows=rows, own=deltas) if each.subtask == OUT else each
        for each in manifest.records
    )
    changed = replace(manifest, snapshot_id=newest + 1, timestamp=manifest.timestamp + 1.0, records=records)
    assert store.write_manifest(changed)


def add_lists(store: RunStore) -> None:
    """Two snapshots of claim 2: one with what claim 1 left and an own part, and one with a base in its place."""
    half, old, new = KEY_GROUPS // 2, 1_000_001, store.manifests()[-1] + 1
    restored = (
        whole(piece(store, old, (0, 3), (0, half), "base, first half", inline=False)),
        ListEntry(piece(store, old, (0, 3), (half, KEY_GROUPS), "base, second half", inline=False), half, 30_000),
        whole(piece(store, old, (4, 4), (7, 900), "a delta", inline=True)),
    )
    made = (
        whole(piece(store, new, (1, 1), (0, KEY_GROUPS), "one generation", inline=False)),
        whole(piece(store, new, (2, 5), (11, 12), "several generations", inline=True)),
        whole(piece(store, new, (2, 5), (11, 12), "the same key group", inline=True)),
    )
    deltas = (own(store, old, 0, "whole", inline=False), own(store, new, 1, "delta", inline=True))
    publish(store, (*restored, *made), deltas)
    base = piece(store, new + 1, (0, 5), (0, KEY_GROUPS), "a base", inline=False)
    publish(store, (whole(base),), (own(store, new + 1, 0, "whole again", inline=True),))


def words(*subtasks: int) -> list[Step]:
    """Words that come to these subtasks."""
    return [step for index in subtasks for step in (Poll("source"), Deliver("source", f"visits[{index}]"))]


def snapshot(number: int) -> list[Step]:
    """A snapshot of the keyed run, which is published."""
    to = [Deliver("source", f"visits[{index}]", marker=True) for index in range(2)]
    out = [Deliver(f"visits[{index}]", "out", marker=True) for index in range(2)]
    return [Initiate(number, "source"), *to, *out, Quiesce()]


# ---------------------------------------------------------------- fixtures

#: One message comes all the way from the first node to the last.
_PLAIN_MESSAGE = [Poll("numbers"), Deliver("numbers", "tally"), Deliver("tally", "out")]

#: Published: 1 of claim 1, 1 of claim 2. Aborted: 2 of claim 1. A worker died, and so claim 2 has a base.
_CLAIMS = Fixture(
    "claims",
    graphs.prepared,
    [
        *(Poll("numbers"), Deliver("numbers", "out"), *cut("numbers", "out")),
        *(Poll("numbers"), Deliver("numbers", "out"), Doubt("never"), Initiate(2, "numbers")),
        *(Deliver("numbers", "out", marker=True), Quiesce()),
        *(Crash("out"), Quiesce(), Poll("numbers"), Deliver("numbers", "out")),
        *(Poll("numbers"), *cut("numbers", "out")),
    ],
)

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
                for node in DIVIDED
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
    Fixture("large_state", graphs.large, [Poll("numbers"), *cut("numbers", "keeper", "blob", "objects", "out")]),
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
    _CLAIMS,
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
    # Two generations of claim 1 are restored; claim 2 adds two, of which the second is of one subtask only.
    Fixture(
        "keyed",
        graphs.keyed,
        [
            *(*words(0, 1, 1), *snapshot(1), *words(1, 0), *snapshot(2)),
            *(Crash("visits"), Quiesce(), *words(1, 0), *snapshot(1), *words(0), *snapshot(2)),
        ],
    ),
    replace(_CLAIMS, name="lists", finish=add_lists),
)


def write(fixtures: Sequence[Fixture], folder: Path) -> None:
    """Write all fixtures that are not there."""
    for fixture in fixtures:
        backend = FileSystemBackend(folder / fixture.name)
        for path, data in fixture.make().items():
            assert backend.put_if_absent(path, [data]) or backend.get(path) == data, f"{fixture.name}: {path} differs"


if __name__ == "__main__":
    write(FIXTURES, FORMAT_2)
