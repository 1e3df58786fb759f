"""Encode what a store of bytes holds beside a segment, and decode what the store returns.

A value with an expiry begins with a byte that MessagePack never uses, and the expiry as a big-endian float::

    value                        never expires
    0xC1 │ seconds f64 │ value   expires at this time
"""

from __future__ import annotations

from struct import Struct
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from cutline.snapshot.channel.key_hash import hash_keys
from cutline.snapshot.keyed.rows_codec import IS_ATOM, decode_key
from cutline.snapshot.plan.topology import KEY_GROUPS

#: Steps of a time-to-live. An index row says in which step a row expires, so a row that is written often has few.
EXPIRY_STEPS: Final = 16
#: seconds of a step where the state has no time-to-live any more
_STEP_SECONDS: Final = 60.0

#: first byte of a value that expires
EXPIRES: Final = 0xC1
_EXPIRY: Final = Struct(">Bd")
_EXPIRY_BYTES: Final = _EXPIRY.size

_ATOMS: Final = IS_ATOM.tobytes()  # a byte is read faster than an element of NumPy

_unpack = msgspec.msgpack.Decoder().decode


def expiry_of(stored: bytes) -> float | None:
    """Return when a stored value expires, or None for never."""
    return _EXPIRY.unpack_from(stored)[1] if stored[0] == EXPIRES else None


def value_of(stored: bytes) -> Any:
    """Return the value of a row: an atom, or the bytes of any other value."""
    first = stored[0]
    if first == EXPIRES:
        return value_of(stored[_EXPIRY_BYTES:])
    if not _ATOMS[first]:
        return stored
    try:
        return _unpack(stored)
    except msgspec.DecodeError:  # halves of surrogate pairs
        return decode_key(stored)


def expiry_heads(expires: npt.NDArray[np.float64]) -> npt.NDArray[np.void]:
    """Return the bytes before the value of each row, for rows that expire."""
    heads = np.empty(len(expires), np.dtype([("first", "u1"), ("expires", ">f8")]))
    heads["first"], heads["expires"] = EXPIRES, expires
    return heads


def index_times(expires: npt.NDArray[np.float64], ttls: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the times at which index rows list rows: the ends of the steps in which the rows expire.

    A time-to-live of 0 is none.
    """
    steps = np.where(ttls > 0, ttls / EXPIRY_STEPS, _STEP_SECONDS)
    return np.maximum(expires, -(-expires // steps) * steps)  # a product may be a little less


def heads_of(keys: list[Any], number: int) -> list[bytes]:
    """Return the head of the row of each key: its key group, and the number of the state."""
    heads = np.empty((len(keys), 2), np.dtype(">u2"))
    heads[:, 0] = hash_keys(keys) % np.uint64(KEY_GROUPS)
    heads[:, 1] = number
    data = heads.tobytes()
    return [data[place : place + 4] for place in range(0, len(data), 4)]
