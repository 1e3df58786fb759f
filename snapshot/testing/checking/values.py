"""Packed messages: whether two are the same value. Snapshots: how they are called in a verdict."""

from __future__ import annotations

from typing import Any

from snapshot.channel.serialization import Codec
from snapshot.stored.snapshot import Snapshot
from snapshot.testing.payload import pack, unpack


def same(one: bytes | None, other: bytes | None, codec: Codec) -> bool:
    """Whether two packed messages are the same value; None stands for the end of the stream."""
    if one == other:
        return True
    if one is None or other is None:
        return False
    values = unpack(one, codec), unpack(other, codec)
    # A pickle says which of its strings are one object, and loading makes one of more of them: compare what
    # has been loaded as often.
    if pack(values[0], codec) == pack(unpack(pack(values[1], codec), codec), codec):
        return True
    if pack(unpack(pack(values[0], codec), codec), codec) == pack(values[1], codec):
        return True
    return _equal(*values)


def _equal(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    try:
        return (one == other) is True
    except (TypeError, ValueError):  # arrays have no one truth; their bytes were compared
        return False


def named(snapshot: Snapshot) -> str:
    """A snapshot in a verdict."""
    return f"snapshot {snapshot.id} of incarnation {snapshot.manifest.incarnation}"
