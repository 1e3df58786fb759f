"""Control messages as bytes: MessagePack, never pickle, because reading a message must not run foreign code.

A record is encoded as an array: the number of its type, then its fields. A tuple is encoded as an array that begins
with -1. One call packs a whole message, because no message holds a list. The numbers need no history, because the
driver brings its version of Cutline to the executors, and both ends run that version.

Every field of a received record is checked against its declared type, because a wrong type would fail in the machine
that the message is for, far from the connection that it came by.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from enum import Enum
from operator import attrgetter
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import msgpack

from cutline.barrier_runtime.progress import EdgeProcessed, EdgeSent, StoreProgress, WorkerProgress
from cutline.barrier_runtime.tracing.chunks import TraceChunk, WorkerTrace
from cutline.snapshot.channel.rerouting import ChannelEnd, NewChannel, OldChannel, ReroutedCount, ReshapedEdge, Route
from cutline.snapshot.coordinator import control
from cutline.snapshot.errors import ChannelError
from cutline.snapshot.failed_event import (
    DeadLetter,
    FailedBatch,
    FailedMessage,
    FailedTimer,
    IsolatedMessages,
    Suspects,
)
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.stored.certificate import (
    ChannelWaves,
    ListEntry,
    LocalVersion,
    OwnStateKind,
    ReceivedEntry,
    SentEntry,
    StepBase,
    SubtaskRecord,
    SubtaskStatus,
)
from cutline.snapshot.stored.contribution import SnapshotTimings
from cutline.snapshot.stored.history import Claim
from cutline.snapshot.stored.local_checkpoint import LocalCheckpoint
from cutline.snapshot.stored.part import Handle, PartKind

_TUPLE = -1

_BUFFER_BYTES = 4096

_TYPES: tuple[type, ...] = (
    Subtask, ChannelId, PartKind, Handle, SentEntry, ReceivedEntry, SubtaskStatus, SubtaskRecord, ListEntry,
    ChannelWaves, OwnStateKind, SnapshotTimings, StepBase, LocalVersion, LocalCheckpoint, Claim,
    WorkerProgress,
    EdgeSent, EdgeProcessed, StoreProgress,
    WorkerTrace, TraceChunk,
    *control.WorkerMessage.__args__, *control.CoordinatorMessage.__args__, control.RestoredSubtask,
    control.Inheritance, ReshapedEdge, OldChannel, NewChannel, ChannelEnd, Route, ReroutedCount,
    FailedMessage, FailedBatch, FailedTimer, IsolatedMessages, DeadLetter, Suspects,
)  # fmt: skip
_NUMBERS = {cls: number for number, cls in enumerate(_TYPES)}

#: messages that workers send, and messages that the coordinator sends
FROM_WORKER: tuple[type, ...] = (*get_args(control.WorkerMessage), WorkerProgress, WorkerTrace)
FROM_COORDINATOR: tuple[type, ...] = get_args(control.CoordinatorMessage)

Message = control.WorkerMessage | control.CoordinatorMessage | WorkerProgress | WorkerTrace


def encode_message(message: Message) -> bytes:
    """Encode one control message."""
    # A small buffer is set, because msgpack's default allocates a quarter of a MiB for every message.
    packed: bytes = msgpack.packb(message, default=_as_array, strict_types=True, buf_size=_BUFFER_BYTES)
    return packed


def decode_message(data: bytes, types: Sequence[type] = (*FROM_WORKER, *FROM_COORDINATOR)) -> Any:
    """Decode a message of one of `types` that `encode_message` encoded.

    Raises
    ------
    ChannelError
        if the bytes are no such message of this version.
    """
    try:
        message = msgpack.unpackb(data, list_hook=_of_array, strict_map_key=False)
    except (ValueError, TypeError, IndexError, msgpack.UnpackException) as error:
        raise ChannelError(f"not a control message of this version: {error}") from error
    if type(message) not in types:
        raise ChannelError(f"a {type(message).__name__} came as a control message")
    return message


def _as_array(value: Any) -> list[Any]:
    cls = type(value)
    return [_TUPLE, *value] if cls is tuple else [_NUMBERS[cls], *_CONTENTS[cls](value)]


def _of_array(array: list[Any]) -> Any:
    number, *values = array
    if number == _TUPLE:
        return tuple(values)
    if number < 0:
        raise ValueError(f"a record of type {number}")
    types = tuple(map(type, values))
    if types not in _valid[number]:  # rarely: once for each combination
        _check_types(number, types)
    for index, are_items in _ITEMS[number]:
        if not are_items(values[index]):
            raise TypeError(f"{_TYPES[number].__name__}: an item of field {index} is of another type")
    return _TYPES[number](*values)


def _check_types(number: int, types: tuple[type, ...]) -> None:
    """Check the types of a record's fields, and remember the combination."""
    for admitted, given in zip(_ADMITTED[number], types, strict=True):
        if given not in admitted:
            raise TypeError(f"a field of a {_TYPES[number].__name__} is a {given.__name__}")
    _valid[number].add(types)


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


def _is_union(hint: Any) -> bool:
    return get_origin(hint) in (Union, UnionType)


def _has_items(hint: Any) -> bool:
    return get_origin(hint) in (tuple, dict) or (_is_union(hint) and any(map(_has_items, get_args(hint))))


def _admitted(hint: Any) -> frozenset[type]:
    """Return the types that a value of a field may have, without its items."""
    if _is_union(hint):
        return frozenset[type]().union(*map(_admitted, get_args(hint)))
    return frozenset((float, int)) if hint is float else frozenset((get_origin(hint) or hint,))


def _item_check(hint: Any) -> Callable[[Any], bool]:
    """Return the function that decides whether the items of a tuple or a dict have their types."""
    arguments = get_args(hint)
    if _is_union(hint):  # of a tuple and None
        are_items = _item_check(next(arm for arm in arguments if get_origin(arm) is tuple))
        return lambda value: value is None or are_items(value)
    if get_origin(hint) is dict:
        keys, values = map(_admitted, arguments)
        return lambda value: keys.issuperset(map(type, value)) and values.issuperset(map(type, value.values()))
    if arguments[-1] is not Ellipsis:
        types = tuple(map(_admitted, arguments))
        return lambda value: (
            len(value) == len(types) and all(type(item) in each for item, each in zip(value, types, strict=True))
        )
    admitted = _admitted(arguments[0])
    if admitted == {tuple}:
        is_item = _item_check(arguments[0])
        return lambda value: admitted.issuperset(map(type, value)) and all(map(is_item, value))
    return lambda value: admitted.issuperset(map(type, value))


def _hints(cls: type[Any]) -> list[Any]:
    if issubclass(cls, Enum):
        return [type(next(iter(cls)).value)]
    hints = get_type_hints(cls)
    names = getattr(cls, "_fields", None) or [field.name for field in fields(cls)]
    return [hints[name] for name in names]


#: of each type: of each field, the types that its values may have
_ADMITTED = [[_admitted(hint) for hint in _hints(cls)] for cls in _TYPES]
#: of each type: the combinations of `_ADMITTED` that have come
_valid: list[set[tuple[type, ...]]] = [set() for _ in _TYPES]
#: of each type: the fields that hold tuples or dicts, and the checks of their items
_ITEMS = [[(index, _item_check(hint)) for index, hint in enumerate(_hints(cls)) if _has_items(hint)] for cls in _TYPES]
