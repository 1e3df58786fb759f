"""Tables of the differences between two snapshots, limited to what fits a screen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.text import Text

from cutline.barrier_runtime.cli.formatting import cell, numbers, plain, plain_table
from cutline.snapshot.drawing.labels import duration_text, size_text

#: rows of a table that are shown; the JSON has all rows
ROWS_MAX = 40
#: changes of one state that are shown; the JSON has more
CHANGES_SHOWN_MAX = 5

_STYLES = {"changed": "yellow", "added": "green", "removed": "red", "unknown": "dim"}


def difference_tables(record: Mapping[str, Any]) -> Iterator[Any]:
    """Yield texts and tables, in the order in which they are printed."""
    before, after = record["before"], record["after"]
    later = f"{duration_text(abs(record['seconds']))} {'later' if record['seconds'] >= 0 else 'earlier'}"
    yield f"run {record['run']}: snapshot {before['id']} -> {after['id']}, {later}"
    yield f"{size_text(before['size_bytes'])} -> {size_text(after['size_bytes'])}{_incarnations(before, after)}"
    yield from (f"graph: {line}" for line in record["graph"] or ["the same"])
    yield ""
    yield from _states(record["subtasks"])
    yield ""
    yield from _edges(record["channels"])


def _incarnations(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    if before["incarnation"] == after["incarnation"]:
        return ", no rollback between them"
    return f", incarnation {before['incarnation']} -> {after['incarnation']}"


def _states(subtasks: list[dict[str, Any]]) -> Iterator[Any]:
    rows = [each for each in subtasks if each["comparison"] != "equal"]
    if rows:
        table = plain_table("subtask", *numbers("before", "after"), "state")
        for each in rows[:ROWS_MAX]:
            sizes = ("" if each[side] is None else size_text(each[side]["state_bytes"]) for side in ("before", "after"))
            table.add_row(cell(each["subtask"]), *sizes, _what_changed(each))
        yield table
    if len(rows) > ROWS_MAX:
        yield f"and {len(rows) - ROWS_MAX} more, see --json"
    if len(rows) < len(subtasks):
        yield f"{len(subtasks) - len(rows)} of {len(subtasks)} states are equal"


def _what_changed(each: Mapping[str, Any]) -> Text:
    text = cell(each["comparison"], _STYLES[each["comparison"]])
    if each["why"]:
        text.append(f" ({each['why']})", style="dim")
    shown = each["changes"][:CHANGES_SHOWN_MAX]
    for change in shown:
        text.append(f"\n{plain(_change(change))}", style="default")
    if each["has_more_changes"] or len(shown) < len(each["changes"]):
        text.append("\n...", style="dim")
    return text


def _change(change: Mapping[str, Any]) -> str:
    if change["before"] is None:
        return f"{change['path']}: new, {change['after']}"
    if change["after"] is None:
        return f"{change['path']}: gone, was {change['before']}"
    return f"{change['path']}: {change['before']} -> {change['after']}"


def _edges(channels: list[dict[str, Any]]) -> Iterator[Any]:
    """Yield the table of edges, with channels summed by edge, because a graph has far more channels than edges."""
    edges: dict[str, list[dict[str, Any]]] = {}
    for each in channels:
        edges.setdefault(f"{_node(each['source'])} -> {_node(each['target'])}", []).append(each)
    if not edges:
        return
    table = plain_table("edge", *numbers("sent", "processed", "in flight"))
    for name, of in [*edges.items()][:ROWS_MAX]:
        sums = {field: [_sum(of, side, field) for side in ("before", "after")] for field in _FIELDS}
        waiting = " -> ".join(f"{count:,}" for count in sums["in_flight"])
        table.add_row(cell(name), *(f"{new - old:+,}" for old, new in (sums["sent"], sums["processed"])), waiting)
    yield table
    if len(edges) > ROWS_MAX:
        yield f"and {len(edges) - ROWS_MAX} more, see --json"


_FIELDS = ("sent", "processed", "in_flight")


def _sum(channels: Iterable[Mapping[str, Any]], side: str, field: str) -> int:
    return sum(each[side][field] for each in channels if each[side] is not None)


def _node(subtask: str) -> str:
    return subtask.rpartition("[")[0]
