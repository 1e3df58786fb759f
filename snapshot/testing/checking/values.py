"""Packed messages: whether two are the same value, and how they, events and snapshots are called in a verdict."""

from __future__ import annotations

from typing import Any

from snapshot.channel.serialization import Codec
from snapshot.snapshot import Snapshot
from snapshot.testing.history import Event
from snapshot.testing.payload import pack, unpack

#: Characters of a value that a verdict shows: enough to know it again.
_SHOWN_CHARACTERS = 60


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


def shown(packed: bytes | None, codec: Codec) -> str:
    """A message in a verdict."""
    return "the end of the stream" if packed is None else shortened(repr(unpack(packed, codec)))


def shortened(text: str, characters: int = _SHOWN_CHARACTERS) -> str:
    """The beginning of a text, where it is long."""
    return text if len(text) <= characters else text[: characters - 3] + "..."


def named(snapshot: Snapshot) -> str:
    """A snapshot in a verdict."""
    return f"snapshot {snapshot.id} of incarnation {snapshot.manifest.incarnation}"


def told(event: Event, codec: Codec) -> str:
    """An event in a verdict."""
    where = "" if event.channel is None else f" on {event.channel}"
    which = f" of message {event.number}" if event.number else ""
    what = f" ({shown(event.payload, codec)})" if event.payload else ""
    return f"{event.kind.value}{which}{what}{where}"
