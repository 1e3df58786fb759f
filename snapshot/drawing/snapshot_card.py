"""The card of a snapshot in a notebook: facts, its graph with states and messages in flight, and tables.

Reads few parts, because a store may be slow. Of a large part only the size is shown, and tables have few rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from cutline.snapshot.drawing.html import card, drawn_or_text, needs_matplotlib, picture, table
from cutline.snapshot.drawing.labels import brief, counted, duration_text, shortened, size_text
from cutline.snapshot.errors import CutlineError
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.plan.topology import NodeSpec
from cutline.snapshot.stored.manifest import Manifest
from cutline.snapshot.stored.part import Handle, PartKind
from cutline.snapshot.stored.topology_record import topology_of_record

if TYPE_CHECKING:
    from cutline.snapshot.drawing.graph_plot import EdgeNote

#: bytes of the largest part that is decoded for a card
_PART_BYTES_MAX = 262_144
#: rows of a table, so few because reading so many states and channels takes some seconds from a slow store
_ROWS_MAX = 40
#: messages of a channel that are shown, characters of a text in the drawing, and characters of a state in a table
_MESSAGES, _DRAWN_CHARACTERS, _CHARACTERS = 3, 26, 100
#: seconds since the epoch below which a time is virtual: the end of 1970
_VIRTUAL_SECONDS_MAX = 365 * 24 * 3600.0


class _State(Protocol):
    @property
    def state(self) -> Any: ...


class _Messages(Protocol):
    @property
    def messages(self) -> list[Any]: ...


class DrawnSnapshot(Protocol):
    """A stored snapshot as it is drawn: `snapshot.stored.snapshot.Snapshot`."""

    @property
    def id(self) -> int:
        """Number of the snapshot."""
        ...

    @property
    def run(self) -> str:
        """Name of the run."""
        ...

    @property
    def manifest(self) -> Manifest:
        """The manifest."""
        ...

    @property
    def timestamp(self) -> float:
        """Seconds since the epoch at the trigger."""
        ...

    @property
    def size(self) -> int:
        """Bytes of all parts."""
        ...

    @property
    def pinned(self) -> bool:
        """Whether retention never removes the snapshot."""
        ...

    def node(self, node: Subtask) -> _State:
        """Return the recorded state of a subtask."""
        ...

    def channel(self, source: Subtask, target: Subtask) -> _Messages:
        """Return the recorded state of a channel."""
        ...


def card_of_snapshot(snapshot: DrawnSnapshot) -> str:
    """Return the card as HTML. Decodes states and messages, as `snapshot.node` and `snapshot.channel` do."""
    return _Card(snapshot).html()


class _Card:
    """The parts of a snapshot that the card shows."""

    def __init__(self, snapshot: DrawnSnapshot) -> None:
        self._snapshot = snapshot
        manifest = snapshot.manifest
        self._topology = topology_of_record(manifest.topology)
        self._records = {record.subtask: record for record in manifest.records}
        sent = {entry.channel: entry.sent for record in manifest.records for entry in record.sent}
        processed = {entry.channel: entry.processed for record in manifest.records for entry in record.received}
        #: number of messages in flight, by channel, without empty channels
        self._in_flight = {
            channel: sent[channel] - processed[channel]
            for channel in self._topology.channels
            if sent[channel] > processed[channel]
        }
        self._sent, self._processed = sent, processed
        # Only the first states and channels are read, because each read takes time.
        self._states = {subtask: self._state(subtask) for subtask in self._topology.subtasks[:_ROWS_MAX]}
        self._messages = {channel: self._first_messages(channel) for channel in [*self._in_flight][:_ROWS_MAX]}

    def html(self) -> str:
        """Return the card as HTML."""
        snapshot = self._snapshot
        facts = [
            ("run", snapshot.run),
            ("taken", _time_of(snapshot)),
            ("in", duration_text(snapshot.manifest.duration)),
            ("size", size_text(snapshot.size)),
            ("in flight", str(sum(self._in_flight.values()))),
            *([("", "pinned")] if snapshot.pinned else []),
            *([("written by", written_by)] if (written_by := snapshot.manifest.written_by) is not None else []),
            *(
                [("edited from", str(edited_from))]
                if (edited_from := snapshot.manifest.edited_from) is not None
                else []
            ),
            *([("", "the run's result")] if snapshot.manifest.final else []),
        ]
        title = f"Snapshot {snapshot.id}"
        drawing = picture(drawn_or_text(self._svg), f"{title} of run {snapshot.run}, drawn on the graph")
        return card(title, facts, drawing, self._table_of_states(), self._table_of_channels())

    # ---------------------------------------------------------------- reading

    def _state(self, subtask: Subtask) -> str:
        return self._read(
            [self._records[subtask].state], lambda: brief(self._snapshot.node(subtask).state, _CHARACTERS)
        )

    def _first_messages(self, channel: ChannelId) -> str:
        """Return the first messages in flight as text."""
        handles = [
            handle
            for end, kind in ((channel.target, PartKind.RECEIVED), (channel.source, PartKind.SENT))
            for handle in self._records[end].handles
            if handle.kind is kind and handle.channel == channel
        ]

        def described() -> str:
            messages = self._snapshot.channel(*channel).messages
            more = ["..."] if len(messages) > _MESSAGES else []
            words = [brief(message, _DRAWN_CHARACTERS) for message in messages[:_MESSAGES]] + more
            return ", ".join(words) or "the end of the stream"

        return self._read(handles, described)

    def _read(self, handles: list[Handle], describe: Callable[[], str]) -> str:
        """Return the description of parts, or in parentheses the size or the error that prevents describing them."""
        size = sum(handle.size for handle in handles)
        if size > _PART_BYTES_MAX:
            return f"({size_text(size)})"
        try:
            return describe()
        except (CutlineError, OSError) as error:  # because a class may be missing here, or a part deleted
            return f"({error})"

    # ---------------------------------------------------------------- drawing

    def _svg(self) -> str:
        with needs_matplotlib():
            from cutline.snapshot.drawing.graph_plot import graph_plotted
        nodes = {node.name: self._node_lines(node) for node in self._topology.nodes}
        caption = "bold: messages in flight across the cut" if self._in_flight else "nothing is in flight"
        return graph_plotted(self._topology, nodes, dict(self._edge_notes()), caption, "svg").decode()

    def _node_lines(self, node: NodeSpec) -> list[str]:
        subtasks = [Subtask(node.name, index) for index in range(node.parallelism)]
        size = size_text(sum(self._records[subtask].state_size for subtask in subtasks))
        state = f"{node.parallelism} states, {size}" if node.parallelism > 1 else self._states.get(subtasks[0], size)
        inputs = [channel for subtask in subtasks for channel in self._topology.inputs_of(subtask)]
        outputs = [channel for subtask in subtasks for channel in self._topology.outputs_of(subtask)]
        counts = []
        if inputs:
            counts.append(f"{sum(self._processed[channel] for channel in inputs)} processed")
        if outputs:
            counts.append(f"{sum(self._sent[channel] for channel in outputs)} sent")
        return [shortened(state, _DRAWN_CHARACTERS), ", ".join(counts)]

    def _edge_notes(self) -> Iterator[tuple[tuple[str, str], EdgeNote]]:
        from cutline.snapshot.drawing.graph_plot import EdgeNote

        for edge in self._topology.edges:
            ends = (edge.source, edge.target)
            channels = [each for each in self._in_flight if (each.source.node, each.target.node) == ends]
            count = sum(self._in_flight[channel] for channel in channels)
            lines = [f"{count} in flight"] if count else []
            if count and channels[0] in self._messages:
                lines.append(shortened(self._messages[channels[0]], _DRAWN_CHARACTERS))
            yield ends, EdgeNote(lines, is_loud=bool(count))

    # ---------------------------------------------------------------- tables

    def _table_of_states(self) -> str:
        rows = [
            [
                str(subtask),
                size_text(self._records[subtask].state_size),
                str(sum(self._processed[channel] for channel in self._topology.inputs_of(subtask))),
                str(sum(self._sent[channel] for channel in self._topology.outputs_of(subtask))),
                state,
            ]
            for subtask, state in self._states.items()
        ]
        heads = ["subtask", "size", "processed", "sent", "state"]
        count = len(self._topology.subtasks)
        is_open = count > len(self._topology.nodes)
        return table(f"{count} subtasks", heads, rows, left_out=count - len(rows), is_open=is_open)

    def _table_of_channels(self) -> str:
        rows = [
            [str(channel), str(self._in_flight[channel]), described] for channel, described in self._messages.items()
        ]
        if not rows:
            return ""
        count = len(self._in_flight)
        heads = ["channel", "in flight", "first messages"]
        return table(
            f"{counted(count, 'channel')} with messages", heads, rows, left_out=count - len(rows), is_open=False
        )


def _time_of(snapshot: DrawnSnapshot) -> str:
    """Return the time of a snapshot as text. The virtual time of a simulation begins at 0."""
    if snapshot.timestamp < _VIRTUAL_SECONDS_MAX:
        return f"at {snapshot.timestamp:.2f} s of virtual time"
    return datetime.fromtimestamp(snapshot.timestamp, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
