"""Control messages as bytes: MessagePack, never pickle, so that reading one cannot run anybody's code.

A record travels as the number of its type and its fields. Both ends are of one version of Cutline, because
the driver brings its own to the executors; so the numbers need no history.
"""

from __future__ import annotations

from dataclasses import fields
from enum import Enum
from typing import Any

import msgpack

from barrier_runtime.progress import EdgeProcessed, EdgeSent, WorkerProgress
from barrier_runtime.tracing.chunks import TraceChunk, WorkerTrace
from snapshot.coordinator import control
from snapshot.errors import ChannelError
from snapshot.ids import ChannelId, Subtask
from snapshot.stored.certificate import ReceivedEntry, SentEntry, SubtaskRecord
from snapshot.stored.part import Handle, PartKind
from snapshot.subtask.reports import Spent, Standing

_EXT_TUPLE = 1
_EXT_RECORD = 2

_BUFFER_BYTES = 512

_TYPES: tuple[type, ...] = (
    Subtask, ChannelId, PartKind, Handle, SentEntry, ReceivedEntry, Standing, SubtaskRecord, Spent, WorkerProgress,
    EdgeSent, EdgeProcessed,
    WorkerTrace, TraceChunk,
    *control.WorkerMessage.__args__, *control.CoordinatorMessage.__args__, control.RestoredSubtask,
)  # fmt: skip
_NUMBERS = {cls: number for number, cls in enumerate(_TYPES)}

Message = control.WorkerMessage | control.CoordinatorMessage | WorkerProgress | WorkerTrace


def encode_message(message: Message) -> bytes:
    """The bytes of one control message."""
    return _pack(message)


def decode_message(data: bytes) -> Any:
    """The message that `encode_message` took.

    Raises
    ------
    ChannelError
        if the bytes are no control message of this version.
    """
    try:
        message = _unpack(data)
    except (ValueError, TypeError, IndexError, msgpack.UnpackException) as error:
        raise ChannelError(f"not a control message of this version: {error}") from error
    if type(message) not in _NUMBERS:
        raise ChannelError(f"a {type(message).__name__} came as a control message")
    return message


def _pack(value: object) -> bytes:
    # Its own buffer is a MiB, made anew for every record in a record.
    packed: bytes = msgpack.packb(value, default=_encode, strict_types=True, buf_size=_BUFFER_BYTES)
    return packed


def _unpack(data: bytes) -> Any:
    return msgpack.unpackb(data, ext_hook=_decode, strict_map_key=False)


def _encode(value: Any) -> msgpack.ExtType:
    cls = type(value)
    if cls is tuple:
        return msgpack.ExtType(_EXT_TUPLE, _pack(list(value)))
    if isinstance(value, Enum):
        return msgpack.ExtType(_EXT_RECORD, _pack([_NUMBERS[cls], value.value]))
    if isinstance(value, tuple):
        return msgpack.ExtType(_EXT_RECORD, _pack([_NUMBERS[cls], *value]))
    return msgpack.ExtType(_EXT_RECORD, _pack([_NUMBERS[cls], *(getattr(value, f.name) for f in fields(value))]))


def _decode(code: int, data: bytes) -> Any:
    if code == _EXT_TUPLE:
        return tuple(_unpack(data))
    if code != _EXT_RECORD:
        raise ValueError(f"unknown extension {code}")
    number, *values = _unpack(data)
    return _TYPES[number](*values)
