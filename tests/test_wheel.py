"""The package is whole: a wheel runs where there is no checkout, and beside modules of the same names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.source_files import PACKAGES, ROOT, USERS_FOLDER

_IMPORT_ALL = f"""
import importlib
for package in {PACKAGES}:
    print(importlib.import_module(f"{USERS_FOLDER}.{{package}}").__file__)
"""

#: A program in a folder whose modules are named as the folders of the packages.
_BESIDE = """
import channels, demos.own, snapshot
from cutline import BarrierRuntime, FileSystemBackend, Graph, Node
from cutline.testing import Simulator
print(snapshot.OWN, channels.OWN, demos.own.OWN, Graph("g").name, BarrierRuntime.__name__, Simulator.__name__)
"""

_GRAPH = """
import snapshot, channels, demos.own
from cutline import Graph, Node
class Passive(Node):
    def onMessage(self, message, context): pass
    def snapshotState(self, snapshotId, timestamp): return snapshot.OWN
    def restoreState(self, state): pass
graph = Graph("own").add("a", Passive()).connect("a", "a")
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the wheel, built from a copy of the sources, was installed without its dependencies."""
    directory = tmp_path_factory.mktemp("wheel")
    sources = _copy(directory / "sources")
    _python(sources, "-m", "build", "--wheel", "--outdir", str(directory))
    wheel = next(directory.glob("*.whl"))
    target = directory / "site"
    _python(directory, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), str(wheel))
    return target


def _copy(to: Path) -> Path:
    to.mkdir()
    for folder in (USERS_FOLDER, *PACKAGES):
        shutil.copytree(ROOT / folder, to / folder, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, to)
    return to


def _python(directory: Path, *arguments: str, path: Path | None = None) -> str:
    done = _run(directory, *arguments, path=path)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _run(directory: Path, *arguments: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(path or "")}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=100)


@pytest.fixture
def user_folder(tmp_path: Path) -> Path:
    """A folder of a user, with modules named as the folders of the packages."""
    (tmp_path / "snapshot.py").write_text("OWN = 'my snapshot'\n")
    for package in ("channels", "demos"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("OWN = 'my channels'\n")
    (tmp_path / "demos" / "own.py").write_text("OWN = 'my demo'\n")
    (tmp_path / "jobs.py").write_text(_GRAPH)
    return tmp_path


@pytest.mark.slow
def test_packages_are_imported_from_the_wheel(installed: Path) -> None:
    """All packages are in the wheel, typed, below one name, and need nothing of the checkout to be imported."""
    files = _python(installed.parent, "-c", _IMPORT_ALL, path=installed).splitlines()
    assert files == [str(installed / USERS_FOLDER / package / "__init__.py") for package in PACKAGES]
    assert (installed / USERS_FOLDER / "py.typed").exists()
    (info,) = installed.glob("*.dist-info")
    assert (info / "top_level.txt").read_text().split() == [USERS_FOLDER]


@pytest.mark.slow
def test_command_line_starts_from_the_wheel(installed: Path) -> None:
    """The installed `cutline` command answers, and so does ``python -m cutline``."""
    assert "snapshots" in _python(installed.parent, str(installed / "bin" / "cutline"), "--help", path=installed)
    assert "snapshots" in _python(installed.parent, "-m", "cutline", "--help", path=installed)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["checkout", "wheel"])
def test_modules_of_a_user_have_their_own_names(installed: Path, user_folder: Path, way: str) -> None:
    """A program and ``cutline plan`` import a user's `snapshot`, `channels` and `demos`, and Cutline beside them."""
    path = ROOT if way == "checkout" else installed
    program = user_folder / "program.py"
    program.write_text(_BESIDE)
    said = _python(user_folder, str(program), path=path)
    assert said == "my snapshot my channels my demo g BarrierRuntime Simulator\n"
    plan = _python(
        user_folder, "-m", "cutline", "plan", "jobs:graph", "--backend", str(user_folder / "store"), path=path
    )
    assert "own" in plan


def test_a_copy_without_links_is_refused(tmp_path: Path) -> None:
    """A copy of a checkout that lost its links says so at once, also as a command."""
    copied = tmp_path / "copied" / USERS_FOLDER
    copied.mkdir(parents=True)
    for path in (ROOT / USERS_FOLDER).glob("*.py"):
        shutil.copy(path, copied)
    for arguments in (["-c", "import cutline"], ["-m", "cutline", "--help"]):
        done = _run(tmp_path, "-S", *arguments, path=copied.parent)  # -S: no editable install completes the copy
        assert done.returncode == 1
        assert "has no package 'snapshot', because its links are missing: copy a checkout with its links" in done.stderr
