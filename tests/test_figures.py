"""The figures of a run: they add up, their work may grow by a fifth, and small changes of seconds are not kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import figures
from tests.figures import Figures, kept_seconds
from tests.tiers import Tier
from tests.work import Work

_FILE = "tests/snapshot/test_ends.py"


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The kept work, which is that of no run at first."""
    monkeypatch.setattr(figures, "_WORK", tmp_path / "work.json")
    monkeypatch.setattr(figures, "_SECONDS", tmp_path / "seconds.json")
    return tmp_path / "work.json"


def _figures(steps: int = 100, seconds: float = 1.0, file: str = _FILE) -> Figures:
    made = Figures()
    made.work[Tier.UNIT].add(Work(items=1, steps=steps))
    made.seconds[Tier.UNIT][file] += seconds
    made.tests[f"{file}::test_{steps}"] += seconds
    return made


def test_figures_of_two_processes_add_up(tmp_path: Path) -> None:
    """Whatever one process writes, another one adds."""
    total = _figures(1, 2.0)
    _figures(2, 3.0, "tests/snapshot/test_node.py").write(tmp_path / "figures")
    total.add(tmp_path / "figures")
    assert total.work[Tier.UNIT] == Work(items=2, steps=3)
    assert sum(total.seconds[Tier.UNIT].values()) == 5.0
    assert [line.split()[-1] for line in total.lines()][-2:] == [
        "tests/snapshot/test_node.py::test_2",
        f"{_FILE}::test_1",
    ]


def test_work_may_grow_by_a_fifth() -> None:
    """More fails with the numbers, until it is kept. Work of which nothing is kept is free."""
    assert _figures(100).grown(Tier.UNIT) == []
    _figures(100).keep_work(Tier.UNIT)
    assert _figures(120).grown(Tier.UNIT) == []
    (sentence,) = _figures(121).grown(Tier.UNIT)
    assert sentence.startswith("unit tests: steps grew from 100 to 121")
    _figures(121).keep_work(Tier.UNIT)
    assert _figures(121).grown(Tier.UNIT) == []


def test_seconds_of_live_tests_may_grow_by_a_half() -> None:
    """Machines differ. Counts of live tests are free."""
    for seconds, grows in ((100.0, False), (150.0, False), (151.0, True)):
        made = Figures()
        made.work[Tier.LIVE].add(Work(items=int(seconds)))
        made.seconds[Tier.LIVE][_FILE] = seconds
        assert bool(made.grown(Tier.LIVE)) is grows
        if seconds == 100.0:
            made.keep_work(Tier.LIVE)
    assert "live tests: seconds grew from 100 to 151, more than a half" in made.grown(Tier.LIVE)[0]


def test_what_was_not_done_at_all_may_not_begin(kept: Path) -> None:
    """A fifth of no process is no process."""
    _figures().keep_work(Tier.UNIT)
    assert json.loads(kept.read_text())["unit"] == {"items": 1, "examples": 0, "steps": 100, "processes": 0, "syncs": 0}
    grown = _figures()
    grown.work[Tier.UNIT].processes = 1
    assert grown.grown(Tier.UNIT) != []


def test_small_changes_of_seconds_are_not_kept() -> None:
    """The diff of the kept file is small. A file that is gone is forgotten."""
    for measured, expected in ((1.0, 1.0), (1.29, 1.0), (1.31, 1.31), (0.2, 0.2), (0.29, 0.2)):
        _figures(seconds=measured).keep_seconds(Tier.UNIT)
        assert kept_seconds(Tier.UNIT) == {_FILE: expected}
    _figures(file="tests/snapshot/test_gone.py").keep_seconds(Tier.UNIT)
    assert kept_seconds(Tier.UNIT) == {_FILE: 0.2}
