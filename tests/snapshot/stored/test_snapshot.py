"""A snapshot as users see it."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from cutline.snapshot.channel.frame import Frame, PayloadKind
from cutline.snapshot.channel.frame_codec import frame_of_batch
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.errors import GraphError, RestoreRefused, SnapshotCorrupt
from cutline.snapshot.ids import Subtask
from cutline.snapshot.stored.certificate import SubtaskRecord
from cutline.snapshot.stored.contribution import parts_of, record_of
from cutline.snapshot.stored.part import Handle, Part, PartKind, channel_part
from cutline.snapshot.stored.snapshot import Snapshot
from cutline.snapshot.stored.topology_record import record_of_topology
from tests.snapshot import sample


def nothing_stored(handle: Handle) -> bytes:
    """For a snapshot whose parts are all inline."""
    raise AssertionError(f"{handle.name} was read")


def opened(snapshot_id: int = sample.SNAPSHOT_ID) -> Snapshot:
    """The sample."""
    return Snapshot(sample.manifest(snapshot_id=snapshot_id), nothing_stored, sample.CODEC)


def test_states() -> None:
    """A node's state is what snapshotState returned, types included."""
    snapshot = opened()
    assert snapshot.node("P").state == {"balance": 1}
    assert snapshot.node("Q").states == [[1, (2, "x")]]
    assert snapshot.node(Subtask("Q", 0)).state == [1, (2, "x")]


def test_channel_state_is_the_receivers_part_then_the_senders() -> None:
    """Messages come in order with their types, rows of batches as dicts, without the end of the stream."""
    channel = opened().channel("P", "Q")
    assert channel.messages == ["three", (4, "four"), (5, "five"), {"x": 6}, {"x": 7}, {"eight": 8}]
    assert channel.batches == [pa.record_batch({"x": [6, 7]})]
    assert (channel.processed, channel.sent) == (2, 8)
    back = opened().channel(sample.Q, sample.P)
    assert (back.messages, back.batches, back.processed, back.sent) == ([], [], 1, 2)


def test_fields() -> None:
    """What a snapshot says of itself."""
    snapshot = opened()
    assert (snapshot.id, snapshot.run, snapshot.timestamp, snapshot.pinned) == (sample.SNAPSHOT_ID, "bank", 1.5, True)
    assert snapshot.size == sum(part.handle.size for part in sample.parts())
    assert snapshot.nodes == ("P", "Q")
    assert snapshot.channels == (sample.PQ, sample.QP)
    assert repr(snapshot) == f"<snapshot {sample.SNAPSHOT_ID} of run 'bank'>"
    assert repr(snapshot.channel("P", "Q")) == "<P[0]->Q[0]: 6 messages in flight, 2 processed of 8 sent>"
    assert repr(snapshot.node("P")).startswith("<state of P, ")


def test_snapshots_sort_by_id() -> None:
    """The last one is the newest."""
    assert [s.id for s in sorted([opened(3), opened(1), opened(2)])] == [1, 2, 3]
    assert opened(1) == opened(1) != opened(2)


def test_unknown_names_are_named() -> None:
    """A wrong name is an error that says which names there are."""
    with pytest.raises(GraphError, match=r"no node 'R'; the graph's nodes are P, Q"):
        opened().node("R")
    with pytest.raises(GraphError, match=r"no P\[1\]; node 'P' has 1 subtasks"):
        opened().node(Subtask("P", 1))
    with pytest.raises(GraphError, match=r"0 channels from P to P; the graph's edges are P->Q, Q->P"):
        opened().channel("P", "P")


def wide() -> Snapshot:
    """The sample with two subtasks of each node, on edges that join equal indexes."""
    topology = replace(sample.TOPOLOGY, nodes=tuple(replace(n, parallelism=2) for n in sample.TOPOLOGY.nodes))
    records: list[SubtaskRecord] = []
    for index in (0, 1):
        for each in sample.taken():
            channel_of = {
                c: c._replace(source=replace(c.source, index=index), target=replace(c.target, index=index))
                for c in (*each.received, *each.sent)
            }
            moved = replace(
                each,
                subtask=replace(each.subtask, index=index),
                state=sample.state(index),
                received={channel_of[c]: cut for c, cut in each.received.items()},
                sent={channel_of[c]: cut for c, cut in each.sent.items()},
            )
            parts = parts_of(moved, sample.RUN, sample.INCARNATION)
            records.append(record_of(moved, sample.INCARNATION, [part.inline() for part in parts]))
    return Snapshot(
        replace(sample.manifest(tuple(records)), topology=record_of_topology(topology)), nothing_stored, sample.CODEC
    )


def test_several_subtasks() -> None:
    """One state where there are several is an error that says how to ask; by index all are there."""
    snapshot = wide()
    assert snapshot.node("P").states == [0, 1]
    assert snapshot.node(Subtask("P", 1)).state == 1
    with pytest.raises(GraphError, match=r"node 'P' has 2 subtasks: take \.states"):
        _ = snapshot.node("P").state
    with pytest.raises(GraphError, match=r"2 channels from P to Q; name one by its subtasks, as P\[0\]->Q\[0\]"):
        snapshot.channel("P", "Q")
    assert snapshot.channel(Subtask("P", 1), "Q").sent == 8


def test_an_inexact_manifest_is_refused_when_opened() -> None:
    """The certificate is checked again when a snapshot is read (PROTOCOL 2)."""
    p, q = sample.records()
    inexact = replace(p, sent=(replace(p.sent[0], sent=9),))
    with pytest.raises(SnapshotCorrupt, match="messages 6 to 9 were due"):
        Snapshot(sample.manifest((inexact, q)), nothing_stored, sample.CODEC)
    with pytest.raises(SnapshotCorrupt, match="topology cannot be read"):
        Snapshot(replace(sample.manifest(), topology={"nodes": 1}), nothing_stored, sample.CODEC)


def stored_apart() -> tuple[Snapshot, dict[str, bytes]]:
    """The sample with every part in a file of its own."""
    files: dict[str, bytes] = {}
    records = []
    for each in sample.taken():
        handles = []
        for part in parts_of(each, sample.RUN, sample.INCARNATION):
            path = f"parts/{len(files)}"
            files[path] = b"".join(part.buffers)
            handles.append(part.stored(path, 0))
        records.append(record_of(each, sample.INCARNATION, handles))
    return Snapshot(sample.manifest(tuple(records)), lambda handle: files[handle.path or ""], sample.CODEC), files


def test_parts_are_read_lazily_and_proved() -> None:
    """Only what is asked for is read, and damage is found before anything is decoded."""
    snapshot, files = stored_apart()
    snapshot.verify()
    damaged = next(h.path for h in snapshot.manifest.records[0].handles if h.kind is PartKind.STATE)
    assert damaged is not None
    files[damaged] = files[damaged][:-1] + b"\xff"
    assert snapshot.node("Q").state == [1, (2, "x")]
    with pytest.raises(SnapshotCorrupt, match=damaged):
        _ = snapshot.node("P").state
    with pytest.raises(SnapshotCorrupt, match=damaged):
        snapshot.verify()


def with_sent_frames(*frames: Frame) -> Snapshot:
    """The sample with other messages overtaken on PQ."""
    part = channel_part(PartKind.SENT, sample.RUN, sample.INCARNATION, sample.SNAPSHOT_ID, sample.PQ, frames)
    return with_sent_part(part)


def with_sent_part(part: Part) -> Snapshot:
    """The sample with another part of what was overtaken on PQ."""
    return Snapshot(sample.manifest_with_sent(part), nothing_stored, sample.CODEC)


@pytest.mark.parametrize("payload", [b"", b"nonsense", frame_of_batch(6, pa.record_batch({"x": [1, 2]})).payload])
def test_rows_of_batches_are_counted_when_read(payload: bytes) -> None:
    """A batch that cannot be read, or has another number of rows than its frame says, is SnapshotCorrupt."""
    snapshot = with_sent_part(sample.sent_part(Frame(6, 3, PayloadKind.BATCH, payload)))
    with pytest.raises(SnapshotCorrupt, match="the frame from 6 says 3 messages and holds"):
        snapshot.verify()
    with pytest.raises(SnapshotCorrupt, match="the frame from 6 says 3 messages and holds"):
        _ = snapshot.channel("P", "Q").messages


def test_an_unknown_control_frame_is_refused_by_name() -> None:
    """The error names part, channel and message, and says what to do."""
    snapshot = with_sent_part(sample.sent_part(*sample.UNKNOWN_STATEMENT))
    says = r"P\[0\]->Q\[0\], snapshot .*message 8 is a control frame with an unknown payload .*an earlier snapshot"
    with pytest.raises(SnapshotCorrupt, match=says):
        snapshot.verify()
    with pytest.raises(SnapshotCorrupt, match=says):
        _ = snapshot.channel("P", "Q").messages


def test_a_safe_codec_refuses_pickle() -> None:
    """What needs pickle is a named error where pickle is refused; it is never decoded, but can be verified."""
    pickled = sample.values(6, 1, 2, complex(1, 2))
    snapshot = with_sent_frames(pickled)
    assert snapshot.channel("P", "Q").messages[-1] == complex(1, 2)
    safe = Snapshot(snapshot.manifest, nothing_stored, Codec(safe=True))
    safe.verify()
    with pytest.raises(RestoreRefused, match="safe=True refuses"):
        _ = safe.channel("P", "Q").messages
