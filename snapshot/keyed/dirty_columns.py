"""The changed totals of a state that is kept by the column, and their rows for a segment.

Owns the encoding of totals: 9 bytes each, MessagePack int64 or float64; objects as values of rows. Must not know how a
capture keeps them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.columns.integer_table import Integers
from cutline.snapshot.columns.slot_blocks import CapturedSlots, Column, SlotValues
from cutline.snapshot.keyed.row_grouping import RowGrouping
from cutline.snapshot.keyed.rows import StateSpec
from cutline.snapshot.keyed.rows_codec import encode_values

#: First byte of a 64-bit integer and of a 64-bit float in MessagePack; the big-endian number follows.
_INTEGER: Final = 0xD3
_FLOAT: Final = 0xCB
NUMBER_BYTES: Final = 9

Bytes = npt.NDArray[np.uint8]


#: Encodes the columns of some slots at a time in seconds since the epoch: values, null for a tombstone, and expiries.
EncodeColumns = Callable[[tuple[Column, ...], float], tuple[pa.Array, pa.Array | None]]


class SlotKeys(Protocol):
    """Keys by slot."""

    def keys_at(self, slots: Integers) -> list[Any]:
        """Return the keys at slots. Called on any thread."""


class DirtyColumns:
    """The totals of one state that changed since the last capture. The counterpart of `DirtyTable`.

    Parameters
    ----------
    spec : StateSpec
    keys : SlotKeys
        Keys of the slots. More keys may be added meanwhile.
    captured : CapturedSlots
    encode : callable
        Encodes the columns of captured slots.
    grouping : RowGrouping, optional
        How the group of a row follows from its key. None: the key of the row is the key of the edge.
    """

    def __init__(
        self,
        spec: StateSpec,
        keys: SlotKeys,
        captured: CapturedSlots,
        encode: EncodeColumns,
        grouping: RowGrouping | None = None,
    ) -> None:
        self.spec = spec
        self.keys = keys
        self.captured = captured
        self.encode = encode
        self.grouping = grouping

    def release(self) -> bool:
        """Give up the totals. Return False, because nothing is left to be emptied."""
        self.captured.end()
        return False


class ColumnChunk(NamedTuple):
    """Rows of one state, by the column."""

    keys: list[Any]
    #: encoded totals, null for a tombstone
    values: pa.Array
    #: seconds since the epoch, null for a row that never expires; None as a whole where no row expires
    expires: pa.Array | None


class ColumnReader:
    """Read changed totals in chunks, on any thread. All blocks are copied before the first chunk is read.

    Parameters
    ----------
    table : DirtyColumns
    now : float
        A total that has expired by then is read as a tombstone.
    """

    def __init__(self, table: DirtyColumns, now: float) -> None:
        self._table = table
        self._now = now
        self._block = 0
        self._row = 0

    def copy_next(self) -> bool:
        """Copy a block. Return False when all are copied."""
        captured = self._table.captured
        if self._block == captured.block_count:
            self._block = 0
            return False
        captured.copy(self._block)
        self._block += 1
        return True

    def read(self, count: int) -> ColumnChunk | None:
        """Return the next rows, `count` at most, or None after the last."""
        captured = self._table.captured
        while self._block < captured.block_count:
            block = captured.copy(self._block)
            assert block is not None
            first, self._row = self._row, self._row + count
            if first < len(block.slots):
                return self._chunk(block, slice(first, self._row))
            self._block, self._row = self._block + 1, 0
        return None

    def _chunk(self, block: SlotValues, rows: slice) -> ColumnChunk:
        values, expires = self._table.encode(tuple(column[rows] for column in block.columns), self._now)
        return ColumnChunk(self._table.keys.keys_at(block.slots[rows]), values, expires)


def encode_totals(columns: tuple[Column, ...], now: float, *, codec: Codec) -> tuple[pa.Array, pa.Array | None]:
    """Encode columns of totals, whether each is alive, and perhaps when each expires. See `EncodeColumns`."""
    totals, alive = columns[:2]
    expires = None
    if len(columns) > 2:
        ends = columns[2]
        alive = alive & (ends > now)
        expires = pa.array(ends, mask=~(alive & (ends < np.inf)))
    if totals.dtype == np.object_:
        listed = [total if is_alive else None for total, is_alive in zip(totals, alive, strict=True)]
        return pa.array(encode_values(listed, codec), pa.large_binary()), expires
    return rows_of_bytes(numbers_as_bytes(totals), alive), expires


def numbers_as_bytes(numbers: Column) -> Bytes:
    """Encode 64-bit numbers, a row of bytes for each."""
    encoded = np.empty((len(numbers), NUMBER_BYTES), np.uint8)
    encoded[:, 0] = _INTEGER if numbers.dtype == np.int64 else _FLOAT
    encoded[:, 1:] = numbers.astype(numbers.dtype.newbyteorder(">")).view(np.uint8).reshape(-1, NUMBER_BYTES - 1)
    return encoded


def rows_of_bytes(rows: Bytes, is_valid: npt.NDArray[np.bool_]) -> pa.Array:
    """Return rows of equal length as a column of large binary, with null where `is_valid` is False."""
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(np.where(is_valid, rows.shape[1], 0), out=offsets[1:])
    validity = None
    if not is_valid.all():
        rows = rows[is_valid]
        validity = pa.py_buffer(np.packbits(is_valid, bitorder="little"))
    buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(rows))]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)
