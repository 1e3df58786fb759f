"""The list of mutants that no test can kill names lines that are there."""

from __future__ import annotations

from tests.mutants.equivalents import Equivalents
from tests.source_files import ROOT


def test_listed_lines_are_there() -> None:
    """A line that has moved or changed leaves an entry that excuses nothing."""
    files: dict[str, set[str]] = {}
    for file, line in Equivalents().lines():
        path = ROOT / file
        there = files.setdefault(
            file, {each.strip() for each in path.read_text().splitlines()} if path.exists() else set()
        )
        assert line in there, f"{file}: {line}"
