"""Compare packed messages by value, and name snapshots in verdicts."""

from __future__ import annotations

from typing import Any

from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.stored.snapshot import Snapshot
from cutline.snapshot.testing.payload import pack, unpack


def same(one: bytes | None, other: bytes | None, codec: Codec) -> bool:
    """Return whether two packed messages are the same value. None stands for the end of the stream."""
    if one == other:
        return True
    if one is None or other is None:
        return False
    values = unpack(one, codec), unpack(other, codec)
    # A pickle records which of its strings are one object, and loading merges more of them. Therefore compare values
    # that were loaded equally often.
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
    except (TypeError, ValueError):  # arrays have no single truth value; their bytes were compared
        return False


def named(snapshot: Snapshot) -> str:
    """Return the name of a snapshot in a verdict."""
    return f"snapshot {snapshot.id} of incarnation {snapshot.manifest.incarnation}"
