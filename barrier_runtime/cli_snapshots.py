"""``cutline snapshots``: what a backend holds, without a live run and without running any code of the user's.

Owns the tables and their JSON; the fields of the JSON are those of the records themselves.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from barrier_runtime.cli_progress import duration_text, size_text
from snapshot.channel.serialization import Codec
from snapshot.snapshot import Snapshot
from state_backends.base import StateBackend
from state_backends.store import RunStore, runs
from state_backends.verify import Findings, backend_of, verify_run

app = typer.Typer(no_args_is_help=True, help="List, show and verify stored snapshots.")

#: What is shown needs no pickle, so none is opened.
_CODEC = Codec(safe=True)

StoreOption = Annotated[str, typer.Argument(metavar="PATH", help="Folder or URL of the backend.")]
RunOption = Annotated[str | None, typer.Option("--run", help="Name of the run; default: all, or the only one.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command("list")
def list_snapshots(store: StoreOption, run: RunOption = None, as_json: JsonOption = False) -> None:
    """List the snapshots that can be restored, oldest first."""
    backend = open_backend(store)
    summaries = [
        summary(snapshot) for name in _runs(backend, run) for snapshot in RunStore(backend, name).read_snapshots(_CODEC)
    ]
    if as_json:
        typer.echo(json.dumps(summaries, indent=2))
        return
    table = Table("run", "id", "time", "size", "duration", "in flight", "", box=None)
    for each in summaries:
        notes = " ".join(word for word in ("pinned", "final") if each[word])
        table.add_row(each["run"], *_columns(each), notes)
    _print(table)


@app.command()
def show(
    store: StoreOption,
    snapshot_id: Annotated[int | None, typer.Argument(metavar="ID", help="Default: the newest.")] = None,
    run: RunOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one snapshot: the states of its subtasks, and what was in flight on its channels."""
    backend = open_backend(store)
    snapshot = _find(backend, _only_run(backend, run), snapshot_id)
    record = {**summary(snapshot), "subtasks": _subtasks(snapshot), "channels": _channels(snapshot)}
    if as_json:
        typer.echo(json.dumps(record, indent=2))
        return
    _print(f"{snapshot}  of {_time_text(snapshot.timestamp)}, {size_text(snapshot.size)}", markup=False)
    states = Table("subtask", "state", "ended", box=None)
    for each in record["subtasks"]:
        states.add_row(each["subtask"], size_text(each["state_bytes"]), "yes" if each["ended"] else "")
    links = Table("channel", "sent", "processed", "in flight", box=None)
    for each in record["channels"]:
        counts = [f"{each[field]:,}" for field in ("sent", "processed", "in_flight")]
        links.add_row(f"{each['source']} -> {each['target']}", *counts)
    _print(states, "", links)


@app.command()
def verify(store: StoreOption, run: RunOption = None, as_json: JsonOption = False) -> None:
    """Read every file and prove every byte; exit with 1, naming file and offset, if anything is damaged."""
    backend = open_backend(store)
    findings = [verify_run(backend, name) for name in ([run] if run else _runs(backend, None))]
    if as_json:
        typer.echo(json.dumps([asdict(found) for found in findings], indent=2))
    else:
        for found in findings:
            _print(_finding_text(found), markup=False)
    if any(found.problems for found in findings):
        raise typer.Exit(1)


def open_backend(url: str) -> StateBackend:
    """The backend at a URL or a path, which may be relative to the current folder."""
    try:
        return backend_of(url if "://" in url or url.startswith("file:") else str(Path(url).absolute()))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def summary(snapshot: Snapshot) -> dict[str, Any]:
    """One line of the list."""
    manifest = snapshot.manifest
    return {
        "run": snapshot.run,
        "id": snapshot.id,
        "timestamp": snapshot.timestamp,
        "size_bytes": snapshot.size,
        "duration_seconds": manifest.duration,
        "in_flight": sum(each["in_flight"] for each in _channels(snapshot)),
        "pinned": snapshot.pinned,
        "final": manifest.final,
        "incarnation": manifest.incarnation,
        "claim": manifest.claim,
    }


def _subtasks(snapshot: Snapshot) -> list[dict[str, Any]]:
    return [
        {"subtask": str(record.subtask), "state_bytes": record.state.size, "ended": record.standing.ended}
        for record in snapshot.manifest.records
    ]


def _channels(snapshot: Snapshot) -> list[dict[str, Any]]:
    sent = {entry.channel: entry.sent for record in snapshot.manifest.records for entry in record.sent}
    processed = {entry.channel: entry.processed for record in snapshot.manifest.records for entry in record.received}
    return [
        {
            "source": str(channel.source),
            "target": str(channel.target),
            "sent": sent[channel],
            "processed": processed[channel],
            "in_flight": sent[channel] - processed[channel],
        }
        for channel in snapshot.channels
    ]


def _columns(each: Mapping[str, Any]) -> Sequence[str]:
    return (
        str(each["id"]),
        _time_text(each["timestamp"]),
        size_text(each["size_bytes"]),
        duration_text(each["duration_seconds"]),
        f"{each['in_flight']:,}",
    )


def _finding_text(found: Findings) -> str:
    lines = [f"run {found.run}: {found.files} files, {len(found.history)} snapshots that can be restored"]
    lines += [f"  damaged: {problem}" for problem in found.problems]
    if found.unreferenced:
        lines.append(f"  {len(found.unreferenced)} whole parts that no snapshot lists (pending, aborted or deleted)")
    return "\n".join([*lines, "  damage was found" if found.problems else "  every byte is as it was written"])


def _runs(backend: StateBackend, run: str | None) -> list[str]:
    found = runs(backend)
    if not found:
        raise typer.BadParameter(f"{backend} holds no run")
    if run is not None and run not in found:
        raise typer.BadParameter(f"{backend} holds no run {run!r}; there are {', '.join(found)}")
    return found if run is None else [run]


def _only_run(backend: StateBackend, run: str | None) -> str:
    found = _runs(backend, run)
    if len(found) > 1:
        raise typer.BadParameter(f"{backend} holds the runs {', '.join(found)}; name one with --run")
    return found[0]


def _find(backend: StateBackend, run: str, snapshot_id: int | None) -> Snapshot:
    snapshots = RunStore(backend, run).read_snapshots(_CODEC)
    if not snapshots:
        raise typer.BadParameter(f"run {run!r} has no published snapshot")
    found = {snapshot.id: snapshot for snapshot in snapshots}
    if snapshot_id is not None and snapshot_id not in found:
        raise typer.BadParameter(f"run {run!r} has no snapshot {snapshot_id}; there are {', '.join(map(str, found))}")
    return snapshots[-1] if snapshot_id is None else found[snapshot_id]


def _time_text(timestamp: float) -> str:
    return datetime.fromtimestamp(timestamp, UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _print(*what: Any, markup: bool = True) -> None:
    console = Console(soft_wrap=True)
    for each in what:
        console.print(each, markup=markup, highlight=False)
