"""Write the classes and functions of a program into pickles by name, and members of an Enum by name and value.

A pickler asks `ByName` for each object that is no plain value. Classes that pickle can import stay as pickle writes
them. Objects of a dataclass or named tuple of the program are written with the names of their fields, because their
class may have others at the restore.
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable
from enum import Enum
from types import FunctionType
from typing import Any, Final

from cutline.snapshot.naming.bound import bind, make, member, put
from cutline.snapshot.naming.class_fields import has_nameless_state, is_pickled_by_fields, print_of
from cutline.snapshot.naming.program_names import ProgramNames
from cutline.snapshot.naming.stand_ins import StandIn

#: Returns what a pickler writes for an object: see "Reducer Override" in Python's manual of `pickle`.
Reducer = Callable[[Any], Any]

#: Number of the pickle protocol with `__reduce_ex__`.
_PROTOCOL: Final = 5

#: Classes that pickle writes though no module has them.
_WITHOUT_NAME: Final = (type(None), type(...), type(NotImplemented))


class ByName:
    """Reduce classes, functions and objects of the program to names.

    Parameters
    ----------
    names : ProgramNames
    """

    def __init__(self, names: ProgramNames) -> None:
        self.names = names
        #: {type: reducer of its objects, or None where pickle writes them}
        self._reducers: dict[type, Reducer | None] = {}
        #: {class or function: its reduction}
        self._reductions: dict[Any, Any] = dict.fromkeys(_WITHOUT_NAME, NotImplemented)

    def reduce(self, value: Any) -> Any:
        """Return the reduction of an object, or NotImplemented where pickle writes the object.

        Raises
        ------
        NotBound
            if a restore could not find the class or function.
        """
        kind = type(value)
        try:
            reducer = self._reducers[kind]
        except KeyError:
            reducer = self._reducer_of(kind)
            self._reducers[kind] = reducer
        return NotImplemented if reducer is None else reducer(value)

    def _reducer_of(self, kind: type) -> Reducer | None:
        if issubclass(kind, type) or kind is FunctionType:
            return self._reduce_named
        if issubclass(kind, StandIn):
            return _reduce_stand_in
        if issubclass(kind, Enum):
            return _reduce_member if kind.__reduce_ex__ is Enum.__reduce_ex__ else None
        name = self.names.own_name_of(kind)
        if name is None or not is_pickled_by_fields(kind):
            return None
        maker = _Maker((*name, print_of(kind)))
        return maker.reduce_slots if has_nameless_state(kind) else maker.reduce_object

    def _reduce_named(self, value: Any) -> Any:
        found = self._reductions.get(value)
        if found is None and isinstance(value, type) and issubclass(value, StandIn):
            *named, is_maker = value.reference
            return make if is_maker else bind, tuple(named)
        if found is None:
            name = self.names.name_of(value)
            found = NotImplemented if name is None else (bind, (*name, print_of(value)))
            self._reductions[value] = found
        return found


class _Maker:
    """Stands in a pickle for what makes objects of a class.

    Parameters
    ----------
    named : tuple of str
        Module, qualified name and print of the class.
    """

    def __init__(self, named: tuple[str, str, str]) -> None:
        self._reduction = (make, named)

    def __call__(self) -> None:
        """Never called, because a pickle holds what `make` returns. Pickle demands something that can be called."""

    def __reduce__(self) -> Any:
        return self._reduction

    def reduce_object(self, value: Any) -> Any:
        """Return the reduction of an object of the class."""
        _, (_, *arguments), state, items, pairs = value.__reduce_ex__(_PROTOCOL)
        return self, tuple(arguments), state, items, pairs

    def reduce_slots(self, value: Any) -> Any:
        """Return the reduction of an object of a dataclass with slots."""
        state = {name: getattr(value, name) for name in value.__dataclass_fields__ if hasattr(value, name)}
        return self, (), state, None, None, put


def _reduce_stand_in(value: StandIn) -> Any:
    """Return the reduction of the object for which `value` stands, as it was stored."""
    kind, stored = type(value), value.stored
    if stored.is_member:
        return member, (kind, *stored.arguments)
    maker = (kind, stored.arguments) if stored.is_called else (copyreg.__newobj__, (kind, *stored.arguments))  # type: ignore[attr-defined]
    content = (stored.state, iter(stored.items) if stored.items else None, iter(stored.pairs.items()))
    return (*maker, *content, put) if stored.is_put else (*maker, *content)


def _reduce_member(value: Enum) -> Any:
    return member, (type(value), value.name, value.value)
