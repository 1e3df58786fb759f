"""``cutline run --json``: progress as JSON, one document a line, for programs that read along.

::

    {"event": "progress", ...}      about every two seconds: `Run.lastProgress`
    {"event": "end", ...}           once: `Run.status`, and "snapshot", the last one's id if Ctrl-C took one, and
                                    "goOn", the command that goes on with the run
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import typer

from barrier_runtime.cli.formatting import as_json
from barrier_runtime.cli.progress import PLAIN_SECONDS, POLL_SECONDS

if TYPE_CHECKING:
    from barrier_runtime.driver.run import Run
    from snapshot.snapshot import Snapshot


def progress_lines(run: Run) -> Iterator[dict[str, Any]]:
    """Print how `run` goes until it has ended, and yield each report that was looked at, so that the caller may act."""
    next_line = time.monotonic()
    while run.isActive:
        time.sleep(POLL_SECONDS)
        progress = run.lastProgress
        if progress is None:
            continue
        if time.monotonic() >= next_line:
            next_line = time.monotonic() + PLAIN_SECONDS
            _print_line("progress", progress)
        yield progress


def print_end_line(run: Run, snapshot: Snapshot | None, command: str) -> None:
    """Print how it ended; of a run that was left at once, and may not have ended yet, what was known last."""
    known = (run.lastProgress or {}) if run.isActive else run.status
    _print_line("end", {**known, "snapshot": snapshot.id if snapshot else None, "goOn": command})


def _print_line(event: str, content: Mapping[str, Any]) -> None:
    typer.echo(json.dumps(as_json({"event": event, **content}), separators=(",", ":")))
