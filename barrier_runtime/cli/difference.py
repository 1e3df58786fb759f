"""Differences between two snapshots of a run: graph, states, channels. Runs no code of the user.

`difference` returns plain data. `difference_tables` limits the data to what fits a screen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich.text import Text

from cutline.barrier_runtime.cli.formatting import cell, numbers, plain, plain_table
from cutline.barrier_runtime.cli.records import counts, summary
from cutline.barrier_runtime.cli.state_difference import StateComparison
from cutline.snapshot.drawing.labels import duration_text, size_text
from cutline.snapshot.stored.backend import StateBackend
from cutline.snapshot.stored.certificate import SubtaskRecord
from cutline.snapshot.stored.run_store import RunStore
from cutline.snapshot.stored.snapshot import Snapshot
from cutline.snapshot.stored.topology_record import topology_of_record


def difference(backend: StateBackend, before: Snapshot, after: Snapshot, *, reads_all: bool) -> dict[str, Any]:
    """Compare two snapshots of a run, and return the differences as plain data.

    Parameters
    ----------
    backend : StateBackend
        The backend that stores both snapshots.
    before, after : Snapshot
        Two snapshots of the same run.
    reads_all : bool
        Whether to read states of more than `READ_BYTES_MAX` bytes too.

    Raises
    ------
    SnapshotCorrupt
        if a compared part is damaged.
    """
    comparison = StateComparison(RunStore(backend, before.run).read_part, reads_all=reads_all)
    return {
        "run": before.run,
        "before": summary(before),
        "after": summary(after),
        "seconds": after.timestamp - before.timestamp,
        "graph": _graph_changes(before, after),
        "subtasks": _subtasks(comparison, before, after),
        "channels": _channels(before, after),
    }


def _subtasks(comparison: StateComparison, before: Snapshot, after: Snapshot) -> list[dict[str, Any]]:
    old = {record.subtask: record for record in before.manifest.records}
    new = {record.subtask: record for record in after.manifest.records}
    return [
        {
            "subtask": str(subtask),
            "before": _side(old.get(subtask)),
            "after": _side(new.get(subtask)),
            **comparison.of(old.get(subtask), new.get(subtask)).as_record(),
        }
        for subtask in dict.fromkeys([*old, *new])
    ]


def _side(record: SubtaskRecord | None) -> dict[str, Any] | None:
    return None if record is None else {"state_bytes": record.state_size, "ended": record.status.ended}


def _graph_changes(before: Snapshot, after: Snapshot) -> list[str]:
    old, new = (topology_of_record(each.manifest.topology) for each in (before, after))
    nodes = (
        {node.name: _facts(f"parallelism {node.parallelism}", node.class_name) for node in each.nodes}
        for each in (old, new)
    )
    edges = (
        {str(edge): _facts(edge.partitioning.value, edge.key, str(edge.alignment)) for edge in each.edges}
        for each in (old, new)
    )
    return [*_described("node", *nodes), *_described("edge", *edges)]


def _facts(*facts: object) -> str:
    return ", ".join(str(fact) for fact in facts if fact is not None)


def _described(kind: str, before: dict[str, str], after: dict[str, str]) -> list[str]:
    lines = [f"{kind} {name} is gone" for name in before if name not in after]
    lines += [f"{kind} {name} is new: {facts}" for name, facts in after.items() if name not in before]
    both = [name for name in before if name in after and before[name] != after[name]]
    return lines + [f"{kind} {name}: {before[name]} -> {after[name]}" for name in both]


def _channels(before: Snapshot, after: Snapshot) -> list[dict[str, Any]]:
    old, new = counts(before), counts(after)
    return [
        {
            "source": str(channel.source),
            "target": str(channel.target),
            "before": _progress(old.get(channel)),
            "after": _progress(new.get(channel)),
        }
        for channel in dict.fromkeys([*old, *new])
    ]


def _progress(of: tuple[int, int] | None) -> dict[str, int] | None:
    return None if of is None else {"sent": of[0], "processed": of[1], "in_flight": of[0] - of[1]}


# ---------------------------------------------------------------- tables

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
