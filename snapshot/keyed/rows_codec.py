"""Encode the keys and values of rows, and decode whole columns of them.

Owns the bytes of one key and of one value. Must not know columns of a segment, nor which rows are stored.

A key is canonical MessagePack: equal keys have equal bytes, and different keys different bytes. Keys are equal where
`stable_hash` takes them as equal::

    None, str, bytes   as they are; halves of surrogate pairs are written as UTF-8 writes any character
    bool, int          an int of the shortest form, so True is 1; beyond 64 bits extension 5: signed, little-endian
    tuple              an array of its elements

A value is MessagePack of any kind, and its first byte tells an atom of `ROW_ATOMS` from all else.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgpack
import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.channel.stored_references import may_have_references, references_in

#: Types of values that a row holds as they are. `bytes` in a row is an encoded value of any other type.
ROW_ATOMS: Final = frozenset({bool, int, float, str})

#: Extension of integers beyond 64 bits in keys. Stored: never renumber. Extensions of the codec have lower numbers.
_EXT_LONG: Final = 5

#: Types of keys that msgspec writes canonically, alone or in a flat tuple.
_CANONICAL: Final = frozenset({str, int, bytes, type(None)})

#: Types of values that need no encoding: what was encoded before, and tombstones.
_ENCODED: Final = frozenset({bytes, type(None)})

#: Errors of msgspec for integers of more than 64 bits and for halves of surrogate pairs.
_NOT_MESSAGEPACK: Final = (OverflowError, UnicodeEncodeError)

#: Errors of bytes that are no MessagePack, or hold what no key and no atom is.
NOT_DECODABLE: Final = (TypeError, ValueError, msgpack.UnpackException)

_NIL: Final = b"\xc0"

#: an encoded time: all have the length of MessagePack's float
_TIME: Final = np.dtype([("first", "u1"), ("at", ">f8")])

_pack = msgspec.msgpack.Encoder().encode


def encode_key(key: Any) -> bytes:
    """Encode a key, or a sub-key.

    Raises
    ------
    TypeError
        when `key` is, or holds, something else than None, bool, int, str, bytes and tuples, or is nested too deep.
    """
    if _are_canonical((key,)) or (type(key) is tuple and _are_canonical(key)):
        try:
            return _pack(key)
        except _NOT_MESSAGEPACK:
            pass
    try:
        packed: bytes = msgpack.packb(_plain(key), unicode_errors="surrogatepass")
    except (ValueError, RecursionError) as error:
        raise TypeError(f"a {type(key).__qualname__} nested too deep cannot be a key: {error}") from error
    return packed


def encode_keys(keys: list[Any]) -> list[bytes]:
    """Encode each key as `encode_key` does, and raise as `encode_key` does."""
    if _are_canonical(keys):
        try:
            return list(map(_pack, keys))
        except _NOT_MESSAGEPACK:
            pass
    return list(map(encode_key, keys))


def encode_times(times: list[float]) -> list[bytes]:
    """Encode the times of timers, alike for an int and an equal float. `decode_keys` returns floats."""
    return [_pack(float(time)) for time in times]


def decode_key(data: bytes) -> Any:
    """Return the key of `encode_key`: an equal key, though True is returned as 1.

    Raises
    ------
    TypeError, ValueError, msgpack.UnpackException
        if the bytes hold no key (`NOT_DECODABLE`).
    """
    return _unpack(data)


def decode_keys(column: pa.Array) -> list[Any]:
    """Return the key of each row of a column of large binary without nulls. Raises as `decode_key`."""
    return _unpack_all(column)


def decode_times(column: pa.Array) -> npt.NDArray[np.float64]:
    """Return the times of `encode_times` of a column of large binary without nulls."""
    offsets, data = bytes_of(column)
    encoded = np.frombuffer(data, _TIME, len(column), offset=int(offsets[0]))
    return encoded["at"].astype(np.float64)


def encode_value(value: Any, codec: Codec) -> bytes:
    """Encode the value of a row. `bytes` are taken as they are, because they hold a value that was encoded before.

    Raises
    ------
    NotSerialisable
        as `Codec.encode`.
    """
    return value if type(value) is bytes else codec.encode(value)


def encode_values(values: list[Any], codec: Codec) -> list[bytes | None]:
    """Encode each value as `encode_value` does, and raise as `encode_value` does. None, a tombstone, stays None."""
    types = set(map(type, values))
    if types <= _ENCODED:
        return values
    if types <= ROW_ATOMS:
        try:
            return list(map(codec.pack, values))
        except _NOT_MESSAGEPACK:
            pass
    return [value if type(value) in _ENCODED else codec.encode(value) for value in values]


def decode_values(column: pa.Array) -> list[Any]:
    """Return the value of each row of a column of large binary: atoms decoded, all else as `bytes`, None for a null.

    Raises
    ------
    TypeError, ValueError, msgpack.UnpackException
        if an atom cannot be decoded (`NOT_DECODABLE`).
    """
    if column.null_count:
        column = pc.fill_null(column, _NIL)
    is_atom = IS_ATOM[_first_bytes(column)]
    if is_atom.all():
        return _unpack_all(column)
    values: list[Any] = column.to_pylist()
    if is_atom.any():
        places = np.flatnonzero(is_atom)
        for place, atom in zip(places.tolist(), _unpack_all(column.take(pa.array(places))), strict=True):
            values[place] = atom
    return values


def references_of(column: pa.Array) -> set[bytes]:
    """Return the encoded references of the pickles in a column of large binary."""
    if column.null_count == len(column):  # of tombstones alone, whose column may be of any type
        return set()
    offsets, data = bytes_of(column)
    if not may_have_references(memoryview(data)[int(offsets[0]) : int(offsets[-1])]):
        return set()
    values = {value for value in column.to_pylist() if value is not None and may_have_references(value)}
    return set().union(*map(references_in, values))


def bytes_of(column: pa.Array) -> tuple[npt.NDArray[np.int64], pa.Buffer]:
    """Return the offsets of a column of large binary, one more than rows, and the buffer that they refer to."""
    _, offsets, data = column.buffers()
    start = column.offset
    if offsets is None or offsets.size == 0:  # Arrow may omit the offsets of no rows
        return np.zeros(1, np.int64), pa.py_buffer(b"")
    found = np.frombuffer(offsets, np.int64, len(column) + 1, offset=8 * start)
    return found, pa.py_buffer(b"") if data is None else data


def _are_canonical(keys: Iterable[Any]) -> bool:
    return _CANONICAL.issuperset(map(type, keys))


def _plain(key: Any) -> Any:
    """Return what MessagePack writes canonically for a key. Subclasses become the types that they extend."""
    if isinstance(key, int):
        number = int(key)
        if -(1 << 63) <= number < 1 << 64:
            return number
        return msgpack.ExtType(_EXT_LONG, number.to_bytes(number.bit_length() // 8 + 1, "little", signed=True))
    if isinstance(key, str):
        return str.__str__(key)
    if isinstance(key, bytes):
        return bytes(key)
    if isinstance(key, tuple):
        return [_plain(element) for element in key]
    if key is None:
        return None
    raise TypeError(
        f"{type(key).__qualname__} cannot be a key: keys are None, bool, int, str, bytes and tuples of them"
    )


def _unpack(data: bytes) -> Any:
    return msgpack.unpackb(data, use_list=False, ext_hook=_long, unicode_errors="surrogatepass")


def _long(code: int, data: bytes) -> int:
    if code != _EXT_LONG:
        raise ValueError(f"an extension {code} of {len(data)} bytes")
    return int.from_bytes(data, "little", signed=True)


def _unpack_all(column: pa.Array) -> list[Any]:
    """Decode all rows in one call, because the bytes of neighbours abut: after a header they are one array."""
    offsets, data = bytes_of(column)
    header = b"\xdd" + len(column).to_bytes(4, "big")
    return list(_unpack(header + memoryview(data)[offsets[0] : offsets[-1]]))


def _first_bytes(column: pa.Array) -> npt.NDArray[np.uint8]:
    offsets, data = bytes_of(column)
    return np.frombuffer(data, np.uint8)[offsets[:-1]]


def _atom_table() -> npt.NDArray[np.bool_]:
    """Return for each first byte whether it begins an atom of `ROW_ATOMS` or the nil of a tombstone."""
    table = np.zeros(256, dtype=np.bool_)
    table[0x00:0x80] = table[0xE0:0x100] = True  # short integers
    table[0xA0:0xC0] = table[0xD9:0xDC] = True  # str
    table[[0xC0, 0xC2, 0xC3, 0xCA, 0xCB]] = True  # nil, bool, float
    table[0xCC:0xD4] = True  # other integers
    return table


#: for each first byte of an encoded value, whether the value is an atom of `ROW_ATOMS`, or the nil of a tombstone
IS_ATOM: Final = _atom_table()
