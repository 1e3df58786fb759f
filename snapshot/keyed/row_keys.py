"""Encode the keys under which a local database keeps the rows of a subtask.

Must not know the database. Three ranges of keys, each sorted as their bytes are::

    group u16 │ state u16 │ key │ sub-key     a row; group < 32,768
    0xFFFE    │ time u64  │ key of a row      an index row: the row may expire at this time
    0xFFFF    │ time u64  │ key               a keyed timer

Numbers are big-endian. `key` and `sub-key` are canonical MessagePack, as in a segment. No encoded key is the beginning
of another, so no length is needed, and rows have the order in which a segment holds them. Times are the bits of a
float, changed so that their unsigned order is the order of the times.
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

import msgpack
import numpy as np
import numpy.typing as npt

_HEAD: Final = Struct(">HH")
_TIME_HEAD: Final = Struct(">HQ")
_FLOAT: Final = Struct(">d")
_BITS: Final = Struct(">Q")

_EXPIRY_RANGE: Final = 0xFFFE
_TIMER_RANGE: Final = 0xFFFF

#: bytes before the key of a row
ROW_HEAD_BYTES: Final = _HEAD.size
#: bytes before the key of a timer, and before the row of an index row
TIME_HEAD_BYTES: Final = _TIME_HEAD.size

_SIGN: Final = 1 << 63
_ALL: Final = (1 << 64) - 1


#: returns the beginning of the keys of all rows of a key group, the first argument, and a state, the second
row_head: Final = _HEAD.pack


def split_row(row: bytes) -> tuple[bytes, bytes]:
    """Return (key, sub-key) of the key of a row, both encoded. The sub-key of a row without one is empty."""
    unpacker = msgpack.Unpacker(None, max_buffer_size=len(row))
    unpacker.feed(row[ROW_HEAD_BYTES:])
    unpacker.skip()
    end = ROW_HEAD_BYTES + unpacker.tell()
    return row[ROW_HEAD_BYTES:end], row[end:]


def timer_row(at: float, key: bytes) -> bytes:
    """Return the key of the timer at `at`, in seconds since the epoch, for an encoded key."""
    return _TIME_HEAD.pack(_TIMER_RANGE, _ordered(at)) + key


def split_timer(row: bytes) -> tuple[float, bytes]:
    """Return (time, encoded key) of the key of a timer."""
    return _time_of(_TIME_HEAD.unpack_from(row)[1]), row[TIME_HEAD_BYTES:]


def expiry_row(at: float, row: bytes) -> bytes:
    """Return the key of the index row which says that `row` may expire at `at`, in seconds since the epoch."""
    return _TIME_HEAD.pack(_EXPIRY_RANGE, _ordered(at)) + row


def split_expiry(row: bytes) -> tuple[float, bytes]:
    """Return (time, key of the row) of the key of an index row."""
    return _time_of(_TIME_HEAD.unpack_from(row)[1]), row[TIME_HEAD_BYTES:]


def timer_heads_of(times: npt.NDArray[np.float64]) -> npt.NDArray[np.void]:
    """Return the bytes before the key of each timer, in the keys of timers."""
    return _time_heads(_TIMER_RANGE, times)


def expiry_heads_of(times: npt.NDArray[np.float64]) -> npt.NDArray[np.void]:
    """Return the bytes before the key of each row, in the keys of index rows."""
    return _time_heads(_EXPIRY_RANGE, times)


#: first key after all rows
ROWS_END: Final = b"\x80"
#: end of the keys of timers; no key of the database is greater
TIMERS_END: Final = b"\xff" * (TIME_HEAD_BYTES + 1)
#: first possible key of an index row, and of a timer
EXPIRIES_START: Final = _EXPIRY_RANGE.to_bytes(2, "big")
TIMERS_START: Final = _TIMER_RANGE.to_bytes(2, "big")


def end_of(prefix: bytes) -> bytes:
    """Return the first key after all keys that begin with `prefix`. The prefix must not be all 0xFF."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1])


def _time_heads(first: int, times: npt.NDArray[np.float64]) -> npt.NDArray[np.void]:
    bits = times.view(np.uint64)
    sign = np.uint64(_SIGN)
    heads = np.empty(len(times), np.dtype([("range", ">u2"), ("time", ">u8")]))
    heads["range"], heads["time"] = first, np.where(bits & sign, ~bits, bits | sign)
    return heads


def _ordered(at: float) -> int:
    (bits,) = _BITS.unpack(_FLOAT.pack(at))
    ordered: int = bits ^ _ALL if bits & _SIGN else bits | _SIGN
    return ordered


def _time_of(ordered: int) -> float:
    at: Any = _FLOAT.unpack(_BITS.pack(ordered ^ _SIGN if ordered & _SIGN else ordered ^ _ALL))[0]
    return float(at)
