"""The screen of ``cutline top``, made only from the document of a run's page.

With more rows than lines, a table shows its busiest rows and the number of hidden rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Column, Table
from rich.text import Text

from cutline.barrier_runtime.cli.formatting import age_text, cell, numbers, plain_table, rate_text
from cutline.snapshot.drawing.labels import duration_text, size_text
from cutline.snapshot.stored.recovery_report import RECOVERY_REPORT

#: columns of the narrowest terminal that shows all columns of the tables
WIDE = 110

#: snapshots that are shown at most, invariants, and stores of aggregates
SNAPSHOTS_MAX, INVARIANTS_MAX, STORES_MAX = 6, 4, 4

#: logs that subtasks were sent again, which are shown at most
_RECOVERED_MAX = 4

#: lines that are always shown: two of the head, heading and space of three tables, restarts, two of the foot, a margin
_FIXED_LINES = 12

#: shares of busy or back-pressured time from which a row is marked as busy, and as a bottleneck
_BUSY, _FULL = 0.5, 0.8

#: characters of a bar
_BAR = 10

_PHASES = ("trigger", "align", "capture", "upload", "publish")
_STATES = {"published": "green", "pending": "cyan", "aborted": "yellow"}

Record = Mapping[str, Any]


def top_view(document: Record, width: int, height: int | None, note: str = "") -> RenderableType:
    """Return the screen.

    Parameters
    ----------
    document : mapping
        The document that ``GET /api/runs/NAME`` returns.
    width, height : int
        Columns and lines of the terminal. With a height of None all rows are shown.
    note : str
        Text for the bottom of the screen.
    """
    nodes = [{"name": name, **node} for name, node in document["nodes"].items()]
    snapshots = document["snapshotReports"][: -SNAPSHOTS_MAX - 1 : -1]
    verdicts, recovered = [*_stores(document["mode"]), *_invariants(document)], recovery_lines(document["mode"])
    lines = [len(nodes), len(document["edges"]), len(snapshots)]
    if height is not None:
        lines = share(max(0, height - _FIXED_LINES - len(verdicts) - len(recovered)), lines)
    is_wide = width >= WIDE
    return Group(
        *_head(document),
        _node_table(_fitting(nodes, lines[0], "busy")),
        "",
        _edge_table(_fitting(document["edges"], lines[1], "backPressure"), is_wide),
        "",
        _snapshot_table(_fitting(snapshots, lines[2], ""), document["timestamp"], is_wide),
        "",
        *verdicts,
        _restarts(document),
        *_foot(document, note, has_keys=height is not None),
    )


def share(lines: int, wanted: Sequence[int]) -> list[int]:
    """Return the number of lines for each table. Tables share `lines` equally, up to their wanted numbers."""
    given = [0] * len(wanted)
    for _ in range(min(lines, sum(wanted))):
        hungry = [at for at, want in enumerate(wanted) if given[at] < want]
        given[min(hungry, key=lambda at: given[at])] += 1
    return given


def _fitting(rows: Sequence[Record], lines: int, weight: str) -> tuple[Sequence[Record], int]:
    """Return the rows that fit, and the number of hidden rows. When rows are hidden, the heaviest come first."""
    if len(rows) <= lines:
        return rows, 0
    shown = max(0, lines - 1)  # because the last line shows the number of hidden rows
    chosen = sorted(rows, key=lambda row: -row[weight]) if weight else rows
    return chosen[:shown], len(rows) - shown


# ---------------------------------------------------------------- head and foot


def _mode_facts(mode: Record) -> str:
    if "stores" in mode:
        behind = "" if mode["itemsBehind"] is None else f", {mode['itemsBehind']:,} items behind"
        return f", mode {mode['name']}{behind}"
    if nodes := mode.get("nodes"):
        oldest, log = (
            max(each["recordAge"] for each in nodes.values()),
            sum(each["logBytes"] for each in nodes.values()),
        )
        return f", mode {mode['name']}, oldest record {age_text(oldest)}, logs {size_text(log)}"
    if "logBytes" not in mode:
        return ""
    facts = f", mode {mode['name']}, log {size_text(mode['logBytes'])}"
    if mode["versions"]:
        facts += f", versions {size_text(mode['versionBytes'])}"
    return f"{facts}, {mode['stepsLeft']} steps to repeat" if mode["stepsLeft"] else facts


def _head(document: Record) -> Iterator[RenderableType]:
    phase = document["phase"] if document["isActive"] else document["outcome"] or "ended"
    style = {"running": "green", "finished": "green", "failed": "red"}.get(phase, "yellow")
    facts = f"  {age_text(document['timestamp'] - document['startedAt'])}, incarnation {document['incarnation']}"
    facts += _mode_facts(document["mode"])
    line = cell(document["name"], "bold")
    yield line.append_text(cell(f"  {phase}", style)).append(f"{facts}, {document['workers']} workers")
    into, out_of = (rate_text(document[key]) for key in ("inPerSecond", "outPerSecond"))
    yield cell(f"in {into}/s   out {out_of}/s   snapshots {document['published']}, aborted {document['aborted']}")
    yield from map(cell, recovery_lines(document["mode"]))
    yield ""


def _stores(mode: Record) -> Iterator[Text]:
    """Yield a line for each store of an aggregate, those that are away first."""
    found = sorted(mode.get("stores", {}).items(), key=lambda item: not item[1]["error"])
    for name, store in found[:STORES_MAX]:
        held = size_text(store["openBytes"] + store["cutBytes"])
        text = f"store of {name}: {store['openKeys'] + store['cutKeys']:,} keys wait ({held})"
        text += f", {store['cellsLeft']:,} cells to write" if store["cellsLeft"] else ""
        yield cell(f"{text}, last error: {store['error']}", "bold red") if store["error"] else cell(text)
    if len(found) > STORES_MAX:
        yield cell(f"and {len(found) - STORES_MAX} stores more", "dim")


def recovery_lines(mode: Record) -> list[str]:
    """Return what subtasks were sent again at the last recovery from records, the most first."""
    if not mode.get("recovery"):
        return []
    subtasks = RECOVERY_REPORT.read(mode["recovery"]).subtasks
    logs = sorted(((log.count, each, log) for each in subtasks for log in each.logs), key=lambda found: -found[0])
    return [
        f"recovered {each.subtask}: {log.relation.value} {log.sender}, {count:,} messages again"
        for count, each, log in logs[:_RECOVERED_MAX]
        if count
    ]


def _invariants(document: Record) -> Iterator[Text]:
    """Yield a line for each invariant, violated and unreadable invariants first."""
    found = sorted(
        document["invariants"].items(), key=lambda item: not (item[1]["violations"] or item[1]["unreadable"])
    )
    for name, verdict in found[:INVARIANTS_MAX]:
        if verdict["violations"]:
            last, count = verdict["violations"][-1], verdict["violationCount"]
            yield cell(f"invariant {name} is violated in {count} snapshots, last in {last}", "bold red")
        elif verdict["unreadable"]:
            last, count = verdict["unreadable"][-1], verdict["unreadableCount"]
            yield cell(f"invariant {name}: {count} snapshots are not judged, last {last}", "bold red")
        elif verdict["holds"] is None:
            yield cell(f"invariant {name} is not judged yet", "dim")
        else:
            yield cell(f"invariant {name} holds in snapshot {verdict['snapshot']}", "green")
    if len(found) > INVARIANTS_MAX:
        yield cell(f"and {len(found) - INVARIANTS_MAX} invariants more", "dim")


def _restarts(document: Record) -> Text:
    if not document["restarts"]:
        return cell("no restarts", "dim")
    last = document["restarts"][-1]
    age = age_text(document["timestamp"] - last["timestamp"])
    return cell(f"restarts {document['restartCount']}, the last {age} ago: {last['reason']}", "yellow")


def _foot(document: Record, note: str, *, has_keys: bool) -> Iterator[Text]:
    commands = [each for each in document["commands"] if each["kind"] == "snapshot" or each["state"] == "waiting"]
    newest = commands[-1] if commands else None
    if not document["isActive"]:
        how = document["outcome"] or "ended"
        yield cell(f"run {document['name']} {how}: {document['reason'] or 'no reason is known'}", "bold")
    elif note:
        yield cell(note, "bold red")
    elif newest is not None:
        yield cell(newest["text"], {"waiting": "cyan", "done": "green"}.get(newest["state"], "bold red"))
    if has_keys:
        yield cell("q quit" + ("   s take a snapshot" if document["isActive"] else ""), "dim")


# ---------------------------------------------------------------- tables


def _node_table(rows: tuple[Sequence[Record], int]) -> Table:
    table = plain_table(Column("node"), *numbers("ended", "in/s", "out/s", "busy"), Column(""))
    for each in rows[0]:
        rates = (rate_text(each[key]) for key in ("processedPerSecond", "sentPerSecond"))
        table.add_row(cell(each["name"]), f"{each['ended']}/{each['parallelism']}", *rates, *_bar(each["busy"]))
    return _with_rest(table, rows[1])


def _edge_table(rows: tuple[Sequence[Record], int], is_wide: bool) -> Table:
    more = ("bytes/s", "messages") if is_wide else ()
    table = plain_table(Column("edge"), *numbers("messages/s", *more, "queued", "back-pressure"), Column(""))
    for each in rows[0]:
        extra = (f"{size_text(round(each['bytesPerSecond']))}", f"{each['processed']:,}") if is_wide else ()
        name = cell(f"{each['source']} -> {each['target']}")
        rate, queued = rate_text(each["messagesPerSecond"]), f"{each['queued']:,}"
        table.add_row(name, rate, *extra, queued, *_bar(each["backPressure"]))
    return _with_rest(table, rows[1])


def _snapshot_table(rows: tuple[Sequence[Record], int], now: float, is_wide: bool) -> Table:
    more = _PHASES if is_wide else ()
    table = plain_table(
        *(Column("snapshot"), Column("state"), *numbers("age", "took", *more, "size", "in flight")), Column("slowest")
    )
    for each in rows[0]:
        table.add_row(
            *(str(each["id"]), cell(each["state"], _STATES.get(each["state"], ""))),
            *(age_text(now - each["timestamp"]), duration_text(each["durationMs"] / 1000)),
            *(_phase_text(each[f"{phase}Ms"]) for phase in more),
            *(size_text(each["bytes"]), f"{each['channelMessages']:,}", cell(_where(each))),
        )
    return _with_rest(table, rows[1])


def _with_rest(table: Table, left_out: int) -> Table:
    if left_out:
        table.add_row(cell(f"and {left_out} more", "dim"))
    return table


def _bar(ratio: float) -> tuple[Text, ProgressBar]:
    style = "red" if ratio >= _FULL else "yellow" if ratio >= _BUSY else "green"
    bar = ProgressBar(total=1.0, completed=ratio, width=_BAR, complete_style=style, finished_style=style)
    return Text(f"{ratio:.0%}", style if ratio >= _BUSY else ""), bar


def _phase_text(milliseconds: float | None) -> str:
    return "" if milliseconds is None else duration_text(milliseconds / 1000)


def _where(report: Record) -> str:
    """Return the slowest subtask of a snapshot, its progress while pending, or the reason of its abort."""
    if report["state"] == "aborted":
        return str(report["reason"])
    waits = f"{report['acknowledged']} of {report['subtasks']}" if report["state"] == "pending" else ""
    return f"{report['slowest'] or waits}{', pinned' if report['pinned'] else ''}"
