"""The content of a store, for people: opened by its path, with a hint where something is not there.

Damage does not hide what is sound: a snapshot that cannot be read is named beside those that can. Runs no code of
the user's, and opens no pickle.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import typer

from barrier_runtime.cli.formatting import plain
from snapshot.channel.serialization import Codec
from snapshot.errors import CutlineError, RestoreRefused, SnapshotCorrupt
from snapshot.stored import layout
from snapshot.stored.backend import StateBackend
from snapshot.stored.run_store import RunStore, runs, stored_history
from snapshot.stored.snapshot import Snapshot
from state_backends.filesystem import FileSystemBackend
from state_backends.verify import backend_of

#: What is shown needs no pickle, so none is opened.
CODEC = Codec(safe=True)

#: Ids, or names, that are offered instead of a wrong one.
_OFFERED_MAX = 5


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A snapshot of a run's history that cannot be read, or a run whose history cannot."""

    run: str
    id: int | None  #: None: which snapshots there are is not known
    problem: str  #: names file and offset


@dataclass(frozen=True, slots=True)
class StoredRun:
    """A run as far as it can be read."""

    name: str
    snapshots: tuple[Snapshot, ...]  #: those that can be restored, ascending
    unreadable: tuple[Unreadable, ...]


def open_backend(url: str) -> StateBackend:
    """The backend at a URL or a path, which may be relative to the current folder."""
    try:
        return backend_of(url if "://" in url or url.startswith("file:") else str(Path(url).absolute()))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def run_names(backend: StateBackend) -> list[str]:
    """Names of all runs, ascending; BadParameter where there is none, for it may be the wrong place."""
    found = runs(backend)
    if not found:
        raise _not_there("PATH", f"{backend} holds no run", _hint_of_place(backend))
    return found


def known_run(backend: StateBackend, run: str | None) -> str:
    """`run` if there is one of that name; the only one where none was named; else BadParameter."""
    found = run_names(backend)
    if run is None:
        if len(found) > 1:
            raise _not_there("RUN", f"{backend} holds the runs {_some(found)}", "name one with --run")
        return found[0]
    if run not in found:
        near = difflib.get_close_matches(run, found, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"cutline runs {backend} lists them"
        raise _not_there("RUN", f"{backend} holds no run {run!r}; there are {_some(found)}", hint)
    return run


def read_run(backend: StateBackend, name: str) -> StoredRun:
    """All that can be read of a run.

    Raises
    ------
    OSError
        if the store fails; damage is told, not raised.
    """
    store = RunStore(backend, name)
    snapshots: list[Snapshot] = []
    unreadable: list[Unreadable] = []
    try:
        ids = stored_history(store)
    except (SnapshotCorrupt, RestoreRefused) as error:
        return StoredRun(name, (), (Unreadable(name, None, str(error)),))
    for snapshot_id in ids:
        try:
            snapshots.append(store.read_snapshot(snapshot_id, CODEC))
        except (SnapshotCorrupt, RestoreRefused) as error:
            unreadable.append(Unreadable(name, snapshot_id, str(error)))
        except FileNotFoundError as error:
            if snapshot_id == ids[-1]:  # of the others, retention may have removed one since they were listed
                unreadable.append(Unreadable(name, snapshot_id, str(error)))
    return StoredRun(name, tuple(snapshots), tuple(unreadable))


def find_snapshot(backend: StateBackend, run: str, snapshot_id: int | None) -> Snapshot:
    """One snapshot of `run`'s history; None: the newest.

    Raises
    ------
    SnapshotCorrupt, RestoreRefused
        if it cannot be read, with a note about those that can.
    """
    store = RunStore(backend, run)
    ids = stored_history(store)
    if not ids:
        raise _not_there("RUN", f"run {run!r} has no published snapshot", "it has none before its first interval")
    wanted = ids[-1] if snapshot_id is None else snapshot_id
    if wanted not in ids:
        near = sorted(sorted(ids, key=lambda each: abs(each - wanted))[:_OFFERED_MAX])
        there = f"there are {_some(near)}" if len(near) == len(ids) else f"near it are {_some(near)}"
        hint = f"cutline snapshots list {backend} --run {run} lists all"
        raise _not_there("ID", f"run {run!r} has no snapshot {wanted}; {there}", hint)
    try:
        return store.read_snapshot(wanted, CODEC)
    except CutlineError as error:
        whole = [each.id for each in read_run(backend, run).snapshots]
        if whole:
            error.add_note(f"hint: of this run the snapshots {_some(whole[-_OFFERED_MAX:])} can be read")
        raise


def _hint_of_place(backend: StateBackend) -> str:
    """Return a hint for a place that holds nothing."""
    if not isinstance(backend, FileSystemBackend):
        return "runs are kept one folder below what the runtime was given as its backend"
    folder = Path(backend.root)
    if not folder.is_dir():
        siblings = [each.name for each in folder.parent.iterdir() if each.is_dir()] if folder.parent.is_dir() else []
        near = difflib.get_close_matches(folder.name, siblings, n=1)
        return (
            f"there is no such folder; did you mean {folder.parent / near[0]}?" if near else "there is no such folder"
        )
    inside = any(layout.claim_number(path.relative_to(folder).as_posix()) for path in folder.glob("claims/*"))
    if inside:
        return f"this is the folder of one run; give {folder.parent}"
    return "give the folder that the runtime was given as its backend"


def _not_there(what: str, text: str, hint: str) -> typer.BadParameter:
    return typer.BadParameter(plain(f"{text}\nHint: {hint}"), param_hint=what)


def _some(of: Iterable[object]) -> str:
    each = [str(one) for one in of]
    more = f" and {len(each) - _OFFERED_MAX} more" if len(each) > _OFFERED_MAX else ""
    return ", ".join(each[:_OFFERED_MAX]) + more
