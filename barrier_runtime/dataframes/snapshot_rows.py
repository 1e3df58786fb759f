"""Read a stored snapshot as rows of a table: states, keyed rows, timers, and messages in flight.

Owns the columns, the division of a snapshot into pieces that are read alone, and the Arrow batches of a piece. Must not
know Spark. `plan` reads the manifest only, in one process. `read` reads and checks the parts of pieces, in any process.

::

    snapshot_id                  of each row
    node, subtask                that hold the row
    kind                         state, row, timer, sent or received
    state, key_group, key, sub   of keyed rows: name, group, key, and the index, key or time below the key
    value                        JSON, or repr where JSON cannot say it; null where the value was not opened
    expires                      seconds since the epoch at which the row expires, or null for never
    source, target               of messages: the subtasks at both ends
    channel_number, sequence     of messages: place among the snapshot's channels, and number on the channel;
                                 of own state in deltas only the sequence, where 0 is the whole state
    key_bytes, value_bytes       as stored: MessagePack; of a state the encoded state of its subtask
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from cutline.barrier_runtime.dataframes.json_text import text_of_key, text_of_value
from cutline.snapshot.channel.frame import Frame, PayloadKind
from cutline.snapshot.channel.frame_codec import encoded_messages, messages_of
from cutline.snapshot.channel.pickles import NotSerialisable
from cutline.snapshot.channel.record_batches import encode_batch
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.errors import SnapshotCorrupt
from cutline.snapshot.ids import Subtask
from cutline.snapshot.keyed.merging import PieceRef, merge_ranges, merged
from cutline.snapshot.keyed.rows_codec import NOT_DECODABLE, decode_keys, decode_values
from cutline.snapshot.keyed.segment import Segment, clipped
from cutline.snapshot.plan.topology import KEY_GROUPS
from cutline.snapshot.stored.certificate import ListEntry, SubtaskRecord
from cutline.snapshot.stored.keyed_state import read_segments, stored_rows
from cutline.snapshot.stored.own_changes import decode_changes
from cutline.snapshot.stored.part import Handle, PartKind, decode_frames
from cutline.snapshot.stored.snapshot import Snapshot

#: Columns of the table.
SCHEMA: Final = pa.schema(
    [
        ("snapshot_id", pa.int64()),
        ("node", pa.string()),
        ("subtask", pa.int32()),
        ("kind", pa.string()),
        ("state", pa.string()),
        ("key_group", pa.int32()),
        ("key", pa.string()),
        ("sub", pa.string()),
        ("value", pa.string()),
        ("expires", pa.float64()),
        ("source", pa.string()),
        ("target", pa.string()),
        ("channel_number", pa.int64()),
        ("sequence", pa.int64()),
        ("key_bytes", pa.binary()),
        ("value_bytes", pa.binary()),
    ]
)

#: Bytes of pieces that are read together, so that a snapshot of many small parts needs few tasks.
_TOGETHER_BYTES_MAX: Final = 16 * 1024 * 1024

#: Rows of a batch.
_BATCH_ROWS: Final = 8_192

#: Returns the checked body of a part.
Read = Callable[[Handle], memoryview]

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StatePiece:
    """The state of a subtask: whole, or in deltas."""

    subtask: Subtask
    state: Handle
    own: tuple[Handle, ...]

    @property
    def size(self) -> int:
        """Bytes to read."""
        return sum(handle.size for handle in (self.state, *self.own))


@dataclass(frozen=True, slots=True)
class RowsPiece:
    """A range of key groups of one subtask's list."""

    subtask: Subtask
    #: parts that have rows of the range, clipped to the range, in the order of application
    entries: tuple[ListEntry, ...]
    #: part whose segment is the newest of the list, because its time decides which rows have expired
    newest: Handle

    @property
    def size(self) -> int:
        """Bytes of the parts, by the share of their key groups that is read."""
        return sum(_share(entry) for entry in self.entries)


@dataclass(frozen=True, slots=True)
class MessagesPiece:
    """The messages of a channel at one of its ends."""

    handle: Handle
    #: place of the channel among the snapshot's channels
    channel_number: int

    @property
    def size(self) -> int:
        """Bytes to read."""
        return self.handle.size


Piece = StatePiece | RowsPiece | MessagesPiece


@dataclass(frozen=True, slots=True)
class Opening:
    """Permission to decode what is read."""

    #: neither keys nor values: only their bytes
    raw: bool
    #: pickles of the user's classes too, which runs code that the snapshot names
    trusted: bool


def plan(snapshot: Snapshot, node: str | None) -> list[tuple[Piece, ...]]:
    """Divide a snapshot, or one node of it, into groups of pieces, each for one task. At least one group.

    Raises
    ------
    GraphError
        if the graph has no such node.
    """
    channel_numbers = {channel: number for number, channel in enumerate(snapshot.channels)}
    records = snapshot.manifest.records if node is None else snapshot.records(node)
    pieces: list[Piece] = []
    for record in records:
        pieces.append(StatePiece(record.subtask, record.state, record.own or ()))
        pieces += _row_pieces(record)
        for handle in record.handles:
            if handle.channel is not None:
                pieces.append(MessagesPiece(handle, channel_numbers[handle.channel]))
    return list(_together(pieces)) or [()]


def read(pieces: Iterable[Piece], snapshot_id: int, of: Read, opening: Opening) -> Iterator[pa.RecordBatch]:
    """Yield the rows of pieces, in batches of the columns of `SCHEMA`.

    Parameters
    ----------
    pieces : iterable
        A group of `plan`.
    snapshot_id : int
    of : callable
        Returns the checked body of a part. Errors of `of` pass through.
    opening : Opening

    Raises
    ------
    SnapshotCorrupt
        if a part is damaged.
    """
    codec = Codec(safe=not opening.trusted)
    for piece in pieces:
        match piece:
            case StatePiece():
                rows = _state_rows(piece, of, codec, opening)
            case MessagesPiece():
                rows = _message_rows(piece, of, codec, opening)
            case RowsPiece():
                yield from _keyed_batches(piece, snapshot_id, of, codec, opening)
                continue
        while batch := list(islice(rows, _BATCH_ROWS)):
            yield pa.RecordBatch.from_pylist([{"snapshot_id": snapshot_id, **row} for row in batch], schema=SCHEMA)


# ---------------------------------------------------------------- the plan


def _row_pieces(record: SubtaskRecord) -> Iterator[RowsPiece]:
    entries = stored_rows(record)
    refs = [PieceRef(entry.lo, entry.hi, _share(entry), entry) for entry in entries]
    for lo, hi in merge_ranges(refs, _TOGETHER_BYTES_MAX):
        inside = tuple(
            replace(entry, lo=max(lo, entry.lo), hi=min(hi, entry.hi))
            for entry in entries
            if entry.lo < hi and lo < entry.hi
        )
        if inside:
            yield RowsPiece(record.subtask, inside, entries[-1].handle)


def _share(entry: ListEntry) -> int:
    lo, hi = entry.handle.groups or (0, KEY_GROUPS)
    return entry.handle.size * (entry.hi - entry.lo) // (hi - lo) + 1


def _together(pieces: Sequence[Piece]) -> Iterator[tuple[Piece, ...]]:
    group: list[Piece] = []
    size = 0
    for piece in pieces:
        if group and size + piece.size > _TOGETHER_BYTES_MAX:
            yield tuple(group)
            group, size = [], 0
        group.append(piece)
        size += piece.size
    if group:
        yield tuple(group)


# ---------------------------------------------------------------- states and timers without a key


def _state_rows(piece: StatePiece, of: Read, codec: Codec, opening: Opening) -> Iterator[Row]:
    at = {"node": piece.subtask.node, "subtask": piece.subtask.index}
    body = of(piece.state)
    fields = dict(codec.decode_fields(body))
    if piece.own:
        changes = [each for handle in piece.own for each in decode_changes(of(handle), handle.name)]
        newest_whole = max(number for number, (is_whole, _) in enumerate(changes) if is_whole)
        for sequence, (_, change) in enumerate(changes[newest_whole:]):
            shown = {} if opening.raw else dict(codec.decode_fields(change))
            yield {**at, "kind": "state", "sequence": sequence, "value": _shown(shown), "value_bytes": bytes(change)}
    else:
        shown = {} if opening.raw else fields
        yield {**at, "kind": "state", "value": _shown(shown), "value_bytes": bytes(body)}
    for time, _ in fields.get("timers", ()):
        yield {**at, "kind": "timer", "sub": text_of_value(time)}


def _shown(fields: dict[str, Any]) -> str | None:
    return text_of_value(fields["state"]) if "state" in fields else None


# ---------------------------------------------------------------- messages


def _message_rows(piece: MessagesPiece, of: Read, codec: Codec, opening: Opening) -> Iterator[Row]:
    handle = piece.handle
    assert handle.channel is not None
    at = {
        "node": handle.subtask.node,
        "subtask": handle.subtask.index,
        "kind": "sent" if handle.kind is PartKind.SENT else "received",
        "source": str(handle.channel.source),
        "target": str(handle.channel.target),
        "channel_number": piece.channel_number,
    }
    for frame in decode_frames(handle, of(handle)):
        if frame.is_control:
            continue
        messages = _batch_messages if frame.kind is PayloadKind.BATCH else _messages
        for sequence, (value, value_bytes) in enumerate(messages(frame, codec, opening), frame.first):
            yield {**at, "sequence": sequence, "value": value, "value_bytes": value_bytes}


def _messages(frame: Frame, codec: Codec, opening: Opening) -> Iterator[tuple[str | None, bytes | None]]:
    """Yield the text and the bytes of each message. One that cannot be opened hides none of the others."""
    is_tuple = frame.kind is not PayloadKind.VALUES
    for piece in encoded_messages(frame):
        try:
            yield None if opening.raw else text_of_value(_decoded(piece, codec, is_tuple=is_tuple)), piece
        except NotSerialisable:
            yield None, piece


def _decoded(message: bytes, codec: Codec, *, is_tuple: bool) -> Any:
    value = codec.decode(message)
    return tuple(value) if is_tuple else value


def _batch_messages(frame: Frame, codec: Codec, opening: Opening) -> Iterator[tuple[str | None, bytes | None]]:
    """Yield the rows of a batch. They have bytes of their own only where no values are wanted: an Arrow stream each."""
    batch: Any = messages_of(frame, codec)
    if opening.raw:
        for number in range(batch.num_rows):
            yield None, bytes(encode_batch(batch.slice(number, 1)))
    else:
        for row in batch.to_pylist():
            yield text_of_value(row), None


# ---------------------------------------------------------------- keyed rows


def _keyed_batches(
    piece: RowsPiece, snapshot_id: int, of: Read, codec: Codec, opening: Opening
) -> Iterator[pa.RecordBatch]:
    segments = list(read_segments(piece.entries, of))
    if piece.newest not in [entry.handle for entry in piece.entries]:
        (newest,) = read_segments([ListEntry(piece.newest, 0, KEY_GROUPS)], of)
        segments.append(clipped(newest, 0, 0))
    rows = merged(segments, is_whole=True)
    for state in range(len(rows.states)):
        of_state = _rows_of_state(rows, state)
        for start in range(0, of_state.num_rows, _BATCH_ROWS):
            try:
                columns = _keyed_columns(rows, state, of_state.slice(start, _BATCH_ROWS), codec, opening)
            except NOT_DECODABLE as error:
                name = piece.entries[-1].handle.name
                raise SnapshotCorrupt(f"{name}: a row cannot be decoded: {error!r}") from error
            given = {"snapshot_id": snapshot_id, "node": piece.subtask.node, "subtask": piece.subtask.index}
            yield _batch({**given, **columns}, min(_BATCH_ROWS, of_state.num_rows - start))


def _rows_of_state(segment: Segment, state: int) -> pa.RecordBatch:
    """Return the elements of one state."""
    rows = segment.rows.filter(pc.equal(segment.rows.column("state"), state))
    return segment.states[state].form.element_rows(rows)


def _keyed_columns(segment: Segment, state: int, rows: pa.RecordBatch, codec: Codec, opening: Opening) -> Row:
    spec = segment.states[state]
    is_timer, has_values = spec.form.holds_timers, spec.form.has_values
    subs = decode_keys(rows.column("sub")) if spec.form.has_sub_keys else None
    columns: Row = {
        "kind": "timer" if is_timer else "row",
        "state": None if is_timer else spec.name,
        "key_group": rows.column("group").cast(pa.int32()),
        "expires": rows.column("expires"),
        "sub": None if subs is None else [text_of_key(sub) for sub in subs],
        "key_bytes": rows.column("key").cast(pa.binary()),
        "value_bytes": rows.column("value").cast(pa.binary()) if has_values else None,
    }
    if not opening.raw:
        columns["key"] = list(map(text_of_key, decode_keys(rows.column("key"))))
        if has_values:
            columns["value"] = [_text(value, codec) for value in decode_values(rows.column("value"))]
    return columns


def _text(stored: Any, codec: Codec) -> str | None:
    try:
        return text_of_value(codec.decode(stored) if type(stored) is bytes else stored)
    except NotSerialisable:
        return None


def _batch(columns: Row, row_count: int) -> pa.RecordBatch:
    """Return a batch of columns. A single value stands for a column of it, and a missing column is null."""
    arrays = []
    for field in SCHEMA:
        column = columns.get(field.name)
        if isinstance(column, pa.Array):
            arrays.append(column.cast(field.type))
        elif isinstance(column, list):
            arrays.append(pa.array(column, field.type))
        else:
            arrays.append(pa.repeat(pa.scalar(column, field.type), row_count))
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)
