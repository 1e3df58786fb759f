"""docs/TESTING.md: its code runs as it stands there, and fails as it says."""

from __future__ import annotations

import re
import sys
import unittest
from collections.abc import Iterator
from types import ModuleType
from typing import NamedTuple

import pytest

from cutline.snapshot.testing.trial import Judge, Trial
from cutline.testing import CheckFailed
from tests.run_size import scaled
from tests.source_files import ROOT


class Block(NamedTuple):
    """Code of the page, and the failure that it says comes of it; "": none."""

    code: str
    failure: str


def blocks() -> Iterator[Block]:
    """All code of the page, in order."""
    page = (ROOT / "docs/TESTING.md").read_text()
    fences = re.findall(r"```(python|text)\n(.*?)```", page, re.DOTALL)
    for (kind, code), (next_kind, following) in zip(fences, [*fences[1:], ("", "")], strict=True):
        if kind == "python":
            yield Block(code, following if next_kind == "text" else "")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_page_is_true(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block runs behind those before it; each of the five mistakes is told in the page's words."""
    demand = Trial.demand

    def fewer(self: Trial, judge: Judge, *, faults: int, examples: int) -> None:
        demand(self, judge, faults=faults, examples=scaled(examples))

    module = ModuleType("testing_page")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    failures = 0
    for block in blocks():
        if not block.failure:
            with monkeypatch.context() as patch:
                patch.setattr(Trial, "demand", fewer)
                exec(block.code, vars(module))
            continue
        with pytest.raises(CheckFailed) as failed:
            exec(block.code, vars(module))
        described = re.sub(r"'[0-9a-f-]{36}'", "'…'", str(failed.value))
        assert described.startswith(block.failure.rstrip()), described
        failures += 1
    assert failures == 5
    tests = [value for name, value in vars(module).items() if name.startswith("test_")]
    assert len(tests) == 4
    monkeypatch.setattr(Trial, "demand", fewer)
    for test in tests:
        test()
    outcome = unittest.TestResult()
    module.TestBank("runTest").run(outcome)
    assert outcome.wasSuccessful(), outcome.failures
