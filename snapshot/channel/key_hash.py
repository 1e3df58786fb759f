"""Hash of keys: the same in every process, on every machine, for a single value and for many.

The hash decides where keyed state is, so its result for a value must never change. 64 bits::

    None         a constant
    bool, int    splitmix64's mixer over the value mod 2^64 (so True is 1, and an int of any Arrow width is the same);
                 beyond 64 bits xxHash of the bytes
    str, bytes   xxHash of the bytes (str: UTF-8), each with a seed of its own
    tuple        the elements' hashes, mixed in order
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import repeat
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import xxhash

from cutline.snapshot.channel.plain_keys import plain_key

_MASK: Final = (1 << 64) - 1
# Steele, Lea & Flood 2014, "Fast splittable pseudorandom number generators": the increment and the mixer's factors.
_GOLDEN: Final = 0x9E3779B97F4A7C15
_FACTOR_1: Final = 0xBF58476D1CE4E5B9
_FACTOR_2: Final = 0x94D049BB133111EB
# Any fixed numbers do. They only keep b"a" from colliding with "a", and () from colliding with None.
_SEED_LONG, _SEED_STR, _SEED_BYTES, _SEED_TUPLE, _NONE = 1, 2, 3, 4, 0x6E6F6E65

#: Rows that are mixed at a time, so that intermediate results (128 KiB) stay in the cache and in the heap. Larger
#: arrays come from the kernel and go back to it, page by page.
_BLOCK_ROWS: Final = 16_384

Hashes = npt.NDArray[np.uint64]


def stable_hash(key: Any) -> int:
    """Return the 64-bit hash of a key.

    Raises
    ------
    TypeError
        as `plain_key`.
    """
    if isinstance(key, str):
        return xxhash.xxh64_intdigest(key.encode("utf-8", "surrogatepass"), _SEED_STR)
    if isinstance(key, int):
        if -(1 << 63) <= key <= _MASK:
            return _mix(key & _MASK)
        return xxhash.xxh64_intdigest(key.to_bytes(key.bit_length() // 8 + 1, "little", signed=True), _SEED_LONG)
    if isinstance(key, tuple):
        mixed = _SEED_TUPLE
        for element in key:
            mixed = _mix((mixed * _GOLDEN + stable_hash(element)) & _MASK)
        return mixed
    if isinstance(key, bytes):
        return xxhash.xxh64_intdigest(key, _SEED_BYTES)
    if key is None:
        return _NONE
    return stable_hash(plain_key(key))


def hash_keys(keys: Sequence[Any]) -> Hashes:
    """Return `stable_hash` of each key, by the column where all keys are of one type. Raises as `stable_hash`."""
    types = set(map(type, keys))
    with suppress(UnicodeEncodeError, OverflowError):  # half of a surrogate pair, or an int beyond 64 bits
        if types == {str}:
            digests = map(xxhash.xxh64_intdigest, map(str.encode, keys), repeat(_SEED_STR))
            return np.fromiter(digests, np.uint64, len(keys))
        if types == {int}:
            return _mix_array(np.fromiter(keys, np.int64, len(keys)).view(np.uint64))
    if types == {tuple} and len(set(map(len, keys))) == 1:
        mixed = np.full(len(keys), _SEED_TUPLE, dtype=np.uint64)
        for column in zip(*keys, strict=True):
            mixed = _mix_array(mixed * np.uint64(_GOLDEN) + hash_keys(column))
        return mixed
    return np.fromiter(map(stable_hash, keys), np.uint64, len(keys))


def hash_columns(columns: Sequence[pa.Array], *, as_tuple: bool) -> Hashes:
    """Return the hash of each row's key: of the tuple of the columns' values, or of the only column's value.

    Raises
    ------
    TypeError
        when a column's type cannot be a key.
    """
    if not as_tuple:
        return _hash_column(columns[0])
    mixed = np.full(len(columns[0]), _SEED_TUPLE, dtype=np.uint64)
    for column in columns:
        mixed = _mix_array(mixed * np.uint64(_GOLDEN) + _hash_column(column))
    return mixed


def _mix(value: int) -> int:
    value = (value + _GOLDEN) & _MASK
    value = ((value ^ (value >> 30)) * _FACTOR_1) & _MASK
    value = ((value ^ (value >> 27)) * _FACTOR_2) & _MASK
    return value ^ (value >> 31)


def _mix_array(values: Hashes) -> Hashes:
    """Return `_mix` of each element. Arrays of unsigned integers wrap around silently, as the mixer needs."""
    mixed = values + np.uint64(_GOLDEN)
    for start in range(0, len(mixed), _BLOCK_ROWS):
        block = mixed[start : start + _BLOCK_ROWS]
        block ^= block >> np.uint64(30)
        block *= np.uint64(_FACTOR_1)
        block ^= block >> np.uint64(27)
        block *= np.uint64(_FACTOR_2)
        block ^= block >> np.uint64(31)
    return mixed


def _hash_column(column: pa.Array) -> Hashes:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _hash_encoded(column)
    if pa.types.is_null(kind):
        return np.full(len(column), _NONE, dtype=np.uint64)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        return _hash_integers(column)
    plain = _plain_layout(kind)
    if plain is None:
        raise TypeError(f"a column of {kind} cannot be a key: keys are null, bool, int, str and bytes")
    return _hash_encoded(column.cast(plain).dictionary_encode())  # so that each distinct value is hashed once


def _plain_layout(kind: pa.DataType) -> pa.DataType | None:
    """Return the layout that columns of text or bytes are encoded from, or None if `kind` is neither."""
    if pa.types.is_string_view(kind):
        return pa.large_string()
    if pa.types.is_binary_view(kind):
        return pa.large_binary()
    return kind if _is_text(kind) or any(matches(kind) for matches in _BYTES) else None


def _is_text(kind: pa.DataType) -> bool:
    return any(matches(kind) for matches in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


_BYTES = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)


def _hash_integers(column: pa.Array) -> Hashes:
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    filled = pc.fill_null(column, 0) if column.null_count else column
    values = filled.to_numpy(zero_copy_only=False)
    if not pa.types.is_unsigned_integer(column.type):
        values = values.astype(np.int64, copy=False)  # sign extension gives the value mod 2^64
    hashes = _mix_array(values.astype(np.uint64, copy=False) if values.dtype != np.int64 else values.view(np.uint64))
    if column.null_count:
        hashes[column.is_null().to_numpy(zero_copy_only=False)] = _NONE
    return hashes


def _hash_encoded(column: pa.DictionaryArray) -> Hashes:
    """Hash each value of the dictionary, and take each row's hash by its index."""
    values = column.dictionary
    is_text_or_bytes = _plain_layout(values.type) is not None
    hashes = _hash_each(values) if is_text_or_bytes else _hash_column(values)
    places = column.indices
    if places.null_count:
        hashes = np.append(hashes, np.uint64(_NONE))
        places = pc.fill_null(places.cast(pa.int64()), len(values))
    found: Hashes = hashes[places.to_numpy()]
    return found


def _hash_each(values: pa.Array) -> Hashes:
    """Return `stable_hash` of each text or each bytes, without making a str."""
    seed = _SEED_STR if _is_text(values.type) else _SEED_BYTES
    digest = xxhash.xxh64_intdigest
    encoded = values.cast(pa.large_binary()).to_pylist()
    return np.array([_NONE if value is None else digest(value, seed) for value in encoded], dtype=np.uint64)
