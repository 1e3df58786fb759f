"""Each mode is its row and its room: without them types are clean, and the tests of the other modes pass.

A copy of the tree loses one mode at a time: the class in `snapshot/plan/modes.py`, the names in lists, the room that no
other mode has, and the tests that name the mode or the room. Tests that read the pages are left out, because the pages
describe the mode.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cutline.snapshot.plan.modes import MODES
from tests.source_files import ROOT

#: {class of a mode: its room, or None where it shares all rooms}
_ROOMS = {
    "InputLogging": None,
    "Deltas": None,
    "PersistentState": "versions",
    "MonoidClocks": "clocks",
    "ChannelLogs": "records",
}

_MODES = "snapshot/plan/modes.py"

#: Rooms of tests that run, and tests below that start no process
_TESTED = ("tests/snapshot", "tests/channels", "tests/state_backends", "tests/barrier_runtime")
_UNIT = "not full and not live and not night"

#: At least so many files of tests are left: half of those that there are. Else hardly anything is proved.
_LEFT_SHARE = 0.5


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mode", [each.__name__ for each in MODES])
def test_a_mode_can_be_removed(mode: str, tmp_path: Path) -> None:
    """Types are clean, and unit tests of all other modes pass."""
    tree = tmp_path / "tree"
    _copy(tree)
    stored_name = _remove_mode(tree, mode)
    if (room := _ROOMS[mode]) is not None:
        _remove_room(tree, room)
    before = len(list(tree.rglob("test_*.py")))
    _remove_tests(tree, mode, stored_name, room)
    assert len(list(tree.rglob("test_*.py"))) >= before * _LEFT_SHARE
    _demand(tree, "mypy", "--cache-dir", str(tmp_path / "types"))
    # The environment has the checkout as an editable package. The current folder comes first.
    _demand(tree, "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", _UNIT, *_TESTED)


def _copy(tree: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split("\0")
    for name in filter(None, listed):
        source, target = ROOT / name, tree / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target, follow_symlinks=False)


def _remove_mode(tree: Path, mode: str) -> str:
    """Remove the class of a mode and its name in all lists. Return the name that runs store."""
    path = tree / _MODES
    text = path.read_text()
    (cls,) = (each for each in ast.parse(text).body if isinstance(each, ast.ClassDef) and each.name == mode)
    first = min(cls.lineno, *(each.lineno for each in cls.decorator_list))
    lines = text.splitlines(keepends=True)
    stored = re.search(r'name: ClassVar\[str\] = "(\w+)"', "".join(lines[first - 1 : cls.end_lineno]))
    assert stored is not None
    kept = "".join(lines[: first - 1] + lines[cls.end_lineno :])
    path.write_text(kept.replace(f"    {mode},\n", ""))
    users = tree / "cutline/__init__.py"
    names = re.sub(rf'    "{mode}"(: [^\n]*)?,\n', "", users.read_text())
    users.write_text(re.sub(rf"\b{mode}, |, {mode}\b", "", names))
    return stored[1]


def _remove_room(tree: Path, room: str) -> None:
    shutil.rmtree(tree / "snapshot/modes" / room)
    path = tree / "snapshot/assembly.py"
    gone = (f"modes.{room}.", f"    {room.capitalize()}(),")
    path.write_text("".join(line for line in path.read_text().splitlines(keepends=True) if not _has(line, gone)))


def _has(text: str, words: tuple[str, ...]) -> bool:
    return any(word in text for word in words)


def _remove_tests(tree: Path, mode: str, stored_name: str, room: str | None) -> None:
    """Remove tests and benchmarks that name the mode or its room, and what imports these."""
    named = re.compile(rf'\b{mode}\b|"{stored_name}' + ("" if room is None else rf"|\bmodes[./]{room}\b"))
    files = {path: path.read_text() for folder in ("tests", "benchmarks") for path in (tree / folder).rglob("*.py")}
    gone = {path for path, text in files.items() if named.search(text)}
    while True:
        modules = {".".join(path.relative_to(tree).with_suffix("").parts) for path in gone}
        importers = {path for path in files if path not in gone and modules.intersection(_imported(files[path]))}
        if not importers:
            break
        gone |= importers
    assert tree / "tests/conftest.py" not in gone
    for path in gone:
        path.unlink()


def _imported(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{each.name}" for each in node.names)


def _demand(tree: Path, module: str, *arguments: str) -> None:
    environment = {**os.environ, "CUTLINE_EXAMPLES": "0.1"}
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
