"""The list of mutants that no test can kill, each with its reason: equivalents.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import NamedTuple

from tests.mutants.mutations import Mutant

_LIST = Path(__file__).with_name("equivalents.toml")


class Equivalent(NamedTuple):
    """A mutant that behaves as the code does. Lines are compared without their indentation."""

    file: str
    was: str
    becomes: str


def equivalents() -> dict[Equivalent, str]:
    """Return {mutant: reason}."""
    entries = tomllib.loads(_LIST.read_text())["equivalent"]
    return {Equivalent(each["file"], each["was"], each["becomes"]): each["reason"] for each in entries}


def changed_lines(mutant: Mutant) -> Equivalent:
    """Return the mutant as it stands in the list."""
    lines = mutant.diff().splitlines()[3:]
    was, becomes = ("\n".join(line[1:].strip() for line in lines if line[0] == sign) for sign in "-+")
    return Equivalent(mutant.file, was, becomes)
