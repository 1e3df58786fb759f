"""``cutline run``: submits a graph, shows how it goes, and ends with it.

With ``--json`` progress is printed as JSON, one document a line, for programs that read along::

    {"event": "progress", ...}      about every two seconds: `Run.lastProgress`
    {"event": "end", ...}           once: `Run.status`, and "snapshot", the last one's id if Ctrl-C took one, and
                                    "goOn", the command that goes on with the run
"""

from __future__ import annotations

import contextlib
import json
import shlex
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from barrier_runtime.cli.formatting import as_json, verdict_lines
from barrier_runtime.cli.graph_loader import find_graph, python_file
from barrier_runtime.cli.interrupts import Interrupts
from barrier_runtime.cli.progress import PLAIN_SECONDS, POLL_SECONDS, watch
from barrier_runtime.cli.session import ship, spark_session
from snapshot.coordinator.run_state import Outcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from barrier_runtime.driver.run import Run
    from snapshot.graph import Graph
    from snapshot.stored.backend import StateBackend
    from snapshot.stored.snapshot import Snapshot


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


#: As a program that was ended by Ctrl-C.
EXIT_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class RunRequest:
    """Arguments of ``cutline run``."""

    graph: str  #: MODULE:GRAPH
    name: str | None
    backend: StateBackend
    master: str
    settings: Mapping[str, str]  #: of the Spark session
    python_files: Sequence[Path]
    log_path: Path | None
    snapshot_timeout: float
    restore_from: str | int | None
    allow: Collection[str]
    options: Mapping[str, Any]  #: further arguments of `BarrierRuntime`
    as_json: bool  #: progress goes to standard output as JSON lines


def run_graph(request: RunRequest, resume_arguments: Sequence[str], console: Console) -> int:
    """Run a graph until it has ended or Ctrl-C was pressed; returns the exit code.

    Parameters
    ----------
    request : RunRequest
    resume_arguments : sequence of str
        The command that goes on with this run, but for name and backend.
    console : Console
        For words.

    Raises
    ------
    CutlineError
        if the graph cannot be found, built or run.
    """
    place = find_graph(request.graph)  # before Spark starts, which takes seconds
    with contextlib.ExitStack() as stack:
        with console.status("starting Spark"):
            session = spark_session(request.master, settings=request.settings, log_path=request.log_path)
            spark = stack.enter_context(session)
        # Executors fetch files from where they are: for as long as the run lives.
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="cutline-"))
        with console.status("submitting the graph"):
            module = python_file(place.module, Path(folder))
            ship(spark, [*request.python_files, *([module] if module else [])])
            graph = place.graph(spark)
            run = _submit(request, graph, spark)
        with Interrupts(run, console, request.snapshot_timeout) as interrupts:
            for _ in progress_lines(run) if request.as_json else watch(run, graph, console):
                if interrupts.check():
                    break
        command = shlex.join([*resume_arguments, "--name", run.name, "--backend", str(request.backend)])
        if request.as_json:
            print_end_line(run, interrupts.snapshot, command)
        return _print_end(run, interrupts, command, console)


def _submit(request: RunRequest, graph: Graph, spark: SparkSession) -> Run:
    from barrier_runtime.driver.runtime import BarrierRuntime

    runtime = BarrierRuntime(
        spark, backend=request.backend, snapshotTimeout=request.snapshot_timeout, **request.options
    )
    return runtime.submit(graph, name=request.name, restoreFrom=request.restore_from, allow=request.allow)


def _print_end(run: Run, interrupts: Interrupts, command: str, console: Console) -> int:
    """Say how it ended, and how to go on; returns the exit code."""
    if interrupts.count and (run.isActive or run.status["outcome"] == Outcome.STOPPED.value):
        snapshot = interrupts.snapshot
        how = f"with snapshot {snapshot.id}" if snapshot else "at once; it goes on from its newest snapshot"
        _print(console, f"run {run.name} stopped {how}", "To go on:", f"  {command}")
        return EXIT_INTERRUPTED
    run.awaitTermination()
    status = run.status
    complaints = verdict_lines(status["invariants"])
    _print(console, *complaints)
    restarts = len(status["restarts"])
    _print(console, f"run {run.name} {status['outcome']}: {status['reason']}; {restarts} restarts")
    return 1 if complaints else 0


def _print(console: Console, *lines: str) -> None:
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
