"""The house rules that ruff and mypy cannot see.

Theirs are the others: names (with the list of camelCase files in pyproject.toml), docstrings of what is public,
bare except, print, types.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pickle
import pkgutil
import re
from collections.abc import Iterator

import pytest

from tests.source_files import (
    PACKAGES,
    ROOT,
    USERS_FOLDER,
    Function,
    fields,
    functions,
    is_record,
    name_of,
    nodes,
    parse,
    public_methods,
    python_files,
)

#: A class of more is two ideas. Frozen records, settings and what users hold (`_FACADES`) are measured by no number.
_PUBLIC_METHODS_MAX = 20
_FIELDS_MAX = 15

#: Classes that users hold: their size is that of the interface.
_FACADES = ("Context", "SubtaskContext", "Run", "BarrierRuntime", "Graph")

#: Lines of a body, without its docstring. Wanted are 30; this is where the build stops.
_BODY_LINES_MAX = 50

#: Nodes of tests may sleep inside a hook: a slow node is a fault to be survived, not a way to wait.
_HOOKS = (
    *("open", "close", "poll", "commit", "onStart", "onMessage", "onBatch", "onTimer", "onEnd"),
    *("snapshotState", "restoreState", "prepareCommit", "discardUncommitted", "onPublished"),
)

_ALL = python_files(USERS_FOLDER, *PACKAGES, "tests", "benchmarks")
_TESTS = [path for path in python_files("tests") if path.name.startswith("test_")]
_TEXTS = [
    *_ALL,
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "demos").rglob("*.ipynb")),
    *sorted((ROOT / "scripts").iterdir()),
    *(ROOT / name for name in ("pyproject.toml", "constraints.txt", "Makefile", ".ci/run")),
]


def test_classes_are_small() -> None:
    """No class has grown beyond one idea: public methods and fields are counted, so that nobody packs lines to fit."""
    found = {
        f"{name_of(path)} {cls.name}": (len(public_methods(cls)), len(fields(cls)))
        for path in python_files(*PACKAGES)
        for cls in nodes(path)
        if isinstance(cls, ast.ClassDef) and not is_record(cls) and cls.name not in _FACADES
    }
    for name, size in found.items():
        assert size[0] <= _PUBLIC_METHODS_MAX and size[1] <= _FIELDS_MAX, (
            f"{name} has {size[0]} public methods and {size[1]} fields"
        )


def test_functions_are_short() -> None:
    """No function body needs scrolling."""
    lengths = {f"{name_of(path)}:{f.lineno} {f.name}": _body_lines(f) for path in _ALL for f in functions(path)}
    assert {name: lines for name, lines in lengths.items() if lines > _BODY_LINES_MAX} == {}


def _body_lines(function: Function) -> int:
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return body[-1].end_lineno - body[0].lineno + 1 if body and body[-1].end_lineno else 0


def test_modules_say_what_they_own() -> None:
    """Every module begins with a docstring."""
    assert [name_of(path) for path in _ALL if not ast.get_docstring(parse(path))] == []


def test_tests_say_what_they_prove() -> None:
    """Every test has a docstring."""
    silent = [
        f"{name_of(path)}:{function.lineno} {function.name}"
        for path in _TESTS
        for function in functions(path)
        if function.name.startswith("test_") and not ast.get_docstring(function)
    ]
    assert silent == []


def test_camel_case_has_one_list() -> None:
    """What may be camelCase is listed in pyproject.toml; no line makes an exception for itself."""
    pattern = re.compile(r"noqa:.*\bN8(02|03|06|15|16)")
    assert [name_of(path) for path in _ALL if pattern.search(path.read_text())] == []


def test_tests_do_not_sleep_to_synchronise() -> None:
    """A test waits for what it needs, with a deadline; a sleep is too short one day and too long on all others."""
    assert [f"{name_of(path)}:{line}" for path in python_files("tests") for line in _sleeps(parse(path), False)] == []


def _sleeps(node: ast.AST, in_hook: bool) -> Iterator[int]:
    if isinstance(node, ast.FunctionDef):
        in_hook = node.name in _HOOKS
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("time.sleep", "sleep") and not in_hook:
        yield node.lineno
    for child in ast.iter_child_nodes(node):
        yield from _sleeps(child, in_hook)


def test_no_path_of_one_machine() -> None:
    """Nothing refers to a place that exists on one machine only."""
    pattern = re.compile(r"(?<![\w.{}])/(root|home|work|Users)/")
    found = [
        f"{name_of(path)}:{number} {line.strip()}"
        for path in _TEXTS
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if pattern.search(line)
    ]
    assert found == []


def test_constraints_are_names_and_versions() -> None:
    """The constraints file pins versions and says nothing about where packages come from."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pattern = re.compile(r"[A-Za-z0-9._-]+==[A-Za-z0-9.+!]+")
    assert [line for line in lines if line and not line.startswith("#") and not pattern.fullmatch(line)] == []


def _errors() -> list[type[Exception]]:
    """Every exception class that the packages define."""
    modules = [
        importlib.import_module(found.name)
        for package in PACKAGES
        for found in pkgutil.walk_packages([str(ROOT / package)], f"{USERS_FOLDER}.{package}.")
        if not found.name.endswith("__main__")
    ]
    found = {
        f"{value.__module__}.{value.__qualname__}": value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Exception) and value.__module__ == module.__name__
    }
    return [found[name] for name in sorted(found)]


@pytest.mark.parametrize("error_class", _errors(), ids=lambda error_class: error_class.__qualname__)
def test_errors_can_be_pickled(error_class: type[Exception]) -> None:
    """Errors cross from workers to the coordinator and to the driver, and arrive as they were."""
    # An error without a constructor of its own takes the text; others are filled with what they ask for.
    own = error_class.__init__ is not Exception.__init__
    asked = [p.name for p in inspect.signature(error_class.__init__).parameters.values() if p.default is p.empty][1:]
    error = error_class(*(f"value of {name}" for name in asked)) if own else error_class("what happened")
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))
