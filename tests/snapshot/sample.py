"""One small snapshot of everything: a cycle of two nodes, both ends of a channel holding messages of all kinds."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
from msgspec import structs

from cutline.snapshot.channel.channel_cuts import ReceivedCut, SentCut
from cutline.snapshot.channel.control_frames import StreamEnd, control_frame
from cutline.snapshot.channel.frame import Buffer, Frame, PayloadKind
from cutline.snapshot.channel.frame_codec import frame_of_batch, frame_of_pieces
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.naming.program_names import Aliases
from cutline.snapshot.plan.compiled_graph import CompiledGraph, EdgeCode, GraphCode
from cutline.snapshot.plan.declarations import Key
from cutline.snapshot.plan.topology import UNALIGNED, Component, EdgeSpec, NodeSpec, Partitioning, Topology
from cutline.snapshot.stored.certificate import SubtaskRecord, SubtaskStatus
from cutline.snapshot.stored.contribution import Contribution, SnapshotTimings, parts_of, record_of
from cutline.snapshot.stored.manifest import Manifest
from cutline.snapshot.stored.node_state import NodeState
from cutline.snapshot.stored.part import Part, PartKind, _part, encode_frames
from cutline.snapshot.stored.topology_record import record_of_topology

RUN = "bank"
SNAPSHOT_ID = 7_000_042
INCARNATION = 7
P, Q = Subtask("P"), Subtask("Q")
PQ, QP = ChannelId(P, Q), ChannelId(Q, P)
CODEC = Codec()
TIMINGS = SnapshotTimings(align=0.5, capture=0.25, upload=0.0)
SUBTASK_STATUS = SubtaskStatus(
    ended=False, passive=True, has_timers=False, outer_inputs_ended=False, uncommitted=(3, 5)
)
TOPOLOGY = Topology(
    "bank",
    tuple(NodeSpec(name, 1, 0, False, False, None, f"m.{name}") for name in ("P", "Q")),
    tuple(
        EdgeSpec(a, b, Partitioning.FORWARD, UNALIGNED, True, "on a cycle", None) for a, b in (("P", "Q"), ("Q", "P"))
    ),
    (Component(("P", "Q"), True),),
)


def compiled(topology: Topology = TOPOLOGY, key: Key | None = None) -> CompiledGraph:
    """A graph without nodes of the user, whose edges all have one key, or none."""
    code = {(edge.source, edge.target): EdgeCode(key, None, ()) for edge in topology.edges}
    return CompiledGraph(topology, GraphCode({}, b"", b"", Aliases({}, {})), code, {})


def values(first: int, *messages: object) -> Frame:
    """A frame of single messages."""
    return frame_of_pieces(first, PayloadKind.VALUES, [CODEC.encode(message) for message in messages])


def tuples(first: int, *messages: tuple[object, ...]) -> Frame:
    """A frame of tuples."""
    return frame_of_pieces(first, PayloadKind.TUPLES, [CODEC.encode(list(message)) for message in messages])


def flat(first: int, *messages: tuple[object, ...]) -> Frame:
    """A frame of tuples that hold neither lists nor tuples."""
    return structs.replace(tuples(first, *messages), kind=PayloadKind.FLAT)


def batch(first: int, count: int) -> Frame:
    """A frame of one record batch with `count` rows."""
    return frame_of_batch(first, pa.record_batch({"x": list(range(first, first + count))}))


def state(value: object) -> tuple[Buffer, ...]:
    """The body of a state part, in pieces."""
    return NodeState(value, None, [], 0.0, [], False, False, [], {}).encode(CODEC)


def taken() -> list[Contribution]:
    """PQ: 2 processed, marker behind 5, 8 sent. QP: 1 processed, 2 sent, the second is the end."""
    pq_received = ReceivedCut(2, 5, (values(3, "three"), tuples(4, (4, "four"), (5, "five"))))
    pq_sent = SentCut(8, 5, (batch(6, 2), values(8, {"eight": 8})))
    qp_received, qp_sent = ReceivedCut(1, 2, (control_frame(2, StreamEnd()),)), SentCut(2, 2, ())
    return [
        Contribution(SNAPSHOT_ID, P, state({"balance": 1}), {QP: qp_received}, {PQ: pq_sent}, SUBTASK_STATUS, TIMINGS),
        Contribution(SNAPSHOT_ID, Q, state([1, (2, "x")]), {PQ: pq_received}, {QP: qp_sent}, SUBTASK_STATUS, TIMINGS),
    ]


def parts() -> list[Part]:
    """All parts of the sample."""
    return [part for each in taken() for part in parts_of(each, RUN, INCARNATION)]


def sent_part(*frames: Frame) -> Part:
    """What was overtaken on PQ, whatever the frames hold."""
    origin, numbers = (RUN, INCARNATION, SNAPSHOT_ID), (frames[0].first, frames[-1].last)
    return _part(PartKind.SENT, origin, P, numbers, encode_frames(frames), channel=PQ)


#: A control frame that states nothing known, behind two messages.
UNKNOWN_STATEMENT = (values(6, "six", "seven"), Frame(8, 1, PayloadKind.CONTROL, b"\x01later"))


def manifest_with_sent(part: Part) -> Manifest:
    """The sample's manifest with another part of what was overtaken on PQ."""
    p, q = records()
    return manifest((replace(p, handles=(*p.handles[:-1], part.inline())), q))


def records() -> tuple[SubtaskRecord, ...]:
    """Both records, all parts inline."""
    return tuple(
        record_of(each, INCARNATION, [part.inline() for part in parts_of(each, RUN, INCARNATION)]) for each in taken()
    )


def manifest(of: tuple[SubtaskRecord, ...] | None = None, snapshot_id: int = SNAPSHOT_ID) -> Manifest:
    """The sample's manifest."""
    made = Manifest(
        run=RUN,
        snapshot_id=SNAPSHOT_ID,
        incarnation=INCARNATION,
        claim=7,
        timestamp=1.5,
        duration=0.25,
        final=False,
        pinned=True,
        topology=record_of_topology(TOPOLOGY),
        records=records() if of is None else of,
    )
    return replace(made, snapshot_id=snapshot_id)
