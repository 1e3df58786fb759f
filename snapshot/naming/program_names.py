"""The names of a program: its classes and functions by name, and the names of its classes and functions.

A value never holds code. Stored values refer to classes and functions by module and qualified name. So a restored
object is of the class that the submitted program has under this name, with the code that the program has now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from importlib import import_module
from types import FunctionType
from typing import Any, Final

from cutline.snapshot.naming.class_fields import AnotherClass, check_kind, maker_of
from cutline.snapshot.naming.reference import CODE, Reference, decode_references
from cutline.snapshot.naming.stand_ins import stand_in

#: module and qualified name of a class or function
Name = tuple[str, str]

#: Module of a script or notebook. A worker has another module of this name.
MAIN: Final = "__main__"


class Several:
    """Stands in `ProgramNames.known` for a name that several classes or functions have."""


class OfNode:
    """Stands in `ProgramNames.known` for the class of a node, and for its methods. They are not sent twice."""


class NotBound(Exception):
    """A class or function has no name in the program, or a name has no class or function."""


@dataclass(frozen=True)
class Aliases:
    """Names that classes, functions and modules of the program had when values were stored."""

    #: {"module.qualified name" as stored: name now}
    names: Mapping[str, Name] = field(default_factory=dict)
    #: {module as stored: module now}
    modules: Mapping[str, str] = field(default_factory=dict)

    def now(self, module: str, qualname: str) -> Name:
        """Return the name that a stored name stands for."""
        return self.names.get(_shown(module, qualname), (self.modules.get(module, module), qualname))


class ProgramNames:
    """Look up names in a graph's program: first aliases, then what the graph refers to, then importable modules.

    Parameters
    ----------
    known : mapping
        ``{(module, qualified name): class, function, Several or OfNode}`` of all that the graph refers to and
        that workers cannot import.
    aliases : Aliases
    """

    def __init__(self, known: Mapping[Name, Any], aliases: Aliases) -> None:
        self._known = known
        #: {id of a class: its name}; a class that was sent has lost the outer part of its qualified name
        self._name_of_id = {id(found): name for name, found in known.items() if isinstance(found, type)}
        self._aliases = aliases
        #: {references of a pickle: what they stand for}
        self._bound: dict[bytes, tuple[Any, ...]] = {}

    def importable_name_of(self, wanted: Any) -> Name:
        """Return the name by which workers can import a class or function.

        Raises
        ------
        NotBound
            if they cannot. The message gives the reason and the way out.
        """
        if _is_importable(wanted):
            return wanted.__module__, wanted.__qualname__
        module, qualname = wanted.__module__, wanted.__qualname__
        reason = _reason(wanted, self._known.get((module, qualname)))
        raise NotBound(f"{_shown(module, qualname)} has no name that a restore finds, because {reason}; {_WAY_OUT}")

    def own_name_of(self, wanted: Any) -> Name | None:
        """Return the name of a class or function that no worker can import, or None if the program has none of it."""
        if isinstance(wanted, type):
            return self._name_of_id.get(id(wanted))
        name = (wanted.__module__, wanted.__qualname__)
        return name if _is_copy(wanted, self._known.get(name)) else None

    def find(self, reference: Reference) -> Any:
        """Return the class or function of a reference, or what makes objects of the class.

        Raises
        ------
        NotBound
            if the program has none of this name, or another class than the stored one.
        """
        if reference.print == CODE:
            raise NotBound(
                f"a value holds the code of {reference.qualname}, not its name, because another version of Cutline has "
                "stored it; the code may be of another program and another Python, so it is not run"
            )
        module, qualname = self._aliases.now(reference.module, reference.qualname)
        found = self._known.get((module, qualname))
        if found is None and module != MAIN:
            found = found_in(module, qualname)
        if found is None or found is Several or found is OfNode:
            how_many, name = "several" if found is Several else "no", _shown(module, qualname)
            raise NotBound(
                f"the program has {how_many} class or function {name}, to which a stored value refers; if it has "
                f'another name now, graph.alias("{name}", ...) says which'
            )
        try:
            return _checked(found, reference)
        except AnotherClass as error:
            raise NotBound(f"{reference.name} {error}") from error

    def bind(self, references: bytes) -> Sequence[Any]:
        """Return what the encoded references of a pickle stand for. Raises as `find`."""
        bound = self._bound.get(references)
        if bound is None:
            bound = tuple([self.find(each) for each in decode_references(references)])
            self._bound[references] = bound
        return bound


class ForeignNames(ProgramNames):
    """Look up names without a graph: in the main module and in importable modules. Others have stand-ins."""

    def __init__(self) -> None:
        super().__init__({}, Aliases())

    def own_name_of(self, wanted: Any) -> Name | None:
        """Return the name of a class or function of the main module, or None for any other."""
        name = (wanted.__module__, wanted.__qualname__)
        return name if wanted.__module__ == MAIN and found_in(*name) is wanted else None

    def bind(self, references: bytes) -> Sequence[Any]:
        """Return what the encoded references of a pickle stand for. Nothing is kept, because cells run again."""
        return [self.find(each) for each in decode_references(references)]

    def find(self, reference: Reference) -> Any:
        """Return what a reference stands for, or a stand-in."""
        found = found_in(reference.module, reference.qualname)
        try:
            return stand_in(reference) if found is None else _checked(found, reference)
        except AnotherClass:
            return stand_in(reference)


#: names of codecs without a graph
NO_GRAPH: Final = ForeignNames()

_WAY_OUT: Final = (
    "define it in a module that the workers import, or refer to it by its own name from a node, a key or a transform"
)


def found_in(module: str, qualname: str) -> Any:
    """Return the class or function that a module has under a name, or None. Imports the module."""
    try:
        return reduce(getattr, qualname.split(".") if qualname else (), import_module(module))
    except Exception:  # noqa: BLE001  # because the import runs the module's code, which may raise anything
        return None


def _shown(module: str, qualname: str) -> str:
    return f"{module}.{qualname}"


def _checked(found: Any, reference: Reference) -> Any:
    """Return what a reference to a class or function stands for. Raises AnotherClass."""
    if reference.is_maker:
        return maker_of(found, reference.print)
    if reference.print:
        check_kind(found, reference.print)
    return found


def _is_copy(wanted: Any, known: Any) -> bool:
    """Return whether `wanted` is the function `known`, which each pickle of a node copies. Classes are never copied."""
    return (
        type(wanted) is FunctionType
        and type(known) is FunctionType
        and wanted.__closure__ is None
        and wanted.__code__ == known.__code__
    )


def _is_importable(wanted: Any) -> bool:
    return wanted.__module__ != MAIN and found_in(wanted.__module__, wanted.__qualname__) is wanted


def _reason(wanted: Any, known: Any) -> str:
    if wanted.__qualname__.endswith("<lambda>"):
        return "it is a lambda"
    if getattr(wanted, "__closure__", None) is not None:
        return "it is a closure, with variables of its own"
    if known is OfNode:
        return "it belongs to a node"
    if known is Several:
        return "the graph refers to several of this name"
    if known is not None:
        return "the graph refers to another one of this name"
    return "the graph does not refer to it"
