"""docs/AGGREGATES.md: the code of "Monoids" runs as it stands there, and fails as it says."""

from __future__ import annotations

import re
import sys
from types import ModuleType

import pytest

from cutline.testing import CheckFailed
from tests.source_files import ROOT


def test_the_section_on_monoids_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block runs behind those before it, and the last one fails with the text behind it."""
    _, _, section = (ROOT / "docs/AGGREGATES.md").read_text().partition("\n## Monoids\n")
    section = section.partition("\n## ")[0]
    *blocks, mistake = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    [failure] = re.findall(r"```text\n(.*?)```", section, re.DOTALL)
    module = ModuleType("monoids_page")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for code in blocks:
        exec(code, vars(module))
    with pytest.raises(CheckFailed) as failed:
        exec(mistake, vars(module))
    assert f"{failed.value}\n" == failure


def test_the_mean_of_the_page_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    """The monoid that the page shows gives the mean, and None for no values."""
    page = (ROOT / "docs/AGGREGATES.md").read_text()
    [code] = re.findall(r"```python\n(from cutline import Monoid\n.*?)```", page, re.DOTALL)
    module = ModuleType("mean_page")
    exec(code, vars(module))
    mean = module.Mean()
    accumulator = mean.accumulator()
    accumulator.addAll(["a", "a", "b"], [1, 2, 7])
    assert {key: mean.result(state) for key, state in accumulator.drain().items()} == {"a": 1.5, "b": 7}
    assert mean.result(mean.zero()) is None
