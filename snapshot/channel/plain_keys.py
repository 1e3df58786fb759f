"""Plain keys: the one class that equal keys have, from `send` to the store and back.

A bool is the int that it is equal to, and values of subclasses and of NumPy are values of the base class. So a key is
the same before and after a restore. Hot paths test ``type(key) not in PLAIN_KEYS`` before they call `plain_key`,
because a call for each key takes twice as long.
"""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import operator
from typing import Any, Final
from uuid import UUID

import numpy as np

#: Classes of plain keys, apart from tuples. Keys of these classes are equal only where their hashes are.
PLAIN_KEYS: Final = frozenset((str, int, bytes, type(None)))

#: (class, expression of a key ``k`` that can be a key), the first match counts
_EXPRESSIONS: Final = (
    (float | np.floating, "round(k)"),
    (decimal.Decimal, "str(k.normalize())"),
    (enum.Enum, "k.name"),
    (dt.datetime, "(k - datetime(1970, 1, 1{})) // timedelta(microseconds=1)"),
    (dt.date | dt.time, "k.isoformat()"),
    (dt.timedelta, "k // timedelta(microseconds=1)"),
    (np.datetime64 | np.timedelta64, "int(k.astype('int64'))"),
    (UUID, "k.bytes"),
    (bytearray | memoryview, "bytes(k)"),
    (list | np.ndarray, "tuple(k)"),
    (set | frozenset, "tuple(sorted(k))"),
    (dict, "tuple(sorted(k.items()))"),
)


def plain_key(key: Any) -> Any:
    """Return the plain key that `key` is equal to.

    Raises
    ------
    TypeError
        when `key` is, or holds, something else than None, bool, int, str, bytes and tuples of them. The text has the
        expression that makes a key of it.
    """
    if type(key) in PLAIN_KEYS:
        return key
    if isinstance(key, tuple):
        return key if type(key) is tuple and PLAIN_KEYS.issuperset(map(type, key)) else tuple(map(plain_key, key))
    if isinstance(key, str):
        return str.__str__(key)
    if isinstance(key, int):
        return int.__index__(key)
    if isinstance(key, bytes):
        return bytes.__add__(b"", key)
    if isinstance(key, np.integer | np.bool_):
        return operator.index(key.item())
    raise TypeError(_refusal(key))


def plain_keys(keys: list[Any]) -> list[Any]:
    """Return the plain key of each key. Raise as `plain_key`."""
    return keys if PLAIN_KEYS.issuperset(map(type, keys)) else list(map(plain_key, keys))


def _refusal(key: Any) -> str:
    name = type(key).__qualname__
    expression = next((text for kinds, text in _EXPRESSIONS if isinstance(key, kinds)), None)
    if isinstance(key, dt.datetime):
        expression = str(expression).format("" if key.utcoffset() is None else ", tzinfo=UTC")
    way = f"; give {expression}" if expression else ""
    return f"{name} cannot be a key: keys are None, bool, int, str, bytes and tuples of them{way}"
