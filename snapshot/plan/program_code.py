"""Pickle the code of a graph, and gather the classes and functions that workers cannot import.

cloudpickle writes a class or function by value if it stands in the main module, inside of a function, or in a module
that was registered by value. Values refer to these by name (`snapshot.naming.program_names`), so that each of them is
sent along with its name.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from types import FunctionType
from typing import Any

import cloudpickle

from cutline.snapshot.naming.program_names import Name, OfNode, Several
from cutline.snapshot.node import Node

#: Entries of the tuple that cloudpickle returns for an object that it writes by value.
_ENTRIES_BY_VALUE = 6

_PROTOCOL = 5


class ProgramCode:
    """Pickles the nodes and functions of one graph."""

    def __init__(self) -> None:
        self._noted: dict[Name, Any] = {}

    def pickle(self, value: object) -> bytes:
        """Return the pickled value, and note its classes and functions. Raises what the value's own code raises."""
        file = io.BytesIO()
        _Pickler(file, self._note).dump(value)
        return file.getvalue()

    def names(self) -> bytes:
        """Return the pickle of ``{name: class, function, Several or OfNode}`` of all values that were pickled."""
        return bytes(cloudpickle.dumps(self._noted, protocol=_PROTOCOL))

    def _note(self, found: Any) -> None:
        if found.__qualname__.endswith("<lambda>") or getattr(found, "__closure__", None) is not None:
            return  # a name does not say which one is meant
        name = (found.__module__, found.__qualname__)
        if self._is_of_node(found):
            self._noted[name] = OfNode  # without its code, which may refer to large variables of the main module
            return
        known = self._noted.setdefault(name, found)
        if known is not found:
            self._noted[name] = _with_slots(known, found) or Several

    def _is_of_node(self, found: Any) -> bool:
        if isinstance(found, type):
            return issubclass(found, Node)
        owner, _, _ = found.__qualname__.rpartition(".")
        return self._noted.get((found.__module__, owner)) is OfNode


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    def __init__(self, file: io.BytesIO, note: Callable[[Any], None]) -> None:
        super().__init__(file, protocol=_PROTOCOL)
        self._note = note

    def reducer_override(self, obj: Any) -> Any:
        reduced = super().reducer_override(obj)
        is_named = isinstance(obj, type) or type(obj) is FunctionType
        if is_named and type(reduced) is tuple and len(reduced) == _ENTRIES_BY_VALUE:
            self._note(obj)
        return reduced


def _with_slots(one: Any, other: Any) -> type | None:
    """Return the class with slots of two that one declaration has made, or None for two declarations.

    A dataclass with slots is a copy of the declared class, and its methods may still refer to the declared class.
    """
    fields = [getattr(each, "__dict__", {}).get("__dataclass_fields__") for each in (one, other)]
    if fields[0] is None or fields[0] is not fields[1]:
        return None
    return next((each for each in (one, other) if "__slots__" in vars(each)), None)
