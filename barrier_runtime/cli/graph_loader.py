"""Loader for ``MODULE:GRAPH`` of the command line. Finds the graph, and the files from which workers import its nodes.

Pickle refers to nodes by name, so a worker imports their module. The module is therefore sent with the run, together
with all Python files of its package. An installed module is not sent, because every place with Cutline has it.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import sysconfig
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from cutline.snapshot.errors import GraphError
from cutline.snapshot.graph import Graph

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class GraphReference(NamedTuple):
    """The object that ``MODULE:GRAPH`` names: a graph, or a function that makes the graph."""

    name: str
    module: ModuleType
    #: a Graph, or a function that returns one, without arguments or of the SparkSession
    found: Graph | Callable[..., Any]

    @property
    def graph_name(self) -> str | None:
        """Name of the graph, or None while a function has not made the graph."""
        return self.found.name if isinstance(self.found, Graph) else None

    @property
    def needs_spark(self) -> bool:
        """Return whether ``MODULE:GRAPH`` names a function that takes the SparkSession."""
        return not isinstance(self.found, Graph) and bool(self._arguments(self.found, None))

    def graph(self, spark: SparkSession | None) -> Graph:
        """Return the graph. Call the function when ``MODULE:GRAPH`` names a function.

        `spark` is None only where `needs_spark` is False.

        Raises
        ------
        GraphError
            if the function takes other arguments, or returns a value that is not a `Graph`.
        """
        graph = self.found if isinstance(self.found, Graph) else self.found(*self._arguments(self.found, spark))
        if not isinstance(graph, Graph):
            raise GraphError(
                f"{self.name}: the function returned a value of type {type(graph).__qualname__}, not a Graph"
            )
        return graph

    def _arguments(self, function: Callable[..., Any], spark: SparkSession | None) -> tuple[SparkSession | None, ...]:
        """Return the session if the function accepts one argument, else nothing."""
        try:
            signature = inspect.signature(function)
        except ValueError:  # because some functions written in C have no signature
            return (spark,)
        choices: tuple[tuple[SparkSession | None, ...], ...] = ((spark,), ())
        for arguments in choices:
            try:
                signature.bind(*arguments)
            except TypeError:
                continue
            return arguments
        raise GraphError(f"{self.name}{signature}: the function must take the SparkSession, or no argument")


def find_graph(name: str) -> GraphReference:
    """Import ``MODULE`` from the current folder or the installed packages, and find ``GRAPH`` in the module.

    Raises
    ------
    GraphError
        if the module does not exist, or has no such attribute, or the attribute is neither a graph nor a function.
    Exception
        any exception that the module raises while being imported.
    """
    module_name, colon, attribute = name.partition(":")
    if not (module_name and colon and attribute):
        raise GraphError(f"{name!r} names no graph: give MODULE:GRAPH, as jobs.bank:graph for `graph` in jobs/bank.py")
    module = _import(module_name)
    if not hasattr(module, attribute):
        graphs = [each for each, value in vars(module).items() if isinstance(value, Graph)]
        advice = f"; its graphs are {', '.join(graphs)}" if graphs else ""
        raise GraphError(f"{name}: {module.__file__} has no {attribute!r}{advice}")
    found = getattr(module, attribute)
    if not isinstance(found, Graph) and not callable(found):
        raise GraphError(
            f"{name} is of type {type(found).__qualname__}; it must be a Graph, or a function that returns one, "
            "without arguments or of the SparkSession"
        )
    return GraphReference(name, module, found)


def python_file(module: ModuleType, folder: Path) -> Path | None:
    """Return the file from which workers import `module`, or its package zipped into `folder`. None if installed."""
    top = sys.modules[module.__name__.partition(".")[0]]
    if top.__name__ == __name__.partition(".")[0]:
        return None  # because every executor has Cutline installed
    found = [Path(place).resolve() for place in getattr(top, "__path__", None) or [top.__file__ or ""]]
    # Without duplicates, because a package without __init__.py appears once for each name of its folder.
    places = list(dict.fromkeys(found))
    installed = [Path(sysconfig.get_path(kind)).resolve() for kind in ("stdlib", "purelib", "platlib")]
    if any(place.is_relative_to(each) for place in places for each in installed):
        return None
    if places[0].is_file():
        return places[0]
    archive = folder / f"{top.__name__}.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as files:
        for path, name in [(path, path.relative_to(at.parent)) for at in places for path in sorted(at.rglob("*.py"))]:
            for above in reversed(name.parents[:-1]):
                if f"{above}/" not in files.namelist():
                    files.mkdir(str(above))  # because a package without __init__.py in an archive needs a folder entry
            files.write(path, name)
    return archive


def _import(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise  # because the named module exists, and a module that it imports is missing
        raise GraphError(
            f"there is no module {error.name!r} in {Path.cwd()} nor among what is installed; "
            "start cutline in the folder that holds it"
        ) from error
