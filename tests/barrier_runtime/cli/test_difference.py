"""Differences between two snapshots on a screen: which are shown, and what is said of the others."""

from __future__ import annotations

from typing import Any

import pytest
from rich.table import Table
from rich.text import Text

from cutline.barrier_runtime.cli.difference import ROWS_MAX, difference_tables


def record(count: int) -> dict[str, Any]:
    """What is compared: so many states, all of which are new in the later snapshot."""
    new = {"comparison": "added", "why": None, "before": None, "after": {"state_bytes": 8}}
    states: list[dict[str, Any]] = [
        {**new, "subtask": f"n[{at}]", "changes": [], "has_more_changes": False} for at in range(count)
    ]
    snapshot = {"id": 1, "incarnation": 1, "size_bytes": 8}
    return {
        "run": "orders", "seconds": 1.0, "before": snapshot, "after": {**snapshot, "id": 2}, "graph": [],
        "subtasks": states, "channels": [],
    }  # fmt: skip


@pytest.mark.parametrize("more", [0, 3])
def test_a_long_table_says_how_much_is_left_out(more: int) -> None:
    """A table of exactly the most rows is whole, and nothing is said of it."""
    shown = list(difference_tables(record(ROWS_MAX + more)))
    [table] = [each for each in shown if isinstance(each, Table)]
    assert table.row_count == ROWS_MAX
    assert [each for each in shown if "more" in str(each)] == [f"and {more} more, see --json"] * bool(more)


@pytest.mark.parametrize(("later", "said"), [(1, "no rollback between them"), (3, "incarnation 1 -> 3")])
def test_a_rollback_is_told(later: int, said: str) -> None:
    """Two snapshots of one incarnation have no rollback between them, and others name both incarnations."""
    of_two = record(0)
    of_two["after"]["incarnation"] = later
    assert list(difference_tables(of_two))[1] == f"8 B -> 8 B, {said}"


def test_a_state_that_is_new_is_green() -> None:
    """As lines that are added are in other tools."""
    [table] = [each for each in difference_tables(record(1)) if isinstance(each, Table)]
    [cell] = table.columns[-1].cells
    assert isinstance(cell, Text)
    assert (cell.plain, cell.style) == ("added", "green")
