"""Control messages as bytes: MessagePack, never pickle, because reading a message must not run foreign code.

A record is encoded as an array: the number of its type, then its fields. A tuple is encoded as an array that begins
with -1. One call packs a whole message, because no message holds a list. The numbers need no history, because the
driver brings its version of Cutline to the executors, and both ends run that version.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from enum import Enum
from operator import attrgetter
from typing import Any

import msgpack

from barrier_runtime.progress import EdgeProcessed, EdgeSent, WorkerProgress
from barrier_runtime.tracing.chunks import TraceChunk, WorkerTrace
from snapshot.coordinator import control
from snapshot.errors import ChannelError
from snapshot.ids import ChannelId, Subtask
from snapshot.stored.certificate import ReceivedEntry, SentEntry, SubtaskRecord, SubtaskStatus
from snapshot.stored.contribution import SnapshotTimings
from snapshot.stored.part import Handle, PartKind

_TUPLE = -1

_BUFFER_BYTES = 4096

_TYPES: tuple[type, ...] = (
    Subtask, ChannelId, PartKind, Handle, SentEntry, ReceivedEntry, SubtaskStatus, SubtaskRecord, SnapshotTimings,
    WorkerProgress,
    EdgeSent, EdgeProcessed,
    WorkerTrace, TraceChunk,
    *control.WorkerMessage.__args__, *control.CoordinatorMessage.__args__, control.RestoredSubtask,
)  # fmt: skip
_NUMBERS = {cls: number for number, cls in enumerate(_TYPES)}

Message = control.WorkerMessage | control.CoordinatorMessage | WorkerProgress | WorkerTrace


def encode_message(message: Message) -> bytes:
    """Encode one control message."""
    # A small buffer is set, because msgpack's default allocates a quarter of a MiB for every message.
    packed: bytes = msgpack.packb(message, default=_as_array, strict_types=True, buf_size=_BUFFER_BYTES)
    return packed


def decode_message(data: bytes) -> Any:
    """Decode a message that `encode_message` encoded.

    Raises
    ------
    ChannelError
        if the bytes are not a control message of this version.
    """
    try:
        message = msgpack.unpackb(data, list_hook=_of_array, strict_map_key=False)
    except (ValueError, TypeError, IndexError, msgpack.UnpackException) as error:
        raise ChannelError(f"not a control message of this version: {error}") from error
    if type(message) not in _NUMBERS:
        raise ChannelError(f"a {type(message).__name__} came as a control message")
    return message


def _as_array(value: Any) -> list[Any]:
    cls = type(value)
    return [_TUPLE, *value] if cls is tuple else [_NUMBERS[cls], *_CONTENTS[cls](value)]


def _of_array(array: list[Any]) -> Any:
    number, *values = array
    return tuple(values) if number == _TUPLE else _TYPES[number](*values)


def _contents(cls: type[Any]) -> Callable[[Any], Sequence[Any]]:
    """Return the function that reads all fields of a record of a type."""
    if issubclass(cls, Enum):
        return lambda member: (member.value,)
    if issubclass(cls, tuple):
        return tuple
    names = [field.name for field in fields(cls)]
    if len(names) > 1:  # because attrgetter returns no tuple for a single name
        return attrgetter(*names)
    return lambda record: [getattr(record, name) for name in names]


_CONTENTS = {cls: _contents(cls) for cls in _TYPES}
