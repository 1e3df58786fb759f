"""Commands to a living run through its live page: ``cutline stop`` and ``rescale``, and functions of the others."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.console import Console

from cutline.barrier_runtime.cli.formatting import plain, print_all, print_json
from cutline.barrier_runtime.cli.page_client import TOKEN_VARIABLE, Document, PageClient
from cutline.barrier_runtime.page.commands import Kind, State, parallelism_text, parse_parallelism
from cutline.barrier_runtime.page.settings import PORT_DEFAULT
from cutline.snapshot.coordinator.run_state import Outcome
from cutline.snapshot.errors import CutlineError, RunFailed, SnapshotAborted, SnapshotInUse

#: address of the page of the first run on this machine
DEFAULT_ADDRESS = f"http://127.0.0.1:{PORT_DEFAULT}"

AddressArgument = Annotated[
    str,
    typer.Argument(metavar="ADDRESS", help="Address of the live page, as it was printed at submit, with its token."),
]
LiveRunOption = Annotated[
    str | None, typer.Option("--run", help="Name of the run; default: the address's, or the active one.")
]
TimeoutOption = Annotated[
    float | None, typer.Option(min=0.001, help="Seconds that the snapshot may take; default: no limit.")
]

#: {kind: error of a command that failed}
_ERRORS: Mapping[Kind, type[CutlineError]] = {
    Kind.SNAPSHOT: SnapshotAborted,
    Kind.STOP: SnapshotAborted,
    Kind.DELETE: SnapshotInUse,
}


def open_page_client(address: str) -> PageClient:
    """Return a client of the page at `address`. Raise BadParameter if `address` is not the address of a page."""
    try:
        return PageClient(address, os.environ.get(TOKEN_VARIABLE))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="ADDRESS") from error


def find_run(client: PageClient, run: str | None) -> str:
    """Return the name of the run that is meant. Raise BadParameter if the page shows no such run."""
    try:
        return client.find_run(run)
    except FileNotFoundError as error:
        raise typer.BadParameter(plain(str(error)), param_hint="RUN") from error


def carry_out(
    client: PageClient, run: str, kind: Kind, arguments: Mapping[str, Any], console: Console
) -> tuple[Document, Document]:
    """Send a command to a run, and wait until the command is done. Return the last document and the command's record.

    Raises
    ------
    CutlineError
        if the command failed.
    OSError
        if the run has ended, or the page does not answer.
    Exit
        after Ctrl-C. The run still carries out the command.
    """
    texts = {name: _argument_text(value) for name, value in arguments.items() if value is not None}
    try:
        with console.status(f"run {plain(run)}") as status:
            for document, command in client.carry_out(run, kind, texts):
                status.update(_progress_text(document, command))
    except KeyboardInterrupt:
        _print(console, f"run {run}: still {command_text(kind)}; `cutline top {client.address}` shows the outcome")
        raise typer.Exit(130) from None
    if command["state"] == State.FAILED.value:
        raise _ERRORS.get(kind, RunFailed)(str(command["text"]))
    return document, command


def command_text(kind: Kind) -> str:
    """Return what a run does while it carries out a command."""
    return {
        Kind.SNAPSHOT: "taking the snapshot",
        Kind.STOP: "stopping with a snapshot",
        Kind.STOP_NOW: "stopping",
        Kind.RESCALE: "being rescaled",
    }.get(kind, f"at the command {kind.value}")


def stop(
    address: AddressArgument = DEFAULT_ADDRESS,
    run: LiveRunOption = None,
    no_snapshot: Annotated[
        bool, typer.Option("--no-snapshot", "--now", help="Stop at once, without a last snapshot.")
    ] = False,
    timeout: TimeoutOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Stop a run with a last snapshot, so that the run goes on from there without repeated work.

    If the snapshot fails, the run goes on and the exit code is 1. With `--no-snapshot` the run goes on later from its
    newest snapshot. Ctrl-C ends the waiting only.

    Example: `cutline stop http://127.0.0.1:4640 --run bank --timeout 60`
    """
    console = Console(stderr=True)
    client = open_page_client(address)
    name = find_run(client, run)
    try:
        arguments = {} if no_snapshot else {"timeout": timeout}
        kind = Kind.STOP_NOW if no_snapshot else Kind.STOP
        document, _ = carry_out(client, name, kind, arguments, console)
    except SnapshotAborted as error:
        error.add_note(f"hint: the run goes on; cutline stop {client.address} --run {name} --no-snapshot stops it")
        raise
    _print_stopped(name, document, took_snapshot=not no_snapshot, as_json=as_json)
    if document["outcome"] not in (Outcome.STOPPED.value, Outcome.FINISHED.value):
        raise typer.Exit(1)


def rescale(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Name of the run, or the address of its live page.")],
    nodes: Annotated[
        list[str], typer.Argument(metavar="NODE=N...", help="Numbers of subtasks; other nodes keep theirs.")
    ],
    page: Annotated[
        str, typer.Option("--page", metavar="ADDRESS", help="Address of the live page, with its token.")
    ] = DEFAULT_ADDRESS,
    timeout: TimeoutOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Let a run go on with other numbers of subtasks, from a snapshot that is taken now.

    Nodes, graph, free slots and the snapshot are checked first. If one is refused, the run goes on as it is, and the
    exit code is 1. Ctrl-C ends the waiting only.

    Example: `cutline rescale words count=4 total=2`
    """
    try:
        parallelism = parse_parallelism(",".join(nodes))
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="NODE=N") from error
    client = open_page_client(run if "://" in run else page)
    name = find_run(client, None if "://" in run else run)
    arguments = {"parallelism": parallelism_text(parallelism), "timeout": timeout}
    _, command = carry_out(client, name, Kind.RESCALE, arguments, Console(stderr=True))
    if as_json:
        print_json({"run": name, "parallelism": parallelism, "snapshot": command["snapshot"]})
    else:
        print_all(f"run {name} {command['text']}")


def _print_stopped(run: str, document: Document, *, took_snapshot: bool, as_json: bool) -> None:
    """Print how a run ended, and the snapshot from which the run goes on."""
    outcome = document["outcome"]
    newest = document["retained"][-1] if document["retained"] else None
    if as_json:
        print_json({"run": run, "outcome": outcome, "reason": document["reason"], "snapshot": newest})
    elif outcome != Outcome.STOPPED.value:
        print_all(f"run {run} {outcome}: {document['reason']}")
    elif took_snapshot:
        print_all(f"run {run} stopped with snapshot {newest}")
    else:
        goes_on = "starts anew, because it has no snapshot" if newest is None else f"goes on from snapshot {newest}"
        print_all(f"run {run} stopped without a snapshot; it {goes_on}")


def _progress_text(document: Document, command: Document) -> str:
    pending = [each for each in document["snapshotReports"] if each["state"] == "pending"]
    parts = f", {pending[-1]['acknowledged']} of {pending[-1]['subtasks']} subtasks" if pending else ""
    return plain(f"run {document['name']}: {command['text']}{parts}")


def _argument_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _print(console: Console, text: str) -> None:
    console.print(plain(text), markup=False, highlight=False, soft_wrap=True)
