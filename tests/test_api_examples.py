"""docs/API.md: each example runs as it stands there, and each public name and default is in a section of its class."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

import cutline.testing
from tests.public_api import EXPECTED
from tests.source_files import ROOT

#: the page, with numbers as Python shows them
_PAGE = re.sub(r"(?<=\d)_(?=\d{3})", "", (ROOT / "docs/API.md").read_text())

#: first line of the examples that need a SparkSession
_ON_SPARK = "# on Spark\n"

#: schedules of a search; the tests of the demos and of TESTING search longer
_EXAMPLES = 1

#: most characters of a cell of a table
_CELL_MAX = 200

#: Classes that Cutline alone makes, so that their arguments are not described.
_MADE_BY_CUTLINE = ("Run", "Snapshot", "Stream", "History")


class Example(NamedTuple):
    """Code of the page, below a heading."""

    heading: str
    code: str


def _sections() -> Iterator[tuple[str, str]]:
    """Yield each heading and the text below it, with the text of the headings below it."""
    parts = re.split(r"^(##+) (.*)\n", _PAGE, flags=re.MULTILINE)[1:]
    found = list(zip(parts[::3], parts[1::3], parts[2::3], strict=True))
    for place, (marks, heading, text) in enumerate(found):
        below = []
        for other_marks, other, other_text in found[place + 1 :]:
            if len(other_marks) <= len(marks):
                break
            below.append(f"{other}\n{other_text}")
        yield heading, "".join((text, *below))


_SECTIONS = list(_sections())
_ALL = list(
    {
        code: Example(heading, code)  # the lowest heading, because a section has the text of those below it
        for heading, text in _SECTIONS
        for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    }.values()
)
_RUN = [each for each in _ALL if not each.code.startswith(_ON_SPARK)]
_SHOWN = [each for each in _ALL if each.code.startswith(_ON_SPARK)]


def _name(example: Example) -> str:
    return re.sub(r"\W+", " ", example.heading).strip()


@pytest.mark.parametrize("example", _RUN, ids=_name)
def test_an_example_runs(example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An example runs alone, in an empty folder. Only the number of schedules of a search is another one."""
    monkeypatch.chdir(tmp_path)
    module = ModuleType("api_example")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    search = cutline.testing.checkRecovery

    def fewer(graph: Any) -> None:
        search(graph, examples=_EXAMPLES)

    monkeypatch.setattr("cutline.testing.checkRecovery", fewer, raising=False)
    exec(example.code, vars(module))


@pytest.mark.parametrize("example", _SHOWN, ids=_name)
def test_an_example_on_spark_is_python(example: Example) -> None:
    """An example that needs a session can be compiled, and imports what is there."""
    tree = ast.parse(example.code)
    imports = [
        node for node in tree.body if isinstance(node, ast.ImportFrom) and str(node.module).startswith("cutline")
    ]
    assert imports
    exec(compile(ast.Module(list(imports), []), "docs/API.md", "exec"), {})


def test_each_public_name_is_on_the_page() -> None:
    """A member is named in a section whose heading has its class; other names anywhere. Defaults are as in the code."""
    missing = [line for line in EXPECTED.read_text().splitlines() if not _is_described(line)]
    assert missing == []


def _is_described(line: str) -> bool:
    match = re.fullmatch(r"cutline(?:\.testing)?\.(?P<name>\w+)(?:\.(?P<member>\w+))?(?P<rest>.*)", line)
    assert match is not None, line
    name, member, rest = match["name"], match["member"], match["rest"]
    text = _text_on(name)
    if member is None and name in _MADE_BY_CUTLINE:
        return f"`{name}`" in _PAGE
    if rest.startswith("("):
        arguments = ast.parse(f"def f{rest}: ...".replace("<factory>", "None")).body[0]
        assert isinstance(arguments, ast.FunctionDef)
        return _has_word(text if member else _PAGE, member or name) and _has_defaults(text, arguments.args)
    return _has_word(text, member or name)


@cache
def _text_on(name: str) -> str:
    """Return the sections whose headings have a name, or the whole page."""
    return "".join(text for heading, text in _SECTIONS if f"`{name}`" in heading) or _PAGE


def _has_defaults(text: str, arguments: ast.arguments) -> bool:
    """Return whether a text has each default, as ``name=default`` or in a row of a table that begins with the name."""
    positional = arguments.args[len(arguments.args) - len(arguments.defaults) :]
    defaults = [*zip(positional, arguments.defaults, strict=True)]
    defaults += [
        (name, default) for name, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if default
    ]
    return all(_has_default(text, name.arg, _shown(default)) for name, default in defaults)


def _has_default(text: str, name: str, default: str) -> bool:
    row = rf"^\| `{name}` \| `?{re.escape(default)}`? \|"
    return f"{name}={default}" in text or re.search(row, text, re.MULTILINE) is not None


def _shown(default: ast.expr) -> str:
    """Return a default as the page writes it: text in double quotes, and objects without their own defaults."""
    if isinstance(default, ast.Call):
        return f"{ast.unparse(default.func)}()"
    return ast.unparse(default).replace("'", '"')


def _has_word(text: str, word: str) -> bool:
    return re.search(rf"(?<!\w){word}(?!\w)", text) is not None


def test_tables_can_be_read() -> None:
    """No cell of a table is a paragraph."""
    cells = [
        cell.strip() for line in _PAGE.splitlines() if line.startswith("| ") for cell in line.strip("|").split("|")
    ]
    long = [cell for cell in cells if len(cell) > _CELL_MAX and not cell.startswith("[")]
    assert long == []


def test_links_lead_to_headings() -> None:
    """Each link to a section of this page has a heading, by the rule by which GitHub names headings."""
    anchors = {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading, _ in _SECTIONS}
    assert set(re.findall(r"\]\(#([^)]+)\)", _PAGE)) <= anchors
