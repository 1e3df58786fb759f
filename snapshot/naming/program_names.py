"""The names of a program: its classes and functions by name, and the names of its classes and functions.

A value never holds code. Stored values refer to classes and functions by module and qualified name. So a restored
object is of the class that the submitted program has under this name, with the code that the program has now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import reduce
from importlib import import_module
from types import FunctionType
from typing import Any, Final

from cutline.snapshot.naming.class_fields import AnotherClass, check_kind, maker_of
from cutline.snapshot.naming.stand_ins import StandIn, stand_in

#: module and qualified name of a class or function
Name = tuple[str, str]

#: Module of a script or notebook. A worker has another module of this name.
MAIN: Final = "__main__"


class Several:
    """Stands in `ProgramNames.known` for a name that several classes or functions have."""


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

    @property
    def hides_module(self) -> bool:
        """Whether a module that can still be imported has one of these names, so that pickle would find it."""
        return any(self._is_there(name) for name in (*self.names, *self.modules))

    @staticmethod
    def _is_there(name: str) -> bool:
        parts = name.split(".")
        places = ((".".join(parts[:end]), ".".join(parts[end:])) for end in range(1, len(parts) + 1))
        return any(found_in(module, qualname) is not None for module, qualname in places)


class ProgramNames:
    """Look up names in a graph's program: first aliases, then what the graph refers to, then importable modules.

    Parameters
    ----------
    known : mapping
        ``{(module, qualified name): class, function or Several}`` of all that the graph refers to and that workers
        cannot import.
    aliases : Aliases
    """

    def __init__(self, known: Mapping[Name, Any], aliases: Aliases) -> None:
        self._known = known
        self._aliases = aliases
        self._makers: dict[tuple[str, str, str], Callable[..., Any]] = {}
        #: whether pickle itself would not find what a stored name stands for
        self.hides_module = aliases.hides_module

    def name_of(self, wanted: Any) -> Name | None:
        """Return the name by which a class or function is stored. None: pickle itself writes it, by module and name.

        Raises
        ------
        NotBound
            if a restore could not find the class or function. The message gives the reason and the way out.
        """
        name = self.own_name_of(wanted)
        if name is not None or _is_importable(wanted):
            return name
        module, qualname = wanted.__module__, wanted.__qualname__
        reason = _reason(wanted, self._known.get((module, qualname)))
        raise NotBound(f"{_shown(module, qualname)} has no name that a restore finds, because {reason}; {_WAY_OUT}")

    def own_name_of(self, wanted: Any) -> Name | None:
        """Return the name of a class or function that no worker can import, or None if the program has none of it."""
        name = (wanted.__module__, wanted.__qualname__)
        known = self._known.get(name)
        return name if known is wanted or _is_copy(wanted, known) else None

    def find(self, module: str, qualname: str) -> Any:
        """Return the class or function that a stored name stands for.

        Raises
        ------
        NotBound
            if the program has none of this name.
        """
        module, qualname = self._aliases.now(module, qualname)
        found = self._known.get((module, qualname))
        if found is None and module != MAIN:
            found = found_in(module, qualname)
        if found is None or found is Several:
            how_many, name = "no" if found is None else "several", _shown(module, qualname)
            raise NotBound(
                f"the program has {how_many} class or function {name}, to which a stored value refers; if it has "
                f'another name now, graph.alias("{name}", ...) says which'
            )
        return found

    def bound(self, module: str, qualname: str, stored: str) -> Any:
        """Return the class or function of a name that was stored with a print. Raises as `find`."""
        found = self.find(module, qualname)
        try:
            check_kind(found, stored)
        except AnotherClass as error:
            raise NotBound(f"{_shown(module, qualname)} {error}") from error
        return found

    def maker(self, module: str, qualname: str, stored: str) -> Callable[..., Any]:
        """Return what makes an object of the class of a name that was stored with a print. Raises as `find`."""
        maker = self._makers.get((module, qualname, stored))
        if maker is None:
            try:
                maker = maker_of(self.find(module, qualname), stored)
            except AnotherClass as error:
                raise NotBound(f"{_shown(module, qualname)} {error}") from error
            self._makers[module, qualname, stored] = maker
        return maker


class ForeignNames(ProgramNames):
    """Look up names without a graph: in the main module and in importable modules. Others have stand-ins."""

    def __init__(self) -> None:
        super().__init__({}, Aliases())

    def own_name_of(self, wanted: Any) -> Name | None:
        """Return the name of a class or function of the main module, or None for any other."""
        name = (wanted.__module__, wanted.__qualname__)
        return name if wanted.__module__ == MAIN and found_in(*name) is wanted else None

    def find(self, module: str, qualname: str) -> Any:
        """Return the class or function of a name, or a stand-in."""
        found = found_in(module, qualname)
        return stand_in(module, qualname, "class") if found is None else found

    def bound(self, module: str, qualname: str, stored: str) -> Any:
        """Return the class or function of a name and print, or a stand-in."""
        try:
            found = super().bound(module, qualname, stored)
        except NotBound:
            found = None
        return stand_in(module, qualname, stored) if found is None or _is_stand_in(found) else found

    def maker(self, module: str, qualname: str, stored: str) -> Callable[..., Any]:
        """Return what makes an object of the class of a name and print, or a stand-in."""
        try:
            return maker_of(found_in(module, qualname), stored)
        except AnotherClass:
            return stand_in(module, qualname, stored, is_maker=True)


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


def _is_stand_in(found: Any) -> bool:
    return isinstance(found, type) and issubclass(found, StandIn)


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
    if known is Several:
        return "the graph refers to several of this name"
    if known is not None:
        return "the graph refers to another one of this name"
    return "the graph does not refer to it"
