"""Decode the rows of a segment for a tier that restores them.

Owns the way from a segment to Python values. Must not know how a tier keeps rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

import pyarrow as pa

from cutline.snapshot.errors import SnapshotCorrupt
from cutline.snapshot.keyed.rows_codec import NOT_DECODABLE, decode_keys, decode_values
from cutline.snapshot.keyed.segment import Segment

#: Rows that are decoded at a time, so that the columns of a chunk stay in the cache.
_CHUNK_ROWS: Final = 65_536

#: Keys; sub-keys, or None for kinds without sub-keys; values; seconds at which rows expire, or None where none expires.
DecodedRows: TypeAlias = tuple[list[Any], list[Any] | None, list[Any], list[float | None] | None]


def rows_of(segment: Segment, state_name: str, *, chunk_rows: int = _CHUNK_ROWS) -> Iterator[DecodedRows]:
    """Yield the rows of one state by the column, in chunks. A state that the segment does not have has no rows.

    Values of `ROW_ATOMS` are decoded. Other values stay `bytes`, and a tombstone is None. Call with the garbage
    collector disabled, because millions of new objects would be searched again and again.

    Raises
    ------
    SnapshotCorrupt
        if a key or a value is no MessagePack.
    """
    index = next((index for index, spec in enumerate(segment.states) if spec.name == state_name), None)
    if index is None:
        return
    rows = segment.rows
    is_of_state = rows.column("state").to_numpy() == index
    if not is_of_state.all():
        rows = rows.filter(pa.array(is_of_state))
    for start in range(0, rows.num_rows, chunk_rows):
        try:
            yield _decode(rows.slice(start, chunk_rows), has_sub_keys=segment.states[index].form.has_sub_keys)
        except NOT_DECODABLE as error:
            raise SnapshotCorrupt(f"state {state_name!r}: a row cannot be decoded: {error!r}") from error


def unexpired(
    rows: Iterable[Any], values: list[Any], expires: list[float | None] | None, now: float
) -> Iterator[tuple[Any, Any, float | None]]:
    """Yield rows with their values and expiries. The value of a row that has expired by `now` is None."""
    if expires is None:
        return ((row, stored, None) for row, stored in zip(rows, values, strict=True))
    return (
        (row, None if end is not None and end <= now else stored, end)
        for row, stored, end in zip(rows, values, expires, strict=True)
    )


def _decode(rows: pa.RecordBatch, *, has_sub_keys: bool) -> DecodedRows:
    expires, values = rows.column("expires"), rows.column("value")
    return (
        decode_keys(rows.column("key")),
        decode_keys(rows.column("sub")) if has_sub_keys else None,
        [None] * rows.num_rows if values.type == pa.null() else decode_values(values),
        None if expires.null_count == rows.num_rows else expires.to_pylist(),
    )
