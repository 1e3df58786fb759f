"""Encode the rows of one generation, in chunks that are short enough for the subtask's thread to run between them.

Owns the way from dicts to a segment. Must not know when a generation is encoded, nor where it is stored.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, repeat, starmap
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from cutline.snapshot.channel.key_hash import hash_keys
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.errors import SnapshotAborted
from cutline.snapshot.keyed.dirty_columns import ColumnReader, DirtyColumns
from cutline.snapshot.keyed.memtable import Memtable
from cutline.snapshot.keyed.merging import merged, newest_rows
from cutline.snapshot.keyed.row_grouping import RowGrouping
from cutline.snapshot.keyed.row_store import Steps
from cutline.snapshot.keyed.rows import CapturedRows, DirtyRows, DirtyTable, StateSpec
from cutline.snapshot.keyed.rows_codec import bytes_of, decode_key, encode_keys, encode_values
from cutline.snapshot.keyed.segment import Segment, concatenated, no_rows, row_batch
from cutline.snapshot.plan.topology import KEY_GROUPS

#: Rows of a chunk, which holds the GIL for 0.2 to 0.5 ms.
CHUNK_ROWS: Final = 400

#: Rows of a chunk of totals by the column.
_COLUMN_CHUNK_ROWS: Final = 1_024

#: Bytes of a chunk beyond which the next chunks have fewer rows, because Python copies them with the GIL held.
_CHUNK_BYTES_MAX: Final = 512 * 1024

#: Chunks that are joined at a time, because joining holds the GIL for a microsecond a chunk.
_JOINED_CHUNKS: Final = 64

#: Rows that are freed at a time, which holds the GIL for 0.2 to 0.5 ms.
_FREED_ROWS: Final = 1_000

#: Characters of a key in an error.
_KEY_TEXT_MAX: Final = 200


class _Chunk(NamedTuple):
    """Rows of one state, by the column."""

    keys: list[Any]
    #: sub-keys, or None for kinds without sub-keys
    subs: list[Any] | None
    #: None for a tombstone
    values: list[Any]
    #: seconds since the epoch, or None for a row that never expires; None as a whole where no row expires
    expires: list[float | None] | None


def encoding(captured: CapturedRows, codec: Codec) -> Steps[Segment]:
    """Encode captured rows. Return their segment, and leave the dicts of `captured` empty, apart from memtables.

    The generator yields after each chunk of at most `CHUNK_ROWS` rows. Python holds the GIL for less than a millisecond
    between two yields. Sorting takes longer, and releases the GIL. Until the last row is encoded the dicts are as they
    were, so that rows are not lost where the generator raises. A memtable is encoded by its writer too, only once.

    Parameters
    ----------
    captured : CapturedRows
        Nobody else may use the dicts meanwhile. A row that has expired at `captured.now` becomes a tombstone, or in a
        memtable one that has expired when the memtable was sealed.
    codec : Codec

    Raises
    ------
    SnapshotAborted
        if the group of a key is not one of `captured.groups`. The text names state, key and groups.
    """
    memtables = [table for table in captured.tables if isinstance(table, Memtable)]
    tables = tuple(table for table in captured.tables if not isinstance(table, Memtable))
    segments: list[Segment] = []
    if tables or not memtables:
        segments.append((yield from encoding_tables(replace(captured, tables=tables), codec)))
    for memtable in memtables:
        segment = yield from memtable.encoding()
        segments.append(replace(segment, now=captured.now, grouped_by=captured.grouped_by))
    segment = segments[0] if len(segments) == 1 else merged(segments, is_whole=False)
    _require_groups(segment, captured.groups)
    for table in captured.tables:
        if table.release():
            yield from emptying(table)
    return segment


def encoding_tables(captured: CapturedRows, codec: Codec) -> Steps[Segment]:
    """Encode rows as `encoding` does, without memtables and of any key group. The dicts stay as they are."""
    tables = [(table, table.spec) for table in captured.tables if isinstance(table, DirtyTable | DirtyColumns)]
    specs = {spec.name: spec for _, spec in tables}
    states = tuple(specs[name] for name in sorted(specs))
    chunks: list[pa.RecordBatch] = []
    joined: list[pa.RecordBatch] = []
    for table, spec in reversed(tables):  # newest first
        state = states.index(specs[spec.name])
        for batch in _batches(table, state, captured, codec):
            if batch is not None:
                chunks.append(batch)
            if len(chunks) == _JOINED_CHUNKS:
                joined.append(concatenated(chunks))
                chunks.clear()
            yield None
    rows = newest_rows(joined + chunks) if joined or chunks else no_rows()
    return Segment(states, captured.now, rows, captured.grouped_by)


def _batches(
    table: DirtyTable | DirtyColumns, state: int, captured: CapturedRows, codec: Codec
) -> Iterator[pa.RecordBatch | None]:
    """Yield the rows of a table in chunks, and None where a step has made no row."""
    if isinstance(table, DirtyColumns):
        reader = ColumnReader(table, captured.now)
        while reader.copy_next():
            yield None
        while (chunk := reader.read(_COLUMN_CHUNK_ROWS)) is not None:
            nulls = pa.nulls(len(chunk.keys))
            expires = nulls if chunk.expires is None else chunk.expires
            columns = (nulls, chunk.values, expires)
            yield _batch(chunk.keys, columns, state, captured, table.grouping)
        return
    rest, count = _TableReader(table), CHUNK_ROWS
    while rows := rest.read(count):
        batch = _encode(rows, table.spec, state, captured, codec)
        yield batch
        count = _next_count(batch)


def emptying(table: DirtyRows) -> Iterator[None]:
    """Free the rows of a table in chunks, because freeing two million rows at once stops all threads for 50 ms."""
    assert isinstance(table, DirtyTable), "nothing of other tables is left to be emptied"
    for rows in (table.rows, table.expiries or {}):
        yield from _empty(rows, has_sub_keys=table.spec.form.has_sub_keys)


class _TableReader:
    """Read the rows of a table in chunks. The table must not change meanwhile."""

    def __init__(self, table: DirtyTable) -> None:
        self._expiries = table.expiries or {}
        self._has_sub_keys = table.spec.form.has_sub_keys
        self._rows = _with_sub_keys(table.rows) if self._has_sub_keys else iter(())
        self._keys, self._values = iter(table.rows), iter(table.rows.values())

    def read(self, count: int) -> _Chunk | None:
        """Return the next `count` rows, or fewer at the end, or None after it."""
        subs: list[Any] | None = None
        if self._has_sub_keys:
            columns = list(map(list, zip(*islice(self._rows, count), strict=True)))
            keys, subs, values = columns or ([], [], [])
        else:
            keys, values = list(islice(self._keys, count)), list(islice(self._values, count))
        if not keys:
            return None
        if not self._expiries:
            return _Chunk(keys, subs, values, None)
        if subs is None:
            return _Chunk(keys, subs, values, list(map(self._expiries.get, keys)))
        return _Chunk(keys, subs, values, [self._expiries.get(k, {}).get(s) for k, s in zip(keys, subs, strict=True)])


def _with_sub_keys(rows: dict[Any, dict[Any, Any]]) -> Iterator[tuple[Any, Any, Any]]:
    for key, inner in rows.items():
        yield from zip(repeat(key), inner, inner.values())  # the key is repeated without end


def _encode(chunk: _Chunk, spec: StateSpec, state: int, captured: CapturedRows, codec: Codec) -> pa.RecordBatch:
    keys, subs, values, expires = chunk
    count, now = len(keys), captured.now
    if expires is not None:
        # An older row of the key may expire later. So an expired row is not left out, but hides the older row.
        values = [None if e is not None and e <= now else v for v, e in zip(values, expires, strict=True)]
        expires = [None if v is None else e for v, e in zip(values, expires, strict=True)]
    columns = (
        pa.nulls(count) if subs is None else pa.array(spec.form.encode_subs(subs), pa.large_binary()),
        pa.array(encode_values(values, codec), pa.large_binary()),
        pa.nulls(count) if expires is None else pa.array(expires, pa.float64()),
    )
    return _batch(keys, columns, state, captured)


def _batch(
    keys: list[Any],
    columns: tuple[pa.Array, ...],
    state: int,
    captured: CapturedRows,
    grouping: RowGrouping | None = None,
) -> pa.RecordBatch:
    """Return rows of keys and their encoded columns: sub-keys, values, times of expiry."""
    if grouping is None:
        groups = (hash_keys(keys) % np.uint64(KEY_GROUPS)).astype(np.uint16)
    else:
        groups = grouping.groups(keys, captured.groups)
    state_column = pa.array(np.full(len(keys), state, np.uint16))
    return row_batch([pa.array(groups), state_column, pa.array(encode_keys(keys), pa.large_binary()), *columns])


def _next_count(batch: pa.RecordBatch) -> int:
    """Return the number of rows of the next chunk, whose rows will be as large as those of `batch`."""
    values = batch.column("value")
    if values.type == pa.null():
        return CHUNK_ROWS
    offsets, _ = bytes_of(values)
    size = int(offsets[-1] - offsets[0])
    row_count: int = batch.num_rows
    return max(1, min(CHUNK_ROWS, _CHUNK_BYTES_MAX * row_count // (size + 1)))


def _require_groups(segment: Segment, owned: range) -> None:
    rows = segment.rows
    for row in (rows[:1], rows[-1:]):  # rows are sorted by group
        if not row.num_rows or (group := row.column("group")[0].as_py()) in owned:
            continue
        spec, key = segment.states[row.column("state")[0].as_py()], decode_key(row.column("key")[0].as_py())
        raise SnapshotAborted(
            f"state {spec.name!r}: key {repr(key)[:_KEY_TEXT_MAX]} is of key group {group:,}, but the subtask owns "
            f"[{owned.start:,}, {owned.stop:,}). Either the key function of the edge is no function of the message, or "
            "the keys of a bulk call are not the keys of the edge. Repair the function, or take the keys from the "
            "columns that the edge is partitioned by"
        )


def _empty(rows: dict[Any, Any], *, has_sub_keys: bool) -> Iterator[None]:
    if not has_sub_keys:
        yield from _empty_flat(rows)
    freed = 0
    while rows:
        _, inner = rows.popitem()
        freed += len(inner)
        if len(inner) > _FREED_ROWS:
            yield from _empty_flat(inner)
        elif freed >= _FREED_ROWS:
            freed = 0
            yield


def _empty_flat(rows: dict[Any, Any]) -> Iterator[None]:
    while rows:
        deque(starmap(rows.popitem, repeat((), min(len(rows), _FREED_ROWS))), maxlen=0)
        yield
