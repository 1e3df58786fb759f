"""A segment is a sorted table of rows. A segment is stored in pieces, each of a range of key groups.

Owns the columns of a segment and the body of a piece. Must not know how keys and values are encoded, nor where pieces
are stored.

::

    group    uint16    key group
    state    uint16    index into the states of the segment
    key      binary    encoded key
    sub      binary    encoded sub-key, or null for kinds without sub-keys
    value    binary    encoded value, or null for a tombstone
    expires  float64   seconds since the epoch at which the row expires, or null for never

Rows are sorted by (group, state, key, sub), each row once. A column without any value has Arrow's type null, takes no
memory, and is not stored.

Body of a piece::

    4     length of the header in bytes
          header: {states: [[name, kind, ttl, version], ...], grouped_by, now, rows}    MessagePack
          Arrow IPC stream of one record batch; offsets of binary columns have 32 bits
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgpack
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cutline.snapshot.channel.frame import Buffer
from cutline.snapshot.channel.record_batches import encode_batch, new_memory
from cutline.snapshot.errors import SnapshotCorrupt
from cutline.snapshot.keyed.kinds import StateKind
from cutline.snapshot.keyed.rows import StateSpec
from cutline.snapshot.keyed.rows_codec import bytes_of
from cutline.snapshot.plan.topology import KEY_GROUPS

#: Columns in memory. Binary columns have 64-bit offsets, because a segment may exceed 2 GiB.
ROW_SCHEMA: Final = pa.schema(
    [
        pa.field("group", pa.uint16(), nullable=False),
        pa.field("state", pa.uint16(), nullable=False),
        pa.field("key", pa.large_binary(), nullable=False),
        pa.field("sub", pa.large_binary()),
        pa.field("value", pa.large_binary()),
        pa.field("expires", pa.float64()),
    ]
)

#: Columns that are stored only if a row has a value there.
_OPTIONAL: Final = ("sub", "value", "expires")

#: Types of the columns of a stored piece.
_STORED_TYPES: Final = {
    field.name: pa.binary() if field.type == pa.large_binary() else field.type for field in ROW_SCHEMA
}

#: Bytes of a row in any piece: group, state, and three bits for nulls. Each binary column adds an offset.
_ROW_BYTES: Final = 2 + 2 + 1
_OFFSET_BYTES: Final = 4
_EXPIRY_BYTES: Final = 8

#: Bytes of a piece beside its rows and its header: Arrow's schema, the description of the batch, and padding.
_STREAM_BYTES: Final = 2_048

#: Last bytes of an Arrow IPC stream.
_END_OF_STREAM: Final = b"\xff\xff\xff\xff\0\0\0\0"

#: Bytes whose multiples are aligned addresses. Arrow computes at full speed on aligned buffers.
_ALIGNMENT_BYTES: Final = 8

_LENGTH: Final = struct.Struct(">I")

PIECE_BYTES_MAX: Final = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Segment:
    """A generation of rows, or several generations merged."""

    #: states that `rows` refers to by index, sorted by name
    states: tuple[StateSpec, ...]
    #: `Context.now` at the newest capture in the segment, in seconds since the epoch
    now: float
    #: rows by `ROW_SCHEMA`, sorted, each row once
    rows: pa.RecordBatch
    #: key columns of the edge that rows are grouped by, where the node's own keys are others; else empty
    grouped_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Piece:
    """A stored part of a segment."""

    #: the piece holds no row outside the key groups [lo, hi)
    lo: int
    hi: int
    #: bytes that `decode_piece` reads
    body: memoryview
    #: number of rows in the piece
    rows: int


def row_batch(columns: Sequence[pa.Array]) -> pa.RecordBatch:
    """Return rows of columns in the order of `ROW_SCHEMA`. Optional columns without any value get the type null."""
    arrays = [
        pa.nulls(len(column)) if name in _OPTIONAL and column.null_count == len(column) else column
        for name, column in zip(ROW_SCHEMA.names, columns, strict=True)
    ]
    fields = [field.with_type(array.type) for field, array in zip(ROW_SCHEMA, arrays, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def no_rows() -> pa.RecordBatch:
    """Return a batch without rows."""
    return row_batch([pa.array([], field.type) for field in ROW_SCHEMA])


def concatenated(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Return the rows of all batches, one batch after another."""
    if len(batches) == 1:
        return batches[0]
    return row_batch([_concatenated([batch.column(place) for batch in batches]) for place in range(len(ROW_SCHEMA))])


def _concatenated(arrays: list[pa.Array]) -> pa.Array:
    kinds = {array.type for array in arrays} - {pa.null()}
    return pa.concat_arrays([array.cast(kind) for array in arrays] if (kind := next(iter(kinds), None)) else arrays)


def clipped(segment: Segment, lo: int, hi: int) -> Segment:
    """Return the rows of `segment` in the key groups [lo, hi), without a copy."""
    first, end = np.searchsorted(_groups(segment.rows), [lo, hi])
    if (first, end) == (0, segment.rows.num_rows):
        return segment
    rows = segment.rows.slice(first, end - first)
    return Segment(segment.states, segment.now, row_batch(rows.columns), segment.grouped_by)


def pieces_of(segment: Segment, bytes_max: int = PIECE_BYTES_MAX) -> list[Piece]:
    """Encode a segment as pieces of at most `bytes_max` bytes each. A segment without rows has no piece.

    A piece ends where a key group ends. A key group beyond `bytes_max` takes several pieces, and a row beyond
    `bytes_max` a piece of its own.
    """
    groups = _groups(segment.rows)
    return [
        Piece(
            int(groups[start]),
            int(groups[stop - 1]) + 1,
            _encode(segment, segment.rows.slice(start, stop - start)),
            stop - start,
        )
        for start, stop in _ranges(segment, groups, bytes_max)
    ]


def empty_piece(segment: Segment, lo: int, hi: int) -> Piece:
    """Encode a segment without rows as a piece of the key groups [lo, hi).

    A list needs the piece where compaction has dropped all rows, because a list that ends before a generation that was
    published would look as if it had lost the generation.
    """
    assert segment.rows.num_rows == 0
    return Piece(lo, hi, _encode(segment, segment.rows), 0)


def _ranges(segment: Segment, groups: npt.NDArray[np.uint16], bytes_max: int) -> Iterator[tuple[int, int]]:
    """Yield (first row, end) of each piece."""
    row_bytes = _ROW_BYTES + (_EXPIRY_BYTES if segment.rows.column("expires").type != pa.null() else 0)
    ends = np.zeros(len(groups) + 1, np.int64)  # bytes of the rows before each row
    for name in ("key", "sub", "value"):
        column = segment.rows.column(name)
        if column.type != pa.null():
            offsets = bytes_of(column)[0]
            ends += offsets - offsets[0]
            row_bytes += _OFFSET_BYTES
    ends += np.arange(len(groups) + 1) * row_bytes
    budget = bytes_max - _STREAM_BYTES - len(_header(segment, len(groups)))
    start = 0
    while start < len(groups):
        stop = int(np.searchsorted(ends, ends[start] + budget, side="right")) - 1
        if stop < len(groups):
            group_start = int(np.searchsorted(groups, groups[max(stop, start)]))
            stop = max(group_start if group_start > start else stop, start + 1)
        yield start, stop
        start = stop


def _encode(segment: Segment, rows: pa.RecordBatch) -> memoryview:
    header = _header(segment, rows.num_rows)
    named = {
        name: _narrowed(column) if column.type == pa.large_binary() else column
        for name, column in zip(ROW_SCHEMA.names, row_batch(rows.columns).columns, strict=True)
        if column.type != pa.null()
    }
    memory: list[memoryview] = []

    def allocate(size: int) -> memoryview:
        memory.append(new_memory(len(header) + size))
        memory[0][: len(header)] = header
        return memory[0][len(header) :]

    encode_batch(pa.RecordBatch.from_pydict(named), allocate)
    return memory[0].toreadonly()


def _header(segment: Segment, row_count: int) -> bytes:
    states = [[spec.name, int(spec.kind), spec.ttl, spec.version] for spec in segment.states]
    fields = {"states": states, "grouped_by": segment.grouped_by, "now": segment.now, "rows": row_count}
    packed: bytes = msgpack.packb(fields)
    return _LENGTH.pack(len(packed)) + packed


def _narrowed(column: pa.Array) -> pa.Array:
    """Return a column with 32-bit offsets. A cast would refuse a slice whose own offsets are beyond 2 GiB."""
    offsets, data = bytes_of(column)
    own = (offsets - offsets[0]).astype(np.int32)
    validity = column.is_valid().buffers()[1] if column.null_count else None
    content = data.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    return pa.Array.from_buffers(pa.binary(), len(column), [validity, pa.py_buffer(own), content])


def decode_piece(body: Buffer, name: str) -> Segment:
    """Return the segment of a piece. Columns refer to `body` without a copy where its memory is aligned.

    Parameters
    ----------
    body : bytes or memoryview
        What `pieces_of` returned. The envelope of the part has proved that no byte has changed.
    name : str
        Name of the piece in errors.

    Raises
    ------
    SnapshotCorrupt
        if the body is not what `pieces_of` makes. The text names the piece and the fault.
    """
    view = memoryview(body).cast("B")
    end = _LENGTH.size + (_LENGTH.unpack_from(view)[0] if view.nbytes >= _LENGTH.size else 0)
    if view.nbytes < end:
        raise SnapshotCorrupt(f"{name}: ends at offset {view.nbytes}, inside the header of a piece of rows")
    states, grouped_by, now, row_count = _decode_header(bytes(view[_LENGTH.size : end]), name)
    rows = _decode_rows(view[end:], name)
    problem = f"{rows.num_rows} rows, but its header says {row_count}" if rows.num_rows != row_count else None
    problem = problem or _problem(rows, len(states))
    if problem:
        raise SnapshotCorrupt(f"{name}: {problem}")
    return Segment(states, now, rows, grouped_by)


def _decode_header(header: bytes, name: str) -> tuple[tuple[StateSpec, ...], tuple[str, ...], float, int]:
    try:
        fields = msgpack.unpackb(header)
        states = tuple(
            StateSpec(_is(each, str), StateKind(kind), None if ttl is None else _is(ttl, float, int), _is(version, int))
            for each, kind, ttl, version in fields["states"]
        )
        grouped_by = tuple(_is(column, str) for column in fields["grouped_by"])
        return states, grouped_by, float(_is(fields["now"], float, int)), _is(fields["rows"], int)
    except (KeyError, TypeError, ValueError, msgpack.UnpackException) as error:
        raise SnapshotCorrupt(f"{name}: the header of a piece of rows cannot be read: {error!r}") from error


def _is(value: Any, *types: type) -> Any:
    if type(value) not in types:
        raise TypeError(f"{value!r} is no {types[0].__name__}")
    return value


def _decode_rows(stream: memoryview, name: str) -> pa.RecordBatch:
    if bytes(stream[-len(_END_OF_STREAM) :]) != _END_OF_STREAM:
        raise SnapshotCorrupt(f"{name}: a piece of rows without the end of its Arrow stream")
    buffer = pa.py_buffer(stream)
    if buffer.address % _ALIGNMENT_BYTES:  # NumPy copies without the GIL, bytes() would hold it
        buffer = pa.py_buffer(np.frombuffer(stream, np.uint8).copy())
    try:
        with pa.ipc.open_stream(buffer) as reader:
            stored = reader.read_next_batch()
        stored.validate(full=True)
        columns = dict(zip(stored.schema.names, stored.columns, strict=True))
    except (pa.ArrowException, OSError, StopIteration, UnicodeDecodeError) as error:
        raise SnapshotCorrupt(f"{name}: the Arrow stream of a piece of rows cannot be read: {error}") from error
    wrong = [f"{each.name} {each.type}" for each in stored.schema if _STORED_TYPES.get(each.name) != each.type]
    missing = [each.name for each in ROW_SCHEMA if each.name not in columns and each.name not in _OPTIONAL]
    if wrong or missing or len(columns) != stored.num_columns:
        raise SnapshotCorrupt(f"{name}: columns {stored.schema.names}, missing {missing}, of wrong type {wrong}")
    return row_batch([_widened(columns.get(field.name), field, stored.num_rows) for field in ROW_SCHEMA])


def _widened(column: pa.Array | None, field: pa.Field, row_count: int) -> pa.Array:
    return pa.nulls(row_count) if column is None else column.cast(field.type)


def _problem(rows: pa.RecordBatch, state_count: int) -> str | None:
    """Return what is wrong with decoded rows, or None."""
    if rows.num_rows == 0:
        return None
    if any(rows.column(name).null_count for name in ("group", "state", "key")):
        return "a row without group, state or key"
    if pc.max(rows.column("group")).as_py() >= KEY_GROUPS:
        return f"a key group beyond {KEY_GROUPS - 1:,}"
    if pc.max(rows.column("state")).as_py() >= state_count:
        return f"a row of state {pc.max(rows.column('state'))}, but its header has {state_count} states"
    for name in ("key", "sub", "value"):
        if rows.column(name).type != pa.null() and pc.min(pc.binary_length(rows.column(name))).as_py() == 0:
            return f"a row with an empty {name}"
    if not is_strictly_ascending(rows):
        return "rows that are not sorted by (group, state, key, sub), each once"
    return None


def is_strictly_ascending(rows: pa.RecordBatch) -> bool:
    """Return whether rows are sorted by (group, state, key, sub) and each row stands once."""
    if rows.num_rows < 2:
        return True
    places = _groups(rows).astype(np.uint32) << 16 | rows.column("state").to_numpy()
    key, sub = rows.column("key"), rows.column("sub")
    is_less, is_equal = pc.less(key[:-1], key[1:]), pc.equal(key[:-1], key[1:])
    if sub.type != pa.null():
        # Rows of one state have all a sub-key, or none. So two rows of one key without both sub-keys are one row twice.
        is_less = pc.or_(is_less, pc.and_(is_equal, pc.fill_null(pc.less(sub[:-1], sub[1:]), False)))
    before, after = places[:-1], places[1:]
    return bool(np.all((before < after) | ((before == after) & is_less.to_numpy(zero_copy_only=False))))


def _groups(rows: pa.RecordBatch) -> npt.NDArray[np.uint16]:
    groups: npt.NDArray[np.uint16] = rows.column("group").to_numpy()
    return groups
