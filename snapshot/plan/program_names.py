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

from cutline.snapshot.plan.class_fields import AnotherClass, check_kind, maker_of

#: module and qualified name of a class or function
Name = tuple[str, str]

#: Module of a script or notebook. A worker has another module of this name.
MAIN: Final = "__main__"


class Several:
    """Stands in `ProgramNames.known` for a name that several classes or functions have."""


class NotBound(Exception):
    """A class or function has no name in the program, or a name has no class or function."""


@dataclass(frozen=True)
class ProgramNames:
    """Look up classes and functions by name: first among those of the graph, then in importable modules.

    Parameters
    ----------
    known : mapping or None
        ``{(module, qualified name): class, function or Several}`` of all that the graph refers to and that workers
        cannot import. None: there is no graph, and the classes of the main module are those of the program.
    """

    known: Mapping[Name, Any] | None = None
    _makers: dict[tuple[str, str, str], Callable[..., Any]] = field(default_factory=dict, repr=False)

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
        reason = _reason(wanted, (self.known or {}).get((module, qualname)))
        raise NotBound(f"{_shown(module, qualname)} has no name that a restore finds, because {reason}; {_WAY_OUT}")

    def own_name_of(self, wanted: Any) -> Name | None:
        """Return the name of a class or function that no worker can import, or None if the program has none of it."""
        name = (wanted.__module__, wanted.__qualname__)
        if self.known is None:
            return name if wanted.__module__ == MAIN and _found_in(*name) is wanted else None
        known = self.known.get(name)
        return name if known is wanted or _is_copy(wanted, known) else None

    def find(self, module: str, qualname: str) -> Any:
        """Return the class or function of a name.

        Raises
        ------
        NotBound
            if the program has none of this name.
        """
        found = (self.known or {}).get((module, qualname))
        if found is None and (module != MAIN or self.known is None):
            found = _found_in(module, qualname)
        if found is None or found is Several:
            how_many = "no class or function" if found is None else "several classes or functions"
            raise NotBound(f"the program has {how_many} {_shown(module, qualname)}, to which a stored value refers")
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


#: names of codecs without a graph
NO_GRAPH: Final = ProgramNames()

_WAY_OUT: Final = (
    "define it in a module that the workers import, or refer to it by its own name from a node, a key or a transform"
)


def _shown(module: str, qualname: str) -> str:
    return f"{module}.{qualname}"


def _is_copy(wanted: Any, known: Any) -> bool:
    """Return whether `wanted` is the function `known`, which each pickle of a node copies. Classes are never copied."""
    return (
        type(wanted) is FunctionType
        and type(known) is FunctionType
        and wanted.__closure__ is None
        and wanted.__code__ == known.__code__
    )


def _is_importable(wanted: Any) -> bool:
    return wanted.__module__ != MAIN and _found_in(wanted.__module__, wanted.__qualname__) is wanted


def _found_in(module: str, qualname: str) -> Any:
    """Return the class or function that a module has under a name, or None."""
    try:
        return reduce(getattr, qualname.split("."), import_module(module))
    except Exception:  # noqa: BLE001  # because the import runs the module's code, which may raise anything
        return None


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
