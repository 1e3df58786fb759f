"""A value that is equal for two objects exactly when they will behave alike: everything mutable in them.

Knows which types hold no state of a run: functions, the graph, codecs, loggers. Everything else counts, in its order.
A difference without meaning therefore costs a state, and no difference is hidden.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from enum import Enum
from logging import LoggerAdapter
from random import Random
from types import BuiltinFunctionType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import cloudpickle
import pyarrow as pa

from cutline.snapshot.channel.frame import Frame, Marker
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.keyed.table import StateTable
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.state import KeyedState
from cutline.snapshot.stored.certificate import SubtaskRecord
from cutline.snapshot.subtask.context import HookCounter
from cutline.snapshot.subtask.input_processor import ReadyInputs

#: Types that are immutable and compared by value. A bool and a float equal an int, so these two are marked.
_VALUES = frozenset((type(None), int, str, bytes, Subtask, ChannelId, Frame, Marker, SubtaskRecord))
_MARKED_VALUES = frozenset((bool, float, complex))

#: Types without state of a run. `ReadyInputs` is among them, because the queues show which inputs wait, and the
#: explorer tries all of them. `KeyedState` is, because its table holds the rows. `HookCounter` only tells hooks apart.
_STATELESS = (
    *(FunctionType, MethodType, BuiltinFunctionType, ModuleType, type),
    *(Topology, Codec, LoggerAdapter, pa.Schema, ReadyInputs, KeyedState, HookCounter),
)


def fingerprint(value: Any) -> Hashable:
    """Return everything that `value` holds, all the way down. Shared objects differ from equal objects."""
    return _of(value, {})


def _of(value: Any, met: dict[int, int]) -> Hashable:
    kind = type(value)
    if kind in _VALUES:
        return value  # type: ignore[no-any-return]
    if kind in _MARKED_VALUES:
        return (kind.__name__, value)
    if isinstance(value, Enum):
        return (kind.__qualname__, value.name)
    if isinstance(value, _STATELESS):
        return None
    if isinstance(value, tuple):
        return (kind.__qualname__, *[_of(each, met) for each in value])
    if id(value) in met:
        return ("again", met[id(value)])
    met[id(value)] = len(met)
    return (kind.__qualname__, *_content(value, met))


def _content(value: Any, met: dict[int, int]) -> tuple[Hashable, ...]:
    """Return the content of a possibly mutable object that was not met before."""
    if isinstance(value, list | deque):
        return tuple([_of(each, met) for each in value])
    if isinstance(value, dict):
        return _pairs(value, met)
    if isinstance(value, set | frozenset):
        return (frozenset(_of(each, met) for each in value),)
    if isinstance(value, Random):
        return value.getstate()
    if isinstance(value, StateTable):  # its changed rows are in a variable of a closure
        return tuple([_of(each, met) for each in (value.live, value.dirty_keys(), value.fresh, value.expiries)])
    slots = _slots(type(value))
    if slots is None:
        return (cloudpickle.dumps(value),)
    names = [name for name in (*slots, *getattr(value, "__dict__", ())) if hasattr(value, name)]
    return tuple([part for name in names for part in (name, _of(getattr(value, name), met))])


def _pairs(value: Mapping[Any, Any], met: dict[int, int]) -> tuple[Hashable, ...]:
    return tuple([_of(each, met) for pair in value.items() for each in pair])


def _slots(kind: type) -> tuple[str, ...] | None:
    """Return the names of the slots of a type's objects, or None if pickle needs a special method for them."""
    if kind not in _SLOTS:
        bases = kind.__mro__[:-1]
        is_plain = not any(name in vars(base) for base in bases for name in ("__reduce__", "__reduce_ex__"))
        slots = [name for base in bases for name, value in vars(base).items() if type(value) is MemberDescriptorType]
        _SLOTS[kind] = tuple(slots) if is_plain else None
    return _SLOTS[kind]


#: {type: names of its slots}; weak, because tests make types
_SLOTS: WeakKeyDictionary[type, tuple[str, ...] | None] = WeakKeyDictionary()
