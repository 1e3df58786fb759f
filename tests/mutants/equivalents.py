"""The list of mutants that no test can kill, each with its reason: equivalents.toml."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tests.mutants.mutations import Mutant

_LIST = Path(__file__).with_name("equivalents.toml")


class Change(NamedTuple):
    """The changed lines of a mutant, without their indentation."""

    file: str
    was: str
    becomes: str


class Equivalents:
    """Mutants that behave as the code does: single ones, and kinds of them."""

    def __init__(self) -> None:
        listed = tomllib.loads(_LIST.read_text())
        self._single = {Change(e["file"], e["was"], e["becomes"]): e["reason"] for e in listed.get("equivalent", ())}
        self._kinds = [(e["files"], re.compile(e["pattern"]), e["reason"]) for e in listed["kind"]]

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield (file, line before the change) of the single ones."""
        return ((change.file, line) for change in self._single for line in change.was.splitlines())

    def reason(self, mutant: Mutant) -> str | None:
        """Return why no test can kill the mutant, or None."""
        change = changed_lines(mutant)
        text = f"{change.was}\n->\n{change.becomes}"
        for files, pattern, reason in self._kinds:
            if fnmatchcase(change.file, files) and pattern.fullmatch(text):
                return str(reason)
        return self._single.get(change)


def changed_lines(mutant: Mutant) -> Change:
    """Return the mutant as it stands in the list."""
    lines = mutant.diff().splitlines()[3:]
    was, becomes = ("\n".join(line[1:].strip() for line in lines if line[0] == sign) for sign in "-+")
    return Change(mutant.file, was, becomes)
