"""Names in code use the words of the glossary (DESIGN 2).

Names of tests are exempt, because they are sentences.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.source_files import PACKAGES, ROOT, name_of, nodes, python_files

_FILES = python_files(*PACKAGES, "tests", "benchmarks")

#: what a name is made of: ``SnapshotId``, ``snapshot_id`` and ``SNAPSHOT_ID`` have the same parts
_PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


@cache
def _parts(name: str) -> set[str]:
    return {part.lower() for part in _PART.findall(name)}


#: A row of the glossary's second table: words, the meaning that alone is forbidden if any, what to use instead.
_ROW = re.compile(r"\| (?P<words>[a-z, ]+?)(?: \((?P<meaning>[^)]+)\))? \| .+ \|")

#: Words that are forbidden in one meaning only: what a name has that uses them so.
_MEANINGS = {
    "of ids": lambda name, word: name in (word, f"{word}s") or bool(_parts(name) & {"id", "ids", "raise", "raised"}),
    "for a snapshot": lambda name, word: bool(_parts(name) & {"snapshot", "stop", "close", "closed"}),
}


def _forbidden() -> dict[str, str]:
    """{word: the meaning that is forbidden, "" for all}, from DESIGN."""
    _, _, table = (ROOT / "docs" / "DESIGN.md").read_text().partition("| forbidden in names | instead |\n|---|---|\n")
    rows = [_ROW.fullmatch(line) for line in table.partition("\n\n")[0].splitlines()]
    assert all(rows), "a row of the table of forbidden words cannot be read"
    return {word: row["meaning"] or "" for row in rows if row is not None for word in row["words"].split(", ")}


def _names(path: Path) -> Iterator[tuple[int, str]]:
    """What a file defines: classes, functions but tests, parameters, attributes and variables."""
    for node in nodes(path):
        if isinstance(node, ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if not node.name.startswith("test_"):
                yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        elif isinstance(node, ast.MatchAs | ast.MatchStar) and node.name is not None:
            yield node.lineno, node.name
        elif isinstance(node, ast.alias) and node.asname is not None:
            yield node.lineno, node.asname


def _offends(name: str, forbidden: dict[str, str]) -> bool:
    used = _parts(name)
    return any(word in used and (not meaning or _MEANINGS[meaning](name, word)) for word, meaning in forbidden.items())


def test_the_glossary_forbids_words() -> None:
    """The table in DESIGN is read whole, and each of its meanings is known here."""
    forbidden = _forbidden()
    assert {"life", "told", "look", "standing", "desk", "spread"} <= set(forbidden)
    assert {meaning for meaning in forbidden.values() if meaning} == set(_MEANINGS)


def test_offending_names_are_found() -> None:
    """A forbidden word is found as a whole part of a name, in its forbidden meaning only."""
    forbidden = _forbidden()
    bad = (
        "StoreDesk",
        "_told",
        "look_at_clock",
        "CoordinatorLife",
        "SnapshotOrder",
        "closed_orders",
        "floor",
        "raise_floor",
    )
    assert [name for name in bad if not _offends(name, forbidden)] == []
    good = ("lookup", "lifetime", "in_order", "order_by", "message_floor", "lively", "outstanding", "notebook")
    assert [name for name in good if _offends(name, forbidden)] == []


def test_names_use_the_words_of_the_glossary() -> None:
    """No name has a word that the glossary forbids."""
    forbidden = _forbidden()
    offences = [
        f"{name_of(path)}:{line} {name}" for path in _FILES for line, name in _names(path) if _offends(name, forbidden)
    ]
    assert offences == []
