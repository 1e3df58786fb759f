"""Turn the rows of a segment into rows of a store, sorted by key, by the column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cutline.snapshot.keyed.cold_values import expiry_heads, index_times
from cutline.snapshot.keyed.row_keys import expiry_heads_of, timer_heads_of
from cutline.snapshot.keyed.row_store import StoredRow
from cutline.snapshot.keyed.rows_codec import decode_times
from cutline.snapshot.keyed.segment import Segment

#: Rows of a part, and their bytes, because Python holds its lock for 0.4 ms while a store takes a part of small rows.
_PART_ROWS_MAX: Final = 400
_PART_BYTES_MAX: Final = 512 * 1024

_BINARY: Final = pa.large_binary()

#: rows that are turned into Python objects and added together
_Parts: TypeAlias = Iterator[Sequence[StoredRow]]


class IngestedRows(NamedTuple):
    """What a store gets of a segment."""

    #: all rows, sorted by key
    parts: _Parts
    #: the least key of an index row, or None without any
    first_index_row: bytes | None


def ingested_rows(segment: Segment, numbers: Sequence[int], now: float) -> IngestedRows:
    """Return the rows of states, then the index rows of expiries, then timers: the order of their keys.

    Parameters
    ----------
    segment : Segment
    numbers : sequence of int
        Number in the store of each state of the segment.
    now : float
        Seconds since the epoch. A row that has expired by then removes older rows of its key, and is not stored.
    """
    rows = segment.rows
    states = rows.column("state").to_numpy()
    is_timer = np.isin(states, [n for n, spec in enumerate(segment.states) if spec.form.holds_timers])
    timers: _Parts = iter(())
    if is_timer.any():
        timers = _timers(rows.filter(pa.array(is_timer)))
        rows, states = rows.filter(pa.array(~is_timer)), states[~is_timer]
    names, values = _names(rows, np.asarray(numbers, np.uint16)[states]), _binary(rows.column("value"))
    ends = rows.column("expires").cast(pa.float64())
    if list(numbers) != sorted(numbers):  # states of this segment are in another sequence than in the store
        ascending = pc.sort_indices(names)
        names, values, ends, states = (
            names.take(ascending), values.take(ascending), ends.take(ascending), states[ascending.to_numpy()]
        )  # fmt: skip
    if ends.null_count == len(ends):
        return IngestedRows(chain(_pairs(names, values), timers), None)
    values = pc.if_else(pc.fill_null(pc.less_equal(ends, now), False), pa.scalar(None, _BINARY), values)
    heads = _joined(_heads(expiry_heads(_floats(ends))), values)
    index = _index_names(segment, names, pc.and_(ends.is_valid(), values.is_valid()), ends, states)
    parts = chain(_pairs(names, pc.if_else(ends.is_valid(), heads, values)), _empty_rows(index, None), timers)
    return IngestedRows(parts, index[0].as_py() if len(index) else None)


def _index_names(
    segment: Segment, names: pa.Array, is_listed: pa.Array, ends: pa.Array, states: npt.NDArray[np.uint16]
) -> pa.Array:
    """Return the keys of the index rows, sorted."""
    ttls = np.array([spec.ttl or 0.0 for spec in segment.states])[states[is_listed.to_numpy(zero_copy_only=False)]]
    times = index_times(_floats(ends.filter(is_listed)), ttls)
    found = _joined(_heads(expiry_heads_of(times)), names.filter(is_listed))
    return found.take(pc.sort_indices(found))


def _timers(rows: pa.RecordBatch) -> _Parts:
    names = _joined(_heads(timer_heads_of(decode_times(rows.column("sub")))), rows.column("key"))
    ascending = pc.sort_indices(names)
    return _empty_rows(names.take(ascending), _binary(rows.column("value")).is_valid().take(ascending))


def _empty_rows(names: pa.Array, is_set: pa.Array | None) -> _Parts:
    """Return rows without content. Rows for which `is_set` is False are removed."""
    values = pa.scalar(b"", _BINARY)
    if is_set is None:
        is_set = pa.array(np.ones(len(names), np.bool_))
    return _pairs(names, pc.if_else(is_set, values, pa.scalar(None, _BINARY)))


def _names(rows: pa.RecordBatch, numbers: npt.NDArray[np.uint16]) -> pa.Array:
    """Return the key of each row in the store."""
    heads = np.empty((rows.num_rows, 2), np.dtype(">u2"))
    heads[:, 0] = rows.column("group").to_numpy()
    heads[:, 1] = numbers
    parts = [_heads(heads), rows.column("key")]
    if rows.column("sub").type != pa.null():
        parts.append(pc.fill_null(rows.column("sub"), b""))
    return _joined(*parts)


def _heads(heads: npt.NDArray[Any]) -> pa.Array:
    """Return the bytes of each row of an array as a column."""
    count = len(heads)
    width = heads.nbytes // max(1, count)
    offsets = pa.py_buffer(np.arange(count + 1, dtype=np.int64) * width)
    return pa.Array.from_buffers(_BINARY, count, [None, offsets, pa.py_buffer(heads.tobytes())])


def _joined(*parts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", _BINARY))


def _binary(values: pa.Array) -> pa.Array:
    """Return a column of values. Where all rows are tombstones, the column of a segment has no type."""
    return pa.nulls(len(values), _BINARY) if values.type == pa.null() else values


def _floats(ends: pa.Array) -> npt.NDArray[np.float64]:
    found: npt.NDArray[np.float64] = pc.fill_null(ends, 0.0).to_numpy()
    return found


def _pairs(names: pa.Array, values: pa.Array) -> _Parts:
    size = names.nbytes + values.nbytes
    count = max(1, min(_PART_ROWS_MAX, _PART_BYTES_MAX * len(names) // (size + 1)))
    for start in range(0, len(names), count):
        yield list(
            zip(names[start : start + count].to_pylist(), values[start : start + count].to_pylist(), strict=True)
        )
