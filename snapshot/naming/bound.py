"""Functions that stored pickles call to refer to classes and functions of the program, and to make their objects.

Pickles hold the names of this module and of its functions. Stored: never rename them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from enum import Flag
from typing import Any

from cutline.snapshot.naming.class_fields import reads_states
from cutline.snapshot.naming.program_names import NotBound
from cutline.snapshot.naming.stand_ins import StandIn, member_stand_in

#: what the references of the pickle that is being read stand for, by number
BOUND: ContextVar[Sequence[Any]] = ContextVar("BOUND")


def bind(number: int) -> Any:
    """Return what the reference of a number stands for: a class, a function, or what makes objects of a class."""
    return BOUND.get()[number]


def member(kind: Any, name: str, value: Any) -> Any:
    """Return the member of an Enum. Raises NotBound if the member has another value now, or is gone."""
    if issubclass(kind, StandIn):
        return member_stand_in(kind, name, value)
    found = kind.__members__.get(name)
    if found is None and issubclass(kind, Flag):
        found = kind(value)
        found = found if found.name == name else None
    if found is None or found.value != value:
        now = ", ".join(f"{each.name}={each.value!r}" for each in kind.__members__.values())
        raise NotBound(f"{kind.__module__}.{kind.__qualname__} was stored with {name}={value!r}, and has {now} now")
    return found


def put(instance: Any, state: Mapping[str, Any]) -> None:
    """Set the fields of an object with slots."""
    if isinstance(instance, StandIn):
        instance.stored.state, instance.stored.is_put = state, True
        return
    if reads_states(type(instance)):
        instance.__setstate__(dict(state))
        return
    for name, value in state.items():
        object.__setattr__(instance, name, value)
