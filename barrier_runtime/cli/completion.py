"""Completions for shells: names of runs and ids of snapshots, from the store that the command line names.

A key press must not wait. Stores beyond this machine are therefore not read, and a failure gives no completions.
"""

from __future__ import annotations

import typer

from cutline.barrier_runtime.cli.formatting import time_text
from cutline.barrier_runtime.cli.stored import open_unsigned, read_run, signing_key
from cutline.snapshot.drawing.labels import size_text
from cutline.snapshot.errors import CutlineError
from cutline.snapshot.stored.run_store import runs
from cutline.snapshot.stored.signed import with_signing_key
from cutline.state_backends.filesystem import FileSystemBackend

#: names of the parameters for the store, and of the parameters for the run
_PLACES = ("store", "place", "backend")
_NAMES = ("run", "origin", "name")


def complete_run(context: typer.Context, incomplete: str) -> list[str]:
    """Return the names of runs that begin with `incomplete`."""
    return [name for name in _names(_backend(context)) if name.startswith(incomplete)]


def complete_snapshot(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Return the ids of snapshots that begin with `incomplete`, newest first, each with its time, size and pin."""
    backend = _backend(context)
    named = _value(context, _NAMES)
    names = [named] if named else _names(backend)
    if backend is None or len(names) != 1:
        return []
    try:
        key = signing_key(context.params.get("key_file"))
        snapshots = read_run(with_signing_key(backend, key), names[0]).snapshots
    except (CutlineError, OSError, ValueError):
        return []
    offered = [
        (str(each.id), f"{time_text(each.timestamp)}, {size_text(each.size)}{', pinned' if each.pinned else ''}")
        for each in reversed(snapshots)
    ]
    return [each for each in offered if each[0].startswith(incomplete)]


def _backend(context: typer.Context) -> FileSystemBackend | None:
    place = _value(context, _PLACES)
    if place is None and context.args and any(each.name in ("store", "place") for each in context.command.params):
        place = context.args[0]  # because arguments are not assigned yet while an option is completed
    try:
        backend = open_unsigned(place) if place else None
    except typer.BadParameter:
        return None
    return backend if isinstance(backend, FileSystemBackend) else None


def _names(backend: FileSystemBackend | None) -> list[str]:
    try:
        return [] if backend is None else runs(backend)
    except OSError:
        return []


def _value(context: typer.Context, names: tuple[str, ...]) -> str | None:
    return next((context.params[name] for name in names if context.params.get(name)), None)
