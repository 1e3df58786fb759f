"""The wheel is whole: it installs and runs where there is no checkout."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.source_files import PACKAGES, ROOT

_IMPORT_ALL = f"""
import importlib
for package in {PACKAGES}:
    print(importlib.import_module(package).__file__)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which the wheel, built from a copy of the sources, was installed without its dependencies."""
    directory = tmp_path_factory.mktemp("wheel")
    sources = directory / "sources"
    sources.mkdir()
    for package in PACKAGES:
        shutil.copytree(ROOT / package, sources / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources)
    _python(sources, "-m", "build", "--wheel", "--outdir", str(directory))
    wheel = next(directory.glob("*.whl"))
    target = directory / "site"
    _python(directory, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), str(wheel))
    return target


def _python(directory: Path, *arguments: str, path: Path | None = None) -> str:
    environment = {**os.environ, "PYTHONPATH": str(path or "")}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_packages_are_imported_from_the_wheel(installed: Path) -> None:
    """All packages are in the wheel, typed, and need nothing of the checkout to be imported."""
    files = _python(installed.parent, "-c", _IMPORT_ALL, path=installed).splitlines()
    assert files == [str(installed / package / "__init__.py") for package in PACKAGES]
    assert all((installed / package / "py.typed").exists() for package in PACKAGES)


@pytest.mark.slow
def test_command_line_starts_from_the_wheel(installed: Path) -> None:
    """The installed `cutline` command answers."""
    assert "snapshots" in _python(installed.parent, str(installed / "bin" / "cutline"), "--help", path=installed)
