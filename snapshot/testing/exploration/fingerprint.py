"""A value that is equal for two live objects exactly when they will behave the same: all that is mutable in them.

Knows which types hold no state of a run: functions, the graph, codecs, loggers. Everything else counts, in its order,
so that a difference without meaning costs a state, and never hides one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping
from enum import Enum
from functools import cache
from logging import LoggerAdapter
from random import Random
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import cloudpickle
import pyarrow as pa

from snapshot.channel.frame import Frame, Marker
from snapshot.channel.serialization import Codec
from snapshot.declared.topology import Topology
from snapshot.ids import ChannelId, Subtask
from snapshot.stored.certificate import SubtaskRecord

#: Immutable and compared by value as they are. A bool and a float equal an int, so these two are marked.
_VALUES = frozenset((type(None), int, str, bytes, Subtask, ChannelId, Frame, Marker, SubtaskRecord))
_MARKED_VALUES = frozenset((bool, float, complex))

#: No state of a run is in these.
_STATELESS = (
    *(FunctionType, MethodType, BuiltinFunctionType, ModuleType, type),
    *(Topology, Codec, LoggerAdapter, pa.Schema),
)


def fingerprint(value: Any) -> Hashable:
    """What `value` holds, all the way down. Shared objects are told from equal ones."""
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
    """Of something that may be mutable, met for the first time."""
    if isinstance(value, list | deque):
        return tuple([_of(each, met) for each in value])
    if isinstance(value, dict):
        return _pairs(value, met)
    if isinstance(value, set | frozenset):
        return (frozenset(_of(each, met) for each in value),)
    if isinstance(value, Random):
        return value.getstate()
    kind = value.__class__
    if _is_plain(kind):
        names = [name for name in (*_slots(kind), *getattr(value, "__dict__", ())) if hasattr(value, name)]
        return tuple([part for name in names for part in (name, _of(getattr(value, name), met))])
    return (cloudpickle.dumps(value),)


def _pairs(value: Mapping[Any, Any], met: dict[int, int]) -> tuple[Hashable, ...]:
    return tuple([_of(each, met) for pair in value.items() for each in pair])


@cache
def _is_plain(kind: type) -> bool:
    """All that it holds is in its attributes: it is pickled as every object is."""
    return not any(name in vars(base) for base in kind.__mro__[:-1] for name in ("__reduce__", "__reduce_ex__"))


@cache
def _slots(kind: type) -> tuple[str, ...]:
    named = [name for base in kind.__mro__ for name in getattr(base, "__slots__", ())]
    return tuple(name for name in named if name not in ("__dict__", "__weakref__"))
