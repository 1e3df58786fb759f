"""The command ``cutline run``, which submits a graph, shows the progress of the run, and ends with the run.

With ``--json`` progress is printed as JSON for other programs, one document per line::

    {"event": "progress", ...}      about every two seconds: `Run.lastProgress`
    {"event": "end", ...}           once: `Run.status`, "snapshot", the id of the last snapshot if a signal took one,
                                    and "goOn", the command that resumes the run
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
from barrier_runtime.cli.interrupts import SIGNAL_EXIT_CODE, Interrupts, ended_by_sigterm, signals_as_before
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
    """Print the progress of `run` until the run has ended. Yield each polled report, so that the caller may act."""
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
    """Print the end of `run`. A run that was stopped at once may still be active: then print its last progress."""
    known = (run.lastProgress or {}) if run.isActive else run.status
    _print_line("end", {**known, "snapshot": snapshot.id if snapshot else None, "goOn": command})


def _print_line(event: str, content: Mapping[str, Any]) -> None:
    typer.echo(json.dumps(as_json({"event": event, **content}), separators=(",", ":")))


@dataclass(frozen=True, slots=True)
class RunRequest:
    """Arguments of ``cutline run``."""

    graph: str  #: ``MODULE:GRAPH``
    name: str | None  #: name of the run, or None for the graph's name
    backend: StateBackend
    master: str
    settings: Mapping[str, str]  #: settings of the Spark session
    python_files: Sequence[Path]
    log_path: Path | None  #: log of Spark and the workers, or None for a temporary file
    snapshot_timeout: float  #: seconds after which a snapshot is aborted
    restore_from: str | int | None  #: "latest" or a snapshot id, or None for a fresh start
    allow: Collection[str]
    options: Mapping[str, Any]  #: further arguments of `BarrierRuntime`
    as_json: bool  #: whether progress goes to standard output as JSON lines


def run_graph(request: RunRequest, resume_arguments: Sequence[str], console: Console) -> int:
    """Run a graph until the run has ended or a signal has stopped the run. Return the exit code.

    Parameters
    ----------
    request : RunRequest
    resume_arguments : sequence of str
        The command that resumes this run, without name and backend.
    console : Console
        Console for all output except JSON.

    Raises
    ------
    CutlineError
        if the graph cannot be found, built or run.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(ended_by_sigterm())
        place = find_graph(request.graph)  # before Spark starts, because Spark takes seconds to start
        with console.status("starting Spark"):
            session = spark_session(request.master, settings=request.settings, log_path=request.log_path)
            spark = stack.enter_context(session)
        # The folder exists until the run has ended, because executors may fetch its files at any time.
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
    with signals_as_before():
        return runtime.submit(graph, name=request.name, restoreFrom=request.restore_from, allow=request.allow)


def _print_end(run: Run, interrupts: Interrupts, command: str, console: Console) -> int:
    """Print how the run ended and how to resume the run. Return the exit code."""
    if interrupts.first is not None and (run.isActive or run.status["outcome"] == Outcome.STOPPED.value):
        snapshot = interrupts.snapshot
        how = f"with snapshot {snapshot.id}" if snapshot else "at once; it goes on from its newest snapshot"
        _print(console, f"run {run.name} stopped {how}", "To go on:", f"  {command}")
        return SIGNAL_EXIT_CODE + interrupts.first
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
