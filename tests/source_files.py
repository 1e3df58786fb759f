"""The source files of this checkout, parsed, for the tests that read code."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).parent.parent
PACKAGES = ("snapshot", "channels", "state_backends", "barrier_runtime", "demos")

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


def python_files(*folders: str) -> list[Path]:
    """All Python files below `folders`, sorted."""
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


@cache
def parse(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(), str(path))


def functions(path: Path) -> Iterator[Function]:
    """All functions and methods of a file, nested ones too."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def name_of(path: Path) -> str:
    """The path as it is written in a message."""
    return path.relative_to(ROOT).as_posix()
