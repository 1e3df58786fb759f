"""The history of a simulated run: every event with its vector clock and its number, the cuts, the snapshots.

The simulator's history log writes the history, and counts messages without the protocol's own numbers. Checkers,
drawings and tests read the history. Must not know how a run is simulated.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Protocol

import msgpack

from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.coordinator.run_state import Outcome
from cutline.snapshot.ids import SNAPSHOT_IDS_PER_CLAIM, ChannelId, Subtask
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.stored.snapshot import Snapshot
from cutline.snapshot.testing.payload import unpack
from cutline.snapshot.testing.steps import Named, Step, subtask_named
from cutline.snapshot.trace import Trace
from cutline.snapshot.trace_events import Event, Kind

if TYPE_CHECKING:
    from cutline.snapshot.drawing.diagram import Diagram

#: Maximum number of subtasks for which every event has a vector clock. Larger graphs have Lamport's clock, one number,
#: because vector clocks of thousands of numbers would take nearly all time of a simulation.
VECTOR_CLOCKS_MAX = 256


class HasTotals(Protocol):
    """A store of totals, read after a run."""

    def totals(self) -> dict[Any, Any]:
        """Return all totals that count now."""


@dataclass(frozen=True, slots=True)
class Cut:
    """The point where one subtask recorded its state, as the history log counted."""

    incarnation: int
    snapshot_id: int
    subtask: Subtask
    clock: tuple[int, ...]
    sent: dict[ChannelId, int]
    processed: dict[ChannelId, int]


@dataclass(slots=True)
class Start:
    """Counts with which a channel of a reshaped edge begins, as its two ends restored them."""

    sent: int = 0
    processed: int = 0


#: A subtask's cut of one snapshot: (incarnation, snapshot_id, subtask).
CutKey = tuple[int, int, Subtask]


@dataclass(slots=True)
class History:
    """The history of a simulated run.

    Attributes
    ----------
    topology : Topology
    events : list of Event
        All events, in the order in which they happened.
    schedule : list of Step
        Steps that were taken. Equal schedules give equal histories.
    snapshots : list of Snapshot
        Published snapshots, in the order of publishing. Snapshots that retention removed from the store stay readable.
    adopted : dict of int
        Ids of the snapshots with which the store began. They may be of another graph. The values mean nothing.
    cuts : dict
        ``{(incarnation, snapshot_id, subtask): Cut}`` of every subtask and snapshot.
    sent : dict
        ``{(incarnation, channel): {number: encoded message, or None for the end}}``, restored messages among them.
    origins : dict
        ``{incarnation that ran: (incarnation, snapshot_id) of the restored snapshot, or None}``.
    starts : dict
        ``{(incarnation, channel): Start}`` of channels that the restored snapshot had not, because the parallelism or
        the partitioning was another.
    records : dict
        ``{(subtask, number)}`` of the records of subtasks alone that are stored, and that no other claim has followed.
        The values mean nothing.
    composed : dict
        ``{(snapshot_id, subtask): (incarnation, number)}`` of the records of which snapshots were made.
    list_sinks : dict of str
        Names of the nodes that are a `ListSink`. The values mean nothing.
    stores : mapping
        ``{aggregate: its store}`` of a `PersistentAggregate`. ``totals()`` returns its totals that count now, by key.
    committed : dict
        ``{list sink: {token: encoded rows}}`` that are visible. Repeated commits of a token count once.
    seen : Counter
        Counts of the situations of which a campaign must see each somewhere.
    outcome : Outcome or None
        Outcome of the run. None: the run was cut off before its end.
    """

    topology: Topology
    codec: Codec
    events: list[Event] = field(default_factory=list)
    schedule: list[Step] = field(default_factory=list)
    snapshots: list[Snapshot] = field(default_factory=list)
    adopted: dict[int, None] = field(default_factory=dict)
    cuts: dict[CutKey, Cut] = field(default_factory=dict)
    sent: dict[tuple[int, ChannelId], dict[int, bytes | None]] = field(default_factory=dict)
    origins: dict[int, tuple[int, int] | None] = field(default_factory=dict)
    starts: dict[tuple[int, ChannelId], Start] = field(default_factory=dict)
    records: dict[tuple[Subtask, int], None] = field(default_factory=dict)
    composed: dict[tuple[int, Subtask], tuple[int, int]] = field(default_factory=dict)
    list_sinks: dict[str, None] = field(default_factory=dict)
    stores: Mapping[str, HasTotals] = field(default_factory=dict)
    committed: defaultdict[str, dict[str, list[bytes]]] = field(default_factory=lambda: defaultdict(dict))
    seen: Counter[str] = field(default_factory=Counter)
    outcome: Outcome | None = None
    #: reason of the outcome
    reason: str = ""
    now: float = 0.0

    def snapshot(self, snapshotId: int) -> Snapshot:
        """Return the published snapshot of this id, or the snapshot to which `Initiate` gave this id.

        Raises
        ------
        KeyError
            if no snapshot of this id was published.
        """
        for snapshot in self.snapshots:
            if snapshotId in (snapshot.id, snapshot.id % SNAPSHOT_IDS_PER_CLAIM):
                return snapshot
        raise KeyError(f"no snapshot {snapshotId} was published; there are {[each.id for each in self.snapshots]}")

    def output(self, sink: str) -> list[Any]:
        """Return the output of a node.

        For a `ListSink`: the visible rows. For an aggregate with a store: the totals that count, as (key, state), by
        key. For any other node: the messages that the node handled and that no rollback
        undid, by subtask in the order of handling.
        """
        if sink in self.list_sinks:
            return [unpack(row, self.codec) for rows in self.committed[sink].values() for row in rows]
        if sink in self.stores:
            return sorted(self.stores[sink].totals().items(), key=repr)
        return [unpack(event.payload, self.codec) for event in self.handled(sink)]

    def handled(self, node: Named) -> list[Event]:
        """Return the received events of a node, or of one subtask, that no rollback undid."""
        only = subtask_named(node) if isinstance(node, Subtask) or "[" in node else None
        subtasks = [s for s in self.topology.subtasks if s == only or (only is None and s.node == node)]
        return [event for subtask in subtasks for event in self.handled_among([*self.lasting(subtask)])]

    def handled_among(self, events: Sequence[Event]) -> Iterator[Event]:
        """Yield the received events whose message the node got. A dead letter is sent right after its receipt."""
        for event, after in zip_longest(events, events[1:]):
            if event.kind is Kind.RECEIVE and not (after is not None and self._is_dead_letter(after)):
                yield event

    def _is_dead_letter(self, event: Event) -> bool:
        topology = self.topology
        return (
            event.kind is Kind.SEND
            and event.channel is not None
            and topology.carries_dead_letters(topology.edge_of(event.channel))
        )

    def lasting(self, subtask: Subtask) -> Iterator[Event]:
        """Yield the events of a subtask that are part of the state in which the run ended, in order."""
        incarnations: list[list[Event]] = []
        incarnation: int | None = max(self.origins, default=None)
        through: int | None = None  # of an incarnation before the last: up to this snapshot's cut
        while incarnation is not None:
            incarnations.append(list(self._incarnation_events(subtask, incarnation, through)))
            origin = self.origins[incarnation]
            incarnation, through = origin if origin is not None else (None, None)
            if through is not None:
                incarnation, through = self.composed.get((through, subtask), (incarnation, through))
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
        """The events as a trace, like that of a real run."""
        return Trace(self.topology, self.events, self.codec)

    def diagram(self, start: int | None = None, stop: int | None = None) -> Diagram:
        """Return the space-time diagram of ``events[start:stop]``, as `Trace.diagram`."""
        return self.trace.diagram(start, stop)

    def _repr_html_(self) -> str:
        return self.trace._repr_html_()

    def to_bytes(self) -> bytes:
        """Encode the whole history canonically: equal histories are equal bytes, in every process."""
        return b"".join(msgpack.packb(_plain(event)) for event in self.events) + repr(self.schedule).encode()


def _plain(event: Event) -> Sequence[Any]:
    channel = None if event.channel is None else str(event.channel)
    subtask = None if event.subtask is None else str(event.subtask)
    return [event.at, event.kind.value, event.incarnation, subtask, *event.clock, channel, *event[6:]]
