"""The content of a store, read for the command line. Errors about a missing run or snapshot carry a hint.

Damage does not hide undamaged snapshots: readable and unreadable snapshots are listed together. Runs no code of the
user, and opens no pickle.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import typer

from cutline.barrier_runtime.cli.formatting import plain
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.errors import CutlineError, RestoreRefused, SnapshotCorrupt
from cutline.snapshot.stored import layout
from cutline.snapshot.stored.backend import StateBackend
from cutline.snapshot.stored.run_store import RunStore, pinned_off_chain, restorable, runs, stored_history
from cutline.snapshot.stored.signed import SIGNING_KEY_BYTES_MIN, SignedBackend, with_signing_key
from cutline.snapshot.stored.snapshot import Snapshot
from cutline.state_backends.filesystem import FileSystemBackend
from cutline.state_backends.verify import backend_of

#: codec that refuses pickle, because the data that is shown contains none
CODEC = Codec(safe=True)

#: environment variable with the signing key, which no command line may hold, because others see command lines
KEY_VARIABLE = "CUTLINE_SIGNING_KEY"

#: ids or names that an error suggests instead of a wrong id or name
_OFFERED_MAX = 5


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A snapshot of a run's history that cannot be read, or a run whose history cannot be read."""

    run: str
    id: int | None  #: id of the snapshot, or None when the history itself cannot be read
    problem: str  #: the damage, with file and offset


@dataclass(frozen=True, slots=True)
class StoredRun:
    """The readable and the unreadable snapshots of a run."""

    name: str
    snapshots: tuple[Snapshot, ...]  #: snapshots that can be restored, as `RunStore.read_snapshots` lists them
    unreadable: tuple[Unreadable, ...]
    newest: Snapshot | None = None  #: newest readable snapshot of the history, or None without any


def open_unsigned(url: str) -> StateBackend:
    """Return the backend at a URL or a path, without a signing key. A path may be relative to the current folder."""
    try:
        return backend_of(url if "://" in url or url.startswith("file:") else str(Path(url).absolute()))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error


def open_backend(url: str, key_file: Path | None = None) -> StateBackend:
    """Return the backend at a URL or a path, behind the check of signatures if there is a signing key."""
    return with_signing_key(open_unsigned(url), signing_key(key_file))


def signing_key(key_file: Path | None) -> bytes | None:
    """Return the key in the file, or else in the environment, without one line end. None if there is neither.

    Raises
    ------
    BadParameter
        if the key is too short, because an empty key must not mean that nothing is checked.
    """
    if key_file is None and KEY_VARIABLE not in os.environ:
        return None
    key = os.environb[os.fsencode(KEY_VARIABLE)] if key_file is None else key_file.read_bytes()
    key = key.removesuffix(b"\n").removesuffix(b"\r")
    if len(key) < SIGNING_KEY_BYTES_MIN:
        text = f"a signing key of {len(key)} bytes; it has at least {SIGNING_KEY_BYTES_MIN}, as of openssl rand -hex 32"
        raise typer.BadParameter(text, param_hint=KEY_VARIABLE if key_file is None else str(key_file))
    return key


def run_names(backend: StateBackend) -> list[str]:
    """Return the names of all runs, ascending. Raise BadParameter without runs, because the path may be wrong."""
    found = runs(backend)
    if not found:
        raise _not_there("PATH", f"{backend} holds no run", _hint_of_place(backend))
    return found


def known_run(backend: StateBackend, run: str | None) -> str:
    """Return `run` if the store has that run, or the only run when `run` is None. Else raise BadParameter."""
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
    """Read all snapshots of a run. Damage is part of the result and raises nothing.

    Raises
    ------
    OSError
        if the store fails.
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
            if snapshot_id == ids[-1]:  # because retention may have removed an older snapshot meanwhile
                unreadable.append(Unreadable(name, snapshot_id, str(error)))
    others = sorted((*pinned_off_chain(store, ids, CODEC), *snapshots[:-1]))
    newest = snapshots[-1] if snapshots else None
    return StoredRun(name, (*others, *snapshots[-1:]), tuple(unreadable), newest)


def find_snapshot(backend: StateBackend, run: str, snapshot_id: int | None) -> Snapshot:
    """Return a snapshot of `run` that can be restored. None means the newest of the history.

    Raises
    ------
    BadParameter
        if there is no such snapshot.
    SnapshotCorrupt, RestoreRefused
        if the snapshot cannot be read. A note lists readable snapshots.
    """
    store = RunStore(backend, run)
    ids = restorable(store)
    wanted = _newest(store, ids) if snapshot_id is None else snapshot_id
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


def _newest(store: RunStore, ids: Sequence[int]) -> int:
    chain = stored_history(store)
    if chain:
        return chain[-1]
    hint = f"name one of the pinned snapshots: {_some(ids)}" if ids else "it has none before its first interval"
    raise _not_there("RUN", f"run {store.run!r} has no published snapshot of its present history", hint)


def find_fork(backend: StateBackend, origin: str | None, snapshot_id: int | None, name: str) -> Snapshot:
    """Return the snapshot from which the new run `name` starts: of the run `origin`, or of the only run.

    Raises
    ------
    BadParameter
        if there is no such snapshot, or the run `name` has snapshots of its own already.
    """
    run = known_run(backend, origin)
    if name in runs(backend) and stored_history(RunStore(backend, name)):
        hint = f"choose another name; cutline restore --name {name} goes on with that run"
        raise _not_there("NAME", f"{backend} holds a run {name!r} with snapshots of its own", hint)
    return find_snapshot(backend, run, snapshot_id)


def _hint_of_place(backend: StateBackend) -> str:
    """Return a hint for a store that holds no run."""
    backend = backend.unsigned if isinstance(backend, SignedBackend) else backend
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
