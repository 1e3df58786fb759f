"""Snapshots of one edge A->B with messages in flight, and what a restore makes of them, for tests of rescaling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cutline.snapshot.channel.channel_cuts import ReceivedCut, SentCut
from cutline.snapshot.channel.control_frames import StreamEnd, control_frame
from cutline.snapshot.channel.frame import Frame, PayloadKind
from cutline.snapshot.channel.frame_codec import cut_frame, frame_of_pieces
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.coordinator.control import Deploy, RestoredSubtask
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.plan.declarations import Key
from cutline.snapshot.plan.topology import UNALIGNED, Component, EdgeSpec, NodeSpec, Partitioning, Topology
from cutline.snapshot.stored.certificate import OwnStateKind, SubtaskRecord, SubtaskStatus, problems
from cutline.snapshot.stored.contribution import Contribution, parts_of, record_of
from cutline.snapshot.stored.manifest import Manifest
from cutline.snapshot.stored.part import Handle, decode_part
from cutline.snapshot.stored.topology_record import record_of_topology
from cutline.snapshot.worker.restored_parts import RestoredParts, read_parts
from tests.snapshot import sample

CODEC = Codec()
STATUS = SubtaskStatus(ended=False, passive=False, has_timers=False, outer_inputs_ended=False, uncommitted=())


def channel(i: int, j: int) -> ChannelId:
    """The channel from A[i] to B[j]."""
    return ChannelId(Subtask("A", i), Subtask("B", j))


def edge(
    a: int, b: int, partitioning: Partitioning = Partitioning.HASH, key: str | None = None, *, in_cycle: bool = False
) -> Topology:
    """A graph of two nodes. With `in_cycle` B has an edge back to A."""
    if key is None and partitioning is Partitioning.HASH:
        key = "first()"
    components = (Component(("A", "B"), True),) if in_cycle else (Component(("A",), False), Component(("B",), False))
    nodes = (
        NodeSpec("A", a, 0, not in_cycle, False, None, "m.A", acts_on_end=True),
        NodeSpec("B", b, 0 if in_cycle else 1, False, True, None, "m.B", acts_on_end=True),
    )
    edges = [EdgeSpec("A", "B", partitioning, UNALIGNED, in_cycle, "", key)]
    if in_cycle:
        edges.append(EdgeSpec("B", "A", Partitioning.REBALANCE, UNALIGNED, in_cycle, "", None))
    return Topology("edge", nodes, tuple(edges), components)


@dataclass(frozen=True)
class Flight:
    """Messages in flight on one channel.

    Attributes
    ----------
    processed : int
        Number of the last message before.
    messages : sequence of tuple
    has_end : bool
        Whether the end follows.
    overtaken : int
        Of all these, those that the marker overtook: the sender's part.
    waves : tuple of (int, int)
    """

    processed: int = 0
    messages: Sequence[tuple[object, ...]] = ()
    has_end: bool = False
    overtaken: int = 0
    waves: tuple[tuple[int, int], ...] = ()

    @property
    def sent(self) -> int:
        """S."""
        return self.processed + len(self.messages) + self.has_end

    @property
    def written(self) -> int:
        """w."""
        return self.sent - min(self.overtaken, self.sent - self.processed)

    def frames(self) -> list[Frame]:
        """The messages, in one frame, and the end."""
        found = []
        if self.messages:
            found.append(flat(self.processed + 1, *self.messages))
        return [*found, control_frame(self.sent, StreamEnd())] if self.has_end else found

    def part(self, after: int, through: int) -> tuple[Frame, ...]:
        """The messages (after, through]."""
        return tuple(
            cut_frame(frame, after, through) for frame in self.frames() if frame.last > after and frame.first <= through
        )


def flat(first: int, *messages: tuple[object, ...]) -> Frame:
    """A frame of tuples that hold neither lists nor tuples."""
    return frame_of_pieces(first, PayloadKind.FLAT, [CODEC.encode(list(message)) for message in messages])


def records(
    topology: Topology,
    flights: Mapping[tuple[int, int], Flight],
    statuses: Mapping[Subtask, SubtaskStatus] | None = None,
) -> list[SubtaskRecord]:
    """The records of a snapshot. Channels that `flights` lacks are fresh and empty."""
    found = []
    for subtask in topology.subtasks:
        of = {each: flights.get((each.source.index, each.target.index), Flight()) for each in topology.channels}
        of |= {each: Flight() for each in topology.channels if each.source.node == "B"}
        taken = Contribution(
            sample.SNAPSHOT_ID,
            subtask,
            sample.state(None),
            {
                each: ReceivedCut(
                    of[each].processed, of[each].written, of[each].part(0, of[each].written), of[each].waves
                )
                for each in topology.inputs_of(subtask)
            },
            {
                each: SentCut(of[each].sent, of[each].written, of[each].part(of[each].written, of[each].sent))
                for each in topology.outputs_of(subtask)
            },
            (statuses or {}).get(subtask, STATUS),
            sample.TIMINGS,
        )
        parts = [part.inline() for part in parts_of(taken, sample.RUN, sample.INCARNATION)]
        found.append(record_of(taken, sample.INCARNATION, parts))
    assert not problems(topology.channels, topology.subtasks, found, sample.INCARNATION, run=sample.RUN)
    return found


def snapshot_of(
    topology: Topology,
    flights: Mapping[tuple[int, int], Flight],
    statuses: Mapping[Subtask, SubtaskStatus] | None = None,
) -> Manifest:
    """The manifest of a snapshot of `topology`."""
    made = sample.manifest(tuple(records(topology, flights, statuses)))
    return replace(made, topology=record_of_topology(topology))


def ended(*subtasks: Subtask, own_state: OwnStateKind | None = None) -> dict[Subtask, SubtaskStatus]:
    """Statuses of subtasks that have ended."""
    status = replace(STATUS, ended=True, passive=True, outer_inputs_ended=True, own_state=own_state)
    return dict.fromkeys(subtasks, status)


def body_of(handle: Handle) -> memoryview:
    """The body of an inline part."""
    return decode_part(handle, handle.inline or b"")


def restored(plan: Sequence[RestoredSubtask], topology: Topology, key: Key | None) -> RestoredParts:
    """What the workers read of a plan."""
    return read_parts(
        Deploy(sample.INCARNATION + 1, tuple(plan), False), body_of, sample.compiled(topology, key), CODEC
    )
