"""Completions of a shell: names of runs, and ids of snapshots, of the store that was named before.

A key press waits for nothing: stores beyond this machine are not asked, and what fails offers nothing.
"""

from __future__ import annotations

import typer

from barrier_runtime.cli.formatting import time_text
from barrier_runtime.cli.stored import open_backend, read_run
from snapshot.drawing.labels import size_text
from snapshot.errors import CutlineError
from snapshot.stored.run_store import runs
from state_backends.filesystem import FileSystemBackend

#: What parameters are called that say where snapshots are, and which run is meant.
_PLACES = ("store", "backend")
_NAMES = ("run", "name")


def complete_run(context: typer.Context, incomplete: str) -> list[str]:
    """Names of runs."""
    return [name for name in _names(_backend(context)) if name.startswith(incomplete)]


def complete_snapshot(context: typer.Context, incomplete: str) -> list[tuple[str, str]]:
    """Ids of snapshots, newest first, each with what tells it from the others."""
    backend = _backend(context)
    named = _value(context, _NAMES)
    names = [named] if named else _names(backend)
    if backend is None or len(names) != 1:
        return []
    try:
        snapshots = read_run(backend, names[0]).snapshots
    except (CutlineError, OSError, ValueError):
        return []
    offered = [
        (str(each.id), f"{time_text(each.timestamp)}, {size_text(each.size)}{', pinned' if each.pinned else ''}")
        for each in reversed(snapshots)
    ]
    return [each for each in offered if each[0].startswith(incomplete)]


def _backend(context: typer.Context) -> FileSystemBackend | None:
    place = _value(context, _PLACES)
    if place is None and context.args and any(each.name == "store" for each in context.command.params):
        place = context.args[0]  # where the value of an option is completed, arguments are not assigned yet
    try:
        backend = open_backend(place) if place else None
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
