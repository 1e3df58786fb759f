"""What happened in a simulated run: every event with its vector clock and its number, the cuts, the snapshots.

Written by the simulator's witness, which counts messages itself and never looks at the protocol's own numbers; read
by checkers, drawings and tests. Must not know how a run is simulated.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgpack

from snapshot.channel.serialization import Codec
from snapshot.coordinator.run_state import Outcome
from snapshot.ids import SNAPSHOT_IDS_PER_CLAIM, ChannelId, Subtask
from snapshot.plan.topology import Topology
from snapshot.stored.snapshot import Snapshot
from snapshot.testing.payload import unpack
from snapshot.testing.steps import Named, Step, subtask_named
from snapshot.trace import Trace
from snapshot.trace_events import Event, Kind

if TYPE_CHECKING:
    from snapshot.drawing.diagram import Diagram

#: Subtasks up to which every event has a vector clock. Beyond, it has Lamport's clock, one number: a clock of thousands
#: of numbers at every event would be all that a simulation does.
VECTOR_CLOCKS_MAX = 256


@dataclass(frozen=True, slots=True)
class Cut:
    """Where one subtask was when it recorded its state, as the witness counted."""

    incarnation: int
    snapshot_id: int
    subtask: Subtask
    clock: tuple[int, ...]
    sent: dict[ChannelId, int]
    processed: dict[ChannelId, int]


#: A subtask's cut of one snapshot: (incarnation, snapshot_id, subtask).
CutKey = tuple[int, int, Subtask]


@dataclass(slots=True)
class History:
    """A simulated run.

    Attributes
    ----------
    topology : Topology
    events : list of Event
        In the order in which they happened.
    schedule : list of Step
        What was done: the same schedule gives the same history.
    snapshots : list of Snapshot
        Those that were published, in that order; they can be read, also where retention removed them from the store.
    cuts : dict
        Of every subtask and snapshot.
    sent : dict
        ``{(incarnation, channel): {number: encoded message, or None for the end}}``, restored messages among them.
    origins : dict
        ``{incarnation that lived: (incarnation, snapshot_id) that it was restored from, or None}``.
    list_sinks : dict of str
        The nodes that are a `ListSink`; the values mean nothing.
    committed : dict
        ``{such a node: {token: encoded rows}}``, what it has made visible; a token is committed once, however often.
    seen : Counter
        Situations that a campaign must have seen somewhere.
    outcome : Outcome or None
        None: the run was cut off before its end.
    """

    topology: Topology
    codec: Codec
    events: list[Event] = field(default_factory=list)
    schedule: list[Step] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    cuts: dict[CutKey, Cut] = field(default_factory=dict)
    sent: dict[tuple[int, ChannelId], dict[int, bytes | None]] = field(default_factory=dict)
    origins: dict[int, tuple[int, int] | None] = field(default_factory=dict)
    list_sinks: dict[str, None] = field(default_factory=dict)
    committed: defaultdict[str, dict[str, list[bytes]]] = field(default_factory=lambda: defaultdict(dict))
    seen: Counter[str] = field(default_factory=Counter)
    outcome: Outcome | None = None
    #: why it ended so
    reason: str = ""
    now: float = 0.0

    def snapshot(self, snapshotId: int) -> Snapshot:
        """The published snapshot of this id, or the one that `Initiate` gave this id.

        Raises
        ------
        KeyError
            if none was published.
        """
        for snapshot in self.snapshots:
            if snapshotId in (snapshot.id, snapshot.id % SNAPSHOT_IDS_PER_CLAIM):
                return snapshot
        raise KeyError(f"no snapshot {snapshotId} was published; there are {[each.id for each in self.snapshots]}")

    def output(self, sink: str) -> list[Any]:
        """What came out of a node: the rows that a `ListSink` has made visible; of any other node the messages that it
        handled and that no rollback undid, by subtask in the order of handling.
        """
        if sink in self.list_sinks:
            return [unpack(row, self.codec) for rows in self.committed[sink].values() for row in rows]
        return [unpack(event.payload, self.codec) for event in self.handled(sink)]

    def handled(self, node: Named) -> list[Event]:
        """Messages that a node, or one of its subtasks, handled for good: those that no rollback undid."""
        only = subtask_named(node) if isinstance(node, Subtask) or "[" in node else None
        subtasks = [s for s in self.topology.subtasks if s == only or (only is None and s.node == node)]
        return [event for subtask in subtasks for event in self.lasting(subtask) if event.kind is Kind.RECEIVE]

    def lasting(self, subtask: Subtask) -> Iterator[Event]:
        """The events of a subtask that are part of the state in which the run ended, in order."""
        incarnations: list[list[Event]] = []
        incarnation: int | None = max(self.origins, default=None)
        through: int | None = None  # of a life before the last: up to this snapshot's cut
        while incarnation is not None:
            incarnations.append(list(self._incarnation_events(subtask, incarnation, through)))
            origin = self.origins[incarnation]
            incarnation, through = origin if origin is not None else (None, None)
        for incarnation_events in reversed(incarnations):
            yield from incarnation_events

    def _incarnation_events(self, subtask: Subtask, incarnation: int, through: int | None) -> Iterator[Event]:
        for event in self.events:
            if event.incarnation == incarnation and event.subtask == subtask:
                if through is not None and event.kind is Kind.CUT and event.snapshot_id == through:
                    return
                yield event

    @property
    def trace(self) -> Trace:
        """Its events, as those of a real run."""
        return Trace(self.topology, self.events, self.codec)

    def diagram(self, start: int | None = None, stop: int | None = None) -> Diagram:
        """The space-time diagram of ``events[start:stop]``, as `Trace.diagram`."""
        return self.trace.diagram(start, stop)

    def _repr_svg_(self) -> str:
        return self.trace._repr_svg_()

    def to_bytes(self) -> bytes:
        """The whole history, canonically: equal histories are equal bytes, in every process."""
        return b"".join(msgpack.packb(_plain(event)) for event in self.events) + repr(self.schedule).encode()


def _plain(event: Event) -> Sequence[Any]:
    channel = None if event.channel is None else str(event.channel)
    subtask = None if event.subtask is None else str(event.subtask)
    return [event.at, event.kind.value, event.incarnation, subtask, *event.clock, channel, *event[6:]]
