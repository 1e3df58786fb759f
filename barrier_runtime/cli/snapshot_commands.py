"""The commands ``cutline runs`` and ``cutline snapshots``, which show the content of a store without a live run.

Makes the tables. `records` and `difference` make the data of the tables and of their JSON.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from cutline.barrier_runtime.cli import records
from cutline.barrier_runtime.cli.completion import complete_run, complete_snapshot
from cutline.barrier_runtime.cli.difference import difference, difference_tables
from cutline.barrier_runtime.cli.formatting import (
    age_text,
    cell,
    numbers,
    plain_table,
    print_all,
    print_json,
    time_text,
)
from cutline.barrier_runtime.cli.stored import (
    KEY_VARIABLE,
    StoredRun,
    find_snapshot,
    known_run,
    open_backend,
    read_run,
    run_names,
)
from cutline.snapshot.drawing.labels import duration_text, size_text
from cutline.state_backends.verify import Findings, verify_run

app = typer.Typer(no_args_is_help=True, help="List, show, verify and compare snapshots; take, pin and delete them.")

StoreArgument = Annotated[str, typer.Argument(metavar="PATH", help="Folder or URL of the backend.")]
RunOption = Annotated[
    str | None, typer.Option("--run", help="Name of the run; default: all.", autocompletion=complete_run)
]
OneRunOption = Annotated[
    str | None, typer.Option("--run", help="Name of the run; default: the only one.", autocompletion=complete_run)
]
KeyOption = Annotated[
    Path | None,
    typer.Option(
        "--signing-key-file",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help=f"File with the signing key; default: ${KEY_VARIABLE}.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def list_runs(store: StoreArgument, key_file: KeyOption = None, as_json: JsonOption = False) -> None:
    """List the runs that a store holds, each with its newest snapshot.

    Example: `cutline runs /data/snapshots`
    """
    backend = open_backend(store, key_file)
    found = [read_run(backend, name) for name in run_names(backend)]
    lines = [records.run_record(run) for run in found]
    if as_json:
        print_json(lines)
    else:
        table = plain_table("run", *numbers("snapshots", "newest", "age", "size", "pinned"), "")
        for each in lines:
            table.add_row(cell(each["run"]), *_run_columns(each), cell("finished" if each["final"] else ""))
        print_all(table)
    _print_damage(found, as_json)


@app.command("list")
def list_snapshots(
    store: StoreArgument, run: RunOption = None, key_file: KeyOption = None, as_json: JsonOption = False
) -> None:
    """List the snapshots that can be restored, oldest first. Damaged snapshots are named; then the exit code is 1.

    Example: `cutline snapshots list /data/snapshots --run bank`
    """
    backend = open_backend(store, key_file)
    found = [read_run(backend, name) for name in ([known_run(backend, run)] if run else run_names(backend))]
    if as_json:
        print_json([line for each in found for line in _lines(each)])
    else:
        table = plain_table("run", *numbers("id"), "time", *numbers("size", "duration", "in flight"), "")
        for each in [records.summary(snapshot) for stored in found for snapshot in stored.snapshots]:
            table.add_row(cell(each["run"]), *_columns(each), cell(", ".join(_notes(each))))
        print_all(table)
    _print_damage(found, as_json)


@app.command()
def show(
    store: StoreArgument,
    snapshot_id: Annotated[
        int | None, typer.Argument(metavar="ID", help="Default: the newest.", autocompletion=complete_snapshot)
    ] = None,
    run: OneRunOption = None,
    key_file: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one snapshot: the states of its subtasks, and the messages in flight on its channels.

    Example: `cutline snapshots show /data/snapshots 7000042 --run bank`
    """
    backend = open_backend(store, key_file)
    snapshot = find_snapshot(backend, known_run(backend, run), snapshot_id)
    record = {
        **records.summary(snapshot),
        "subtasks": records.subtasks(snapshot),
        "channels": records.channels(snapshot),
    }
    if as_json:
        print_json(record)
        return
    states = plain_table("subtask", *numbers("state"), "ended")
    for each in record["subtasks"]:
        states.add_row(cell(each["subtask"]), size_text(each["state_bytes"]), "yes" if each["ended"] else "")
    links = plain_table("channel", *numbers("sent", "processed", "in flight"))
    for each in record["channels"]:
        counts = [f"{each[field]:,}" for field in ("sent", "processed", "in_flight")]
        links.add_row(cell(f"{each['source']} -> {each['target']}"), *counts)
    writer = [] if record["written_by"] is None else [f"written by {record['written_by']}"]
    facts = [f"of {time_text(snapshot.timestamp)}", size_text(snapshot.size), *_notes(record), *writer]
    print_all(f"{snapshot}  {', '.join(facts)}", states, "", links)


@app.command()
def verify(
    store: StoreArgument, run: RunOption = None, key_file: KeyOption = None, as_json: JsonOption = False
) -> None:
    """Read every file and check every byte. Damage is named by file and offset; then the exit code is 1.

    Example: `cutline snapshots verify /data/snapshots`
    """
    backend = open_backend(store, key_file)
    names = [known_run(backend, run)] if run else run_names(backend)
    findings = [verify_run(backend, name) for name in names]
    if as_json:
        print_json([asdict(found) for found in findings])
    else:
        print_all(*(_finding_text(found) for found in findings))
    if any(found.problems for found in findings):
        raise typer.Exit(1)


@app.command("diff")
def compare(
    store: StoreArgument,
    run: Annotated[str, typer.Argument(metavar="RUN", help="Name of the run.", autocompletion=complete_run)],
    before: Annotated[int, typer.Argument(metavar="A", help="Id of a snapshot.", autocompletion=complete_snapshot)],
    after: Annotated[int, typer.Argument(metavar="B", help="Id of another one.", autocompletion=complete_snapshot)],
    full: Annotated[bool, typer.Option("--full", help="Read states of any size; without it up to 16 MiB.")] = False,
    key_file: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the differences between two snapshots of a run: graph, states, and messages by channel.

    States are compared byte by byte. States up to 256 KiB are compared value by value, unless they hold pickled
    objects, which are never opened.

    Example: `cutline snapshots diff /data/snapshots bank 7000042 7000045`
    """
    backend = open_backend(store, key_file)
    name = known_run(backend, run)
    found = [find_snapshot(backend, name, snapshot_id) for snapshot_id in (before, after)]
    record = difference(backend, found[0], found[1], reads_all=full)
    if as_json:
        print_json(record)
    else:
        print_all(*difference_tables(record))


def _lines(run: StoredRun) -> list[dict[str, Any]]:
    whole = [records.summary(snapshot) for snapshot in run.snapshots]
    damaged = [records.unreadable(found) for found in run.unreadable]
    return sorted([*whole, *damaged], key=lambda line: line["id"] or 0)


def _print_damage(found: Sequence[StoredRun], as_json: bool) -> None:
    """Print the unreadable snapshots unless the JSON lists them. Exit with 1 when there are any."""
    damaged = [each for run in found for each in run.unreadable]
    if not damaged:
        return
    if not as_json:
        for each in damaged:
            what = f"run {each.run}" if each.id is None else f"snapshot {each.id} of run {each.run}"
            print_all(f"damaged: {what} cannot be read: {each.problem}")
    raise typer.Exit(1)


def _run_columns(each: Mapping[str, Any]) -> Sequence[str]:
    size, pinned, snapshots = size_text(each["size_bytes"]), str(each["pinned"] or ""), str(each["snapshots"])
    if each["newest"] is None:
        return snapshots, "none", "", size, pinned
    return snapshots, str(each["newest"]), age_text(time.time() - each["timestamp"]), size, pinned


def _notes(each: Mapping[str, Any]) -> list[str]:
    edited = [] if each["edited_from"] is None else [f"edited from {each['edited_from']}"]
    return [*(word for word in ("pinned", "final") if each[word]), *edited]


def _columns(each: Mapping[str, Any]) -> Sequence[str]:
    return (
        str(each["id"]),
        time_text(each["timestamp"]),
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
