"""Snapshots that one Python has written are read by another, and by another process of the same.

A job stops with a value of each kind in flight, in own state and in keyed state, and objects as keys of a dict.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.source_files import ROOT

JOB = Path(__file__).with_name("job.py")

#: what a Simulator needs, in the versions of the constraints
_PACKAGES = ("msgpack", "msgspec", "cloudpickle", "pyarrow", "numpy", "xxhash", "hypothesis")

#: places of values in the job
_PLACES = {"in flight", "own state", "value state", "map state", "looked up"}


def newer_python() -> str | None:
    """The newest Python on this machine that is newer than this one, or None."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    newer = range(sys.version_info.minor + 1, 15)
    found = [
        path
        for minor in newer
        for path in (*map(str, pyenv.glob(f"versions/3.{minor}.*/bin/python")), shutil.which(f"python3.{minor}"))
        if path is not None and subprocess.run([path, "--version"], capture_output=True, check=False).returncode == 0
    ]
    return found[-1] if found else None


@pytest.fixture(scope="module")
def newer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A newer Python with the packages of a Simulator."""
    python = newer_python()
    if python is None:
        pytest.skip("no newer Python is installed here")
    folder = tmp_path_factory.mktemp("newer")
    _run(python, "-m", "venv", str(folder))
    made = str(folder / "bin" / "python")
    _run(made, "-m", "pip", "install", "-q", "-c", str(ROOT / "constraints.txt"), *_PACKAGES)
    return made


def _run(*command: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=300, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def _came_back(writer: str, reader: str, files: Path) -> Any:
    _run(writer, str(JOB), "take", str(files))
    return json.loads(_run(reader, str(JOB), "go-on", str(files)))


def _check_all_equal(found: Any) -> None:
    assert isinstance(found, list), found
    assert {place for place, _, _ in found} == _PLACES
    assert len(found) == 129, "each value of each kind was looked at"
    assert [each for each in found if each[2]] == []


def test_another_process_gets_equal_values(tmp_path: Path) -> None:
    """Of classes of its own main module, equal to and hashed as those it makes."""
    _check_all_equal(_came_back(sys.executable, sys.executable, tmp_path / "files"))


def test_a_newer_python_gets_equal_values(tmp_path: Path, newer: str) -> None:
    """An upgrade of Python needs nothing."""
    _check_all_equal(_came_back(sys.executable, newer, tmp_path / "files"))


def test_the_way_back_is_refused_by_module_or_equal(tmp_path: Path, newer: str) -> None:
    """It is not promised. What this Python does not have is named, and nothing is lost."""
    found = _came_back(newer, sys.executable, tmp_path / "files")
    if isinstance(found, list):
        _check_all_equal(found)
    else:
        assert "the program has no class or function pathlib._local.PurePosixPath" in found
