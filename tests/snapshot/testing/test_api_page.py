"""docs/API.md: the code of "Messages in lists" runs as it stands there, and computes what the text says."""

from __future__ import annotations

import re
import sys
from types import ModuleType

import pytest

from cutline.snapshot.testing.trial import Judge, Trial
from cutline.testing import Simulator
from tests.run_size import scaled
from tests.source_files import ROOT


def test_messages_in_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node sends each new count, and is exact after any fault."""
    _, _, section = (ROOT / "docs/API.md").read_text().partition("\n## Messages in lists\n")
    [code] = re.findall(r"```python\n(.*?)```", section.partition("\n## ")[0], re.DOTALL)
    demand = Trial.demand

    def fewer(self: Trial, judge: Judge, *, faults: int, examples: int) -> None:
        demand(self, judge, faults=faults, examples=scaled(examples // 4))

    monkeypatch.setattr(Trial, "demand", fewer)
    module = ModuleType("api_page")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(code, vars(module))
    output = Simulator(module.graph, seed=1).run().output("out")
    assert sorted(output) == [("be", 1), ("be", 2), ("not", 1), ("or", 1), ("to", 1), ("to", 2)]
