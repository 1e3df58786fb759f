"""The source files of this checkout, parsed, for the tests that read code."""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).parent.parent
#: folder of the package that users import; its packages are links to `PACKAGES`
USERS_FOLDER = "cutline"

#: folders of the packages
PACKAGES = ("snapshot", "channels", "state_backends", "barrier_runtime", "demos")

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


def python_files(*folders: str) -> list[Path]:
    """All Python files below `folders`, sorted."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


@cache
def parse(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    # All trees are a million objects that stay. The garbage collector would visit them again at each collection.
    gc.disable()
    try:
        return ast.parse(path.read_text(), str(path))
    finally:
        gc.freeze()
        gc.enable()


@cache
def nodes(path: Path) -> list[ast.AST]:
    """All nodes of the syntax tree of a file."""
    return list(ast.walk(parse(path)))


def functions(path: Path) -> Iterator[Function]:
    """All functions and methods of a file, nested ones too."""
    return (node for node in nodes(path) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def name_of(path: Path) -> str:
    """The path as it is written in a message."""
    return path.relative_to(ROOT).as_posix()


def is_record(cls: ast.ClassDef) -> bool:
    """Whether a class is a data class, a named tuple or an enum."""
    decorators = [ast.unparse(decorator) for decorator in cls.decorator_list]
    bases = [ast.unparse(base) for base in cls.bases]
    return any("dataclass" in each for each in decorators) or any(
        kind in base for base in bases for kind in ("NamedTuple", "Enum")
    )


def public_methods(cls: ast.ClassDef) -> list[str]:
    """The names of a class's methods and properties without an underscore."""
    return [each.name for each in cls.body if isinstance(each, ast.FunctionDef) and not each.name.startswith("_")]


def fields(cls: ast.ClassDef) -> list[str]:
    """The attributes that the methods of a class assign to `self`, each once, in order."""
    methods = (each for each in cls.body if isinstance(each, ast.FunctionDef))
    found = (node for method in methods for node in ast.walk(method))
    stored = (
        node.attr
        for node in found
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"
    )
    return list(dict.fromkeys(stored))
