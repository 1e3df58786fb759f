"""Hash the state of a subtask, so that a replay can tell whether the node has the same state.

The hash is of values, as in `snapshot.channel.message_hash`, and not of bytes, because equal sets have other bytes in
another process. The sequence of dict items does not count. An object of a user's class is hashed by its attributes.
The time is proportional to the state.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any, Final

from cutline.snapshot.channel.message_hash import packed

_DIGEST_BYTES: Final = 16

#: Depth of containers that are hashed by value. Deeper parts, as of a value in itself, do not count.
_DEPTH_MAX: Final = 64

_ATOMS: Final = frozenset({int, float, str, bytes, bool, type(None)})


def value_hash(value: Any) -> bytes:
    """Return the hash of a value."""
    return _digest(_canonical(value, _DEPTH_MAX))


def rows_hash(rows: Iterable[Any]) -> bytes:
    """Return the hash of rows, whose sequence does not count."""
    total = sum(int.from_bytes(value_hash(row)) for row in rows)
    return (total % (1 << 8 * _DIGEST_BYTES)).to_bytes(_DIGEST_BYTES)


def _digest(plain: Any) -> bytes:
    return blake2b(packed([plain]), digest_size=_DIGEST_BYTES).digest()


def _canonical(value: Any, depth: int) -> Any:
    """Return what `packed` makes the same bytes of for equal values."""
    if type(value) in _ATOMS:
        return value
    if not depth:
        return [type(value).__qualname__]
    if isinstance(value, dict):
        items = [_digest([_canonical(key, depth - 1), _canonical(each, depth - 1)]) for key, each in value.items()]
        return ["dict", sorted(items)]
    if isinstance(value, list | tuple):
        return [_canonical(each, depth - 1) for each in value]
    if isinstance(value, set | frozenset):
        return ["set", sorted(_digest(_canonical(each, depth - 1)) for each in value)]
    if attributes := getattr(value, "__dict__", None):
        return [type(value).__qualname__, _canonical(dict(attributes), depth - 1)]
    return value
