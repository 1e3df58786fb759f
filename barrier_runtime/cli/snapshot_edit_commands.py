"""The commands that change snapshots: ``cutline snapshots take | pin | unpin | delete``.

A place that begins with ``http://`` or ``https://`` is the live page of a run, which carries out the command. Any other
place is a store, in which the command is carried out here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from cutline.barrier_runtime.cli.completion import complete_run, complete_snapshot
from cutline.barrier_runtime.cli.formatting import print_all, print_json
from cutline.barrier_runtime.cli.live_run import (
    DEFAULT_ADDRESS,
    AddressArgument,
    LiveRunOption,
    TimeoutOption,
    carry_out,
    find_run,
    open_page_client,
)
from cutline.barrier_runtime.cli.snapshot_commands import KeyOption
from cutline.barrier_runtime.cli.stored import find_snapshot, known_run, open_backend
from cutline.barrier_runtime.page.commands import Kind
from cutline.snapshot.stored.run_store import RunStore
from cutline.snapshot.stored.snapshot_edits import remove_snapshot, set_pinned

PlaceArgument = Annotated[
    str,
    typer.Argument(
        metavar="PLACE", help="Folder or URL of the backend. Of a run that goes on: the address of its live page."
    ),
]
IdsArgument = Annotated[
    list[int], typer.Argument(metavar="ID", help="Ids of snapshots.", autocompletion=complete_snapshot)
]
RunOption = Annotated[
    str | None, typer.Option("--run", help="Name of the run; default: the only one.", autocompletion=complete_run)
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]

#: {kind: (text of a snapshot that was changed, fields of its JSON)}
_RESULTS: Mapping[Kind, tuple[str, Mapping[str, bool]]] = {
    Kind.PIN: ("pinned", {"pinned": True}),
    Kind.UNPIN: ("not pinned", {"pinned": False}),
    Kind.DELETE: ("deleted", {"deleted": True}),
}


def take(
    address: AddressArgument = DEFAULT_ADDRESS,
    run: LiveRunOption = None,
    pin: Annotated[bool, typer.Option("--pin", help="Pin the snapshot, so that retention never removes it.")] = False,
    timeout: TimeoutOption = None,
    as_json: JsonOption = False,
) -> None:
    """Take a snapshot of a run now, and wait until it is published. Ctrl-C ends the waiting only.

    Example: `cutline snapshots take http://127.0.0.1:4640 --run bank --pin`
    """
    client = open_page_client(address)
    name = find_run(client, run)
    arguments = {"pinned": pin, "timeout": timeout}
    _, command = carry_out(client, name, Kind.SNAPSHOT, arguments, Console(stderr=True))
    if as_json:
        print_json({"run": name, "id": command["snapshot"], "pinned": pin})
    else:
        print_all(f"run {name}: {command['text']}{', pinned' if pin else ''}")


def pin(
    place: PlaceArgument,
    ids: IdsArgument,
    run: RunOption = None,
    key_file: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Pin snapshots, so that retention never removes them.

    Example: `cutline snapshots pin /data/snapshots 7000042 --run bank`
    """
    name, change = _changer(place, run, key_file, Kind.PIN)
    _change_all(name, ids, change, Kind.PIN, as_json)


def unpin(
    place: PlaceArgument,
    ids: IdsArgument,
    run: RunOption = None,
    key_file: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Unpin snapshots. Retention removes them when the run goes on, unless they are among the newest.

    Example: `cutline snapshots unpin /data/snapshots 7000042 --run bank`
    """
    name, change = _changer(place, run, key_file, Kind.UNPIN)
    _change_all(name, ids, change, Kind.UNPIN, as_json)


def delete(
    place: PlaceArgument,
    ids: IdsArgument,
    run: RunOption = None,
    key_file: KeyOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Delete without a question.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Delete snapshots for good. What other snapshots need stays. The newest and pinned snapshots are refused.

    Example: `cutline snapshots delete /data/snapshots 7000040 7000041 --run bank --yes`
    """
    name, change = _changer(place, run, key_file, Kind.DELETE)
    if not yes:
        _confirm(f"Delete {', '.join(map(str, ids))} of run {name} for good?")
    _change_all(name, ids, change, Kind.DELETE, as_json)


def _changer(place: str, run: str | None, key_file: Path | None, kind: Kind) -> tuple[str, Callable[[int], None]]:
    """Return the name of the run, and the function that changes one of its snapshots."""
    if place.startswith(("http://", "https://")):
        client = open_page_client(place)
        name = find_run(client, run)

        def change_live(snapshot_id: int) -> None:
            carry_out(client, name, kind, {"snapshotId": snapshot_id}, Console(stderr=True))

        return name, change_live
    backend = open_backend(place, key_file)
    name = known_run(backend, run)

    def change_stored(snapshot_id: int) -> None:
        store = RunStore(backend, name)
        try:
            if kind is Kind.DELETE:
                remove_snapshot(store, snapshot_id)
            else:
                set_pinned(store, snapshot_id, kind is Kind.PIN)
        except FileNotFoundError:
            find_snapshot(backend, name, snapshot_id)  # raises BadParameter with the ids that there are
            raise

    return name, change_stored


def _confirm(question: str) -> None:
    try:
        typer.confirm(question, abort=True, err=True)
    except typer.Abort:
        typer.echo(err=True)  # because the answer may have no end of line
        raise typer.BadParameter("nothing was deleted; answer y, or give --yes", param_hint="--yes") from None


def _change_all(run: str, ids: Sequence[int], change: Callable[[int], None], kind: Kind, as_json: bool) -> None:
    """Change the snapshots one by one. Print those that were changed, also before an error."""
    text, fields = _RESULTS[kind]
    done = []
    try:
        for snapshot_id in dict.fromkeys(ids):
            change(snapshot_id)
            done.append({"run": run, "id": snapshot_id, **fields})
            if not as_json:
                print_all(f"snapshot {snapshot_id} of run {run}: {text}")
    finally:
        if as_json:
            print_json(done)
