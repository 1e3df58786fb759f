"""Functions that stored pickles call to find classes and functions of the program, and to make their objects.

Pickles hold the names of this module and of its functions. Stored: never rename them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from enum import Flag
from typing import Any

from cutline.snapshot.naming.program_names import NotBound, ProgramNames
from cutline.snapshot.naming.stand_ins import StandIn, member_stand_in

#: the names of the program whose values are being read
NAMES: ContextVar[ProgramNames] = ContextVar("NAMES")


def bind(module: str, qualname: str, stored: str) -> Any:
    """Return a class or function. Raises NotBound."""
    return NAMES.get().bound(module, qualname, stored)


def make(module: str, qualname: str, stored: str) -> Callable[..., Any]:
    """Return what makes an object of a dataclass or named tuple. Raises NotBound."""
    return NAMES.get().maker(module, qualname, stored)


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
    for name, value in state.items():
        object.__setattr__(instance, name, value)
