"""The commands ``cutline run``, ``restore`` and ``fork``: submit a graph, show its progress, and end with the run.

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
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from cutline.barrier_runtime.cli.formatting import as_json, verdict_lines
from cutline.barrier_runtime.cli.graph_loader import find_graph, python_file
from cutline.barrier_runtime.cli.interrupts import SIGNAL_EXIT_CODE, Interrupts, ended_by_sigterm, signals_as_before
from cutline.barrier_runtime.cli.options import RunRequest
from cutline.barrier_runtime.cli.progress import PLAIN_SECONDS, POLL_SECONDS, watch
from cutline.barrier_runtime.cli.session import ship, spark_session
from cutline.barrier_runtime.cli.stored import find_snapshot, known_run
from cutline.barrier_runtime.page.commands import parallelism_text
from cutline.snapshot.coordinator.run_state import Outcome
from cutline.snapshot.stored.run_store import RunStore, stored_history
from cutline.snapshot.stored.snapshot import Snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cutline.barrier_runtime.driver.run import Run
    from cutline.snapshot.graph import Graph


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
    _print_line("end", {**_last_report(run), "snapshot": snapshot.id if snapshot else None, "goOn": command})


def _last_report(run: Run) -> Mapping[str, Any]:
    """Return the newest report that needs no request, because a run that was stopped at once may not answer."""
    return (run.lastProgress or {}) if run.isActive else run.status


def _print_line(event: str, content: Mapping[str, Any]) -> None:
    typer.echo(json.dumps(as_json({"event": event, **content}), separators=(",", ":")))


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
        _check_snapshot(request, request.name or place.graph_name)
        with console.status("starting Spark"):
            session = spark_session(request.master, settings=request.settings, log_path=request.log_path)
            spark = stack.enter_context(session)
        # The folder exists until the run has ended, because executors may fetch its files at any time.
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="cutline-"))
        with console.status("submitting the graph"):
            module = python_file(place.module, Path(folder))
            ship(spark, [*request.python_files, *([module] if module else [])])
            declared = place.graph(spark)
            graph = declared.withParallelism(request.parallelism)
            _check_snapshot(request, request.name or graph.name)
            run = _submit(request, graph, spark)
        with Interrupts(run, console, request.snapshot_timeout) as interrupts:
            for _ in progress_lines(run) if request.as_json else watch(run, graph, console):
                if interrupts.check():
                    break
        command = shlex.join(_resume_command(request, resume_arguments, run, declared))
        if request.as_json:
            print_end_line(run, interrupts.snapshot, command)
        return _print_end(run, interrupts, command, console)


def _check_snapshot(request: RunRequest, name: str | None) -> None:
    """Refuse to restore a snapshot that is not there. Without a name the check follows when the graph is made."""
    if request.needs_snapshot and name is not None:
        wish, backend = request.restore_from, request.checked_backend
        find_snapshot(backend, known_run(backend, name), wish if isinstance(wish, int) else None)


def _resume_command(request: RunRequest, arguments: Sequence[str], run: Run, declared: Graph) -> list[str]:
    """Return the command that goes on with `run`. A fork without a snapshot of its own is forked again.

    The parallelism is that of the run's end, because the run may have been rescaled. What may be lost is allowed again
    until a snapshot of this start was published, because it is restored once more.
    """
    report = _last_report(run)
    is_restored_again = not any(each["state"] == "published" for each in report.get("snapshotReports", ()))
    allow = [word for each in request.allow for word in ("--allow", each) if is_restored_again]
    now = {name: node["parallelism"] for name, node in report.get("nodes", {}).items()} or request.parallelism
    changed = {
        each.name: now[each.name] for each in declared.nodes if now.get(each.name, each.parallelism) != each.parallelism
    }
    parallelism = ["--parallelism", parallelism_text(changed)] if changed else []
    place = [*parallelism, *allow, "--name", run.name, "--backend", str(request.backend)]
    origin = request.restore_from
    if isinstance(origin, Snapshot) and not stored_history(RunStore(request.checked_backend, run.name)):
        return [*arguments[:1], "fork", *arguments[2:], "--run", origin.run, "--from", str(origin.id), *place]
    return [*arguments, *place]


def _submit(request: RunRequest, graph: Graph, spark: SparkSession) -> Run:
    from cutline.barrier_runtime.driver.runtime import BarrierRuntime

    runtime = BarrierRuntime(
        spark, backend=request.backend, snapshotTimeout=request.snapshot_timeout, **request.options
    )
    with signals_as_before():
        return runtime.submit(
            graph, name=request.name, restoreFrom=request.restore_from, allow=request.allow, mode=request.mode
        )


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
    restarts = status["restartCount"]
    _print(console, f"run {run.name} {status['outcome']}: {status['reason']}; {restarts} restarts")
    if status["outcome"] == Outcome.STOPPED.value:
        _print(console, "To go on:", f"  {command}")
    return 1 if complaints else 0


def _print(console: Console, *lines: str) -> None:
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
