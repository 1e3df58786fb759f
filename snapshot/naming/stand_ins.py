"""Stand-ins for objects whose class is not here. They show name and content, and are written back as they were.

The editor, DataFrames of snapshots and the command line read values without the program that has stored them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from reprlib import recursive_repr
from typing import Any, ClassVar

from cutline.snapshot.naming.class_fields import NAMED_TUPLE, fields_of
from cutline.snapshot.naming.reference import Reference


@dataclass(slots=True)
class Stored:
    """The content of an object, as its pickle had it."""

    arguments: tuple[Any, ...]
    #: whether the pickle called the class with the arguments, not its `__new__`
    is_called: bool = False
    #: whether the arguments are name and value of a member of an Enum
    is_member: bool = False
    #: whether the state was set field by field, because the class has slots
    is_put: bool = False
    state: Any = None
    items: list[Any] = field(default_factory=list)
    pairs: dict[Any, Any] = field(default_factory=dict)


class _StandInType(type):
    def __repr__(cls) -> str:
        return f"<{cls.__module__}.{cls.__qualname__}>"


class StandIn(metaclass=_StandInType):
    """An object of a class that is not here. Its fields can be read as attributes."""

    __slots__ = ("stored",)

    reference: ClassVar[Reference]
    stored: Stored

    def __new__(cls, *arguments: Any) -> StandIn:
        """Make an object from the arguments that its pickle gives."""
        made = super().__new__(cls)
        made.stored = Stored(arguments)
        return made

    def __init__(self, *_: Any) -> None:
        self.stored.is_called = True

    def __setstate__(self, state: Any) -> None:
        self.stored.state = state

    def append(self, item: Any) -> None:
        """Take an item of an object that is a list."""
        self.stored.items.append(item)

    def extend(self, items: Iterable[Any]) -> None:
        """Take items of an object that is a list."""
        self.stored.items.extend(items)

    def __setitem__(self, key: Any, value: Any) -> None:
        self.stored.pairs[key] = value

    def __class_getitem__(cls, _: Any) -> type[StandIn]:
        return cls

    def __getattr__(self, name: str) -> Any:
        for each, value in _fields(self):
            if each == name:
                return value
        raise AttributeError(f"{self!r} has no field {name!r}")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.stored == self.stored

    def __hash__(self) -> int:
        return hash(self.reference)  # of the name alone, because a field may change

    @recursive_repr("<...>")
    def __repr__(self) -> str:
        stored, name = self.stored, f"{type(self).__module__}.{type(self).__qualname__}"
        if stored.is_member:
            return f"<{name}.{stored.arguments[0]}>"
        shown = [f"{each}={value!r}" if each else repr(value) for each, value in _fields(self)]
        shown += [repr(each) for each in (stored.items, stored.pairs) if each]
        return f"<{name}({', '.join(shown)})>"


@cache
def stand_in(reference: Reference) -> type[StandIn]:
    """Return what stands for a class or function."""
    module, qualname = reference.module, reference.qualname
    names = {"__slots__": (), "__module__": module, "__qualname__": qualname, "reference": reference}
    return _StandInType(qualname.rpartition(".")[2], (StandIn,), names)  # type: ignore[return-value]


def member_stand_in(kind: type[StandIn], name: str, value: Any) -> StandIn:
    """Return what stands for a member of an Enum."""
    made = kind.__new__(kind, name, value)
    made.stored.is_member = True
    return made


def _fields(of: StandIn) -> Iterator[tuple[str, Any]]:
    """Yield (name, value) of each field. The name of a value that has none is empty."""
    stored, is_named = of.stored, of.reference.print.startswith(NAMED_TUPLE)
    names = fields_of(of.reference.print) if is_named and of.reference.is_maker else ("",) * len(stored.arguments)
    yield from zip(names, stored.arguments, strict=False)
    for each in stored.state if type(stored.state) is tuple else (stored.state,):
        if isinstance(each, Mapping):
            yield from each.items()
        elif each is not None:
            yield "", each
