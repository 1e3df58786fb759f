"""Citations of PROTOCOL: each names a rule that is there, and where it carries the rule's bold words, the right ones.

A citation is ``PROTOCOL 3.4``, a list or a range of such numbers, or the number of a section. In parentheses it may
carry the rule's bold words: ``(PROTOCOL 3.4, minimum id)``. Inside PROTOCOL a citation is the number alone.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.source_files import PACKAGES, ROOT, name_of, python_files

_PAGE = ROOT / "docs/PROTOCOL.md"

_NUMBER = r"\d+(?:\.\d+)?(?!\w)"

#: one or several numbers of rules or sections
_NUMBERS = rf"{_NUMBER}(?:(?:, and |, | and | to ){_NUMBER})*"

_CITATION = re.compile(rf"PROTOCOL (?:sections? |rules? )?(?P<numbers>{_NUMBERS})(?P<word>, [^().:;]+?(?=\)))?")

#: citations of rules in PROTOCOL itself, which has no other numbers with a point
_OWN_CITATION = re.compile(r"(?P<numbers>\b\d+\.\d+\b)")

#: names of mutants, which begin with the rule that is taken away
_MUTANT = re.compile(r"(?:Tooth|Mutant)\(\s*\"(?P<numbers>\d+\.\d+) ")

#: beginning of a line of a comment, or of a docstring or a page
_LINE_BEGIN = re.compile(r"\n *(?:#:? )? *")


class _Rules(NamedTuple):
    """The rules of PROTOCOL."""

    #: {"3.4": "minimum id"}; "" for a rule without bold words
    words: dict[str, str]
    sections: frozenset[str]

    def has(self, number: str) -> bool:
        return number in (self.words if "." in number else self.sections)


def _rules(page: str) -> _Rules:
    words: dict[str, str] = {}
    section = ""
    for line in page.splitlines():
        if heading := re.match(r"## (\d+)\. ", line):
            section = heading[1]
        elif section and (rule := re.match(r"(\d+)\. (?:\*\*(.+?)\*\*)?", line)):
            words[f"{section}.{rule[1]}"] = (rule[2] or "").strip(".").lower()
    return _Rules(words, frozenset(number.partition(".")[0] for number in words))


_RULES = _rules(_PAGE.read_text())


def _texts() -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each file that may cite a rule, without the ends of its lines."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "tests").rglob("*.toml"))]
    for path in [*python_files(*PACKAGES, "tests", "benchmarks"), *pages]:
        if path != Path(__file__):
            yield name_of(path), _LINE_BEGIN.sub(" ", path.read_text())
    for path in sorted((ROOT / "demos").rglob("*.ipynb")):
        cells: list[dict[str, Any]] = json.loads(path.read_text())["cells"]
        yield name_of(path), _LINE_BEGIN.sub(" ", "\n".join("".join(cell["source"]) for cell in cells))


def _problems(text: str, citation: re.Pattern[str] = _CITATION) -> list[str]:
    """Return the citations of a text that name no rule, or carry other words than the rule."""
    found = []
    for match in citation.finditer(text):
        numbers = re.findall(_NUMBER, match["numbers"])
        word = match.groupdict().get("word")
        is_right = all(map(_RULES.has, numbers))
        if is_right and word is not None:
            is_right = len(numbers) == 1 and _RULES.words.get(numbers[0]) == word.removeprefix(", ")
        if not is_right:
            found.append(match[0])
    return found


def test_rules_are_read() -> None:
    """Numbers and bold words of the rules are known. All rules have such words but the steps of section 8."""
    assert {"1", "14"} <= _RULES.sections
    assert _RULES.words["3.4"] == "minimum id" and _RULES.words["6.8"] == "reshaped edges"
    assert [number for number, words in _RULES.words.items() if not words] == ["8.1", "8.2", "8.3"]


def test_wrong_citations_are_found() -> None:
    """A rule that is not there, and words of another rule, are named."""
    good = "PROTOCOL 3.4. (PROTOCOL 3.4, minimum id) (PROTOCOL 1, 3 and 4) (PROTOCOL 6.8 to 6.11) PROTOCOL 3.1, as said"
    assert _problems(good) == []
    bad = (
        "PROTOCOL 3.40 (PROTOCOL 3.4, launch token) (PROTOCOL 6.8 to 6.99) PROTOCOL 99 (PROTOCOL 3.3, 3.4, minimum id)"
    )
    assert len(_problems(bad)) == 5


def test_citations_are_right() -> None:
    """Each citation in code and pages names a rule that is there, by its number and by its words."""
    texts = dict(_texts())
    assert sum(len(_CITATION.findall(text)) for text in texts.values()) > 300
    assert {name: found for name, text in texts.items() if (found := _problems(text))} == {}


def test_mutants_have_rules() -> None:
    """Each mutant that is named by a rule takes a rule away that is there."""
    texts = dict(_texts())
    assert sum(len(_MUTANT.findall(text)) for text in texts.values()) > 100
    assert {name: found for name, text in texts.items() if (found := _problems(text, _MUTANT))} == {}


def test_protocol_cites_its_own_rules() -> None:
    """Rules that other rules of the page name are there."""
    text = _LINE_BEGIN.sub(" ", _PAGE.read_text())
    assert len(_OWN_CITATION.findall(text)) > 20
    assert _problems(text, _OWN_CITATION) == []
