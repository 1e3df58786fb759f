"""Write the classes and functions of a program into pickles by name, and members of an Enum by name and value.

Objects of a dataclass or named tuple of the program are written with the names of their fields, because their class
may have others at the restore.
"""

from __future__ import annotations

import copyreg
from collections.abc import Callable
from enum import Enum
from types import FunctionType
from typing import Any, Final

from cutline.snapshot.naming.bound import bind, member, put
from cutline.snapshot.naming.class_fields import has_nameless_state, is_pickled_by_fields, print_of
from cutline.snapshot.naming.program_names import ProgramNames
from cutline.snapshot.naming.reference import Reference, encode_references
from cutline.snapshot.naming.stand_ins import StandIn

#: Returns what a pickler writes for an object: see "Reducer Override" in Python's manual of `pickle`.
Reducer = Callable[["References", Any], Any]

#: Number of the pickle protocol with `__reduce_ex__`.
_PROTOCOL: Final = 5

#: Classes that pickle writes though no module has them.
_WITHOUT_NAME: Final = (type(None), type(...), type(NotImplemented))

#: Packages whose classes and functions pickle writes, because every reader has them. References would take longer.
_OF_ALL_READERS: Final = frozenset(
    {"builtins", "collections", "copyreg", "datetime", "decimal", "fractions", "numpy", "pyarrow", "uuid"}
)

#: Modules of Cutline whose functions pickle writes, because pickles call them.
_CALLED: Final = frozenset({bind.__module__, "cutline.snapshot.channel.record_batches"})


class ByName:
    """Find how objects are written. Serves any number of pickles.

    Parameters
    ----------
    names : ProgramNames
    """

    def __init__(self, names: ProgramNames) -> None:
        self.names = names
        #: {type: reducer of its objects, or None where pickle writes them}
        self._reducers: dict[type, Reducer | None] = {}
        #: {class or function: its reference, or None where pickle writes it}
        self._references: dict[Any, Reference | None] = dict.fromkeys(_WITHOUT_NAME)

    def reducer_of(self, kind: type) -> Reducer | None:
        """Return the reducer of objects of a type, or None where pickle writes them."""
        try:
            return self._reducers[kind]
        except KeyError:
            return self._reducers.setdefault(kind, self._new_reducer_of(kind))

    def _new_reducer_of(self, kind: type) -> Reducer | None:
        if issubclass(kind, type) or kind is FunctionType:
            return References.reduce_named
        if kind is _Maker:
            return References.reduce_maker
        if issubclass(kind, StandIn):
            return References.reduce_stand_in
        if issubclass(kind, Enum):
            return References.reduce_member if kind.__reduce_ex__ is Enum.__reduce_ex__ else None
        name = self.names.own_name_of(kind)
        if name is None or not is_pickled_by_fields(kind):
            return None
        return _Maker(Reference(*name, print_of(kind), is_maker=True), has_slots=has_nameless_state(kind)).reduce

    def reference_of(self, value: Any) -> Reference | None:
        """Return the reference to a class or function, or None where pickle writes it.

        Raises
        ------
        NotBound
            if a restore could not find the class or function.
        """
        try:
            return self._references[value]
        except KeyError:
            return self._references.setdefault(value, self._new_reference_of(value))

    def _new_reference_of(self, value: Any) -> Reference | None:
        if isinstance(value, type) and issubclass(value, StandIn):
            return value.reference
        name = self.names.own_name_of(value)
        if name is not None:
            return Reference(*name, print_of(value), is_maker=False)
        if str(value.__module__).partition(".")[0] in _OF_ALL_READERS or value.__module__ in _CALLED:
            return None
        return Reference(*self.names.importable_name_of(value), "", is_maker=False)


class References:
    """The references of one pickle."""

    def __init__(self, by_name: ByName) -> None:
        self._by_name = by_name
        self._numbers: dict[Reference, int] = {}

    def __bool__(self) -> bool:
        return bool(self._numbers)

    def encode(self) -> bytes:
        """Encode the references, as they stand before the pickle."""
        return encode_references(tuple(self._numbers))

    def reduce(self, value: Any) -> Any:
        """Return the reduction of an object, or NotImplemented where pickle writes the object.

        Raises
        ------
        NotBound
            as `ByName.reference_of`.
        """
        reducer = self._by_name.reducer_of(type(value))
        return NotImplemented if reducer is None else reducer(self, value)

    def reduce_named(self, value: Any) -> Any:
        """Return the reduction of a class or function."""
        reference = self._by_name.reference_of(value)
        return NotImplemented if reference is None else self._bound(reference)

    def reduce_maker(self, value: _Maker) -> Any:
        """Return the reduction of what makes objects of a class."""
        return self._bound(value.reference)

    def reduce_member(self, value: Enum) -> Any:
        """Return the reduction of a member of an Enum."""
        return member, (type(value), value.name, value.value)

    def reduce_stand_in(self, value: StandIn) -> Any:
        """Return the reduction of the object for which `value` stands, as it was stored."""
        kind, stored = type(value), value.stored
        if stored.is_member:
            return member, (kind, *stored.arguments)
        make = (kind, stored.arguments) if stored.is_called else (_NEW, (kind, *stored.arguments))
        content = (stored.state, iter(stored.items) if stored.items else None, iter(stored.pairs.items()))
        return (*make, *content, put) if stored.is_put else (*make, *content)

    def _bound(self, reference: Reference) -> Any:
        return bind, (self._numbers.setdefault(reference, len(self._numbers)),)


#: Function by which pickle makes an object without calling its class.
_NEW: Final = copyreg.__newobj__  # type: ignore[attr-defined]


class _Maker:
    """Stands in a pickle for what makes objects of a class.

    Parameters
    ----------
    reference : Reference
    has_slots : bool
        Whether the class is a dataclass whose own pickling has no names.
    """

    def __init__(self, reference: Reference, *, has_slots: bool) -> None:
        self.reference = reference
        self._has_slots = has_slots

    def __call__(self) -> None:
        """Never called, because a pickle holds what `bind` returns. Pickle demands something that can be called."""

    def reduce(self, _: References, value: Any) -> Any:
        """Return the reduction of an object of the class."""
        if self._has_slots:
            state = {name: getattr(value, name) for name in value.__dataclass_fields__ if hasattr(value, name)}
            return self, (), state, None, None, put
        _, (_, *arguments), state, items, pairs = value.__reduce_ex__(_PROTOCOL)
        return self, tuple(arguments), state, items, pairs
