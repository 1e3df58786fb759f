"""The command ``cutline plan``: show what a start of a program would restore, and change nothing."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from cutline.barrier_runtime.cli.completion import complete_run, complete_snapshot
from cutline.barrier_runtime.cli.formatting import print_all, print_json
from cutline.barrier_runtime.cli.graph_loader import find_graph
from cutline.barrier_runtime.cli.options import (
    DEFAULT_BACKEND,
    MODE_OPTION,
    AllowOption,
    ParallelismOption,
    mode_wish,
    parallelism_wish,
)
from cutline.barrier_runtime.cli.session import default_master, spark_session
from cutline.barrier_runtime.cli.snapshot_commands import JsonOption, KeyOption
from cutline.barrier_runtime.cli.stored import find_snapshot, known_run, open_backend
from cutline.snapshot.graph import Graph
from cutline.snapshot.stored.run_store import RunStore

GraphArgument = Annotated[
    str, typer.Argument(metavar="MODULE:GRAPH", help="A Graph, or a function that returns one: f() or f(spark).")
]
MasterOption = Annotated[str | None, typer.Option(help="Spark's master, for a function of the SparkSession.")]
LogOption = Annotated[Path | None, typer.Option(help="Log of Spark; default: a temporary file.")]


def plan(
    graph: GraphArgument,
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="Name of the run; default: the graph's.", autocompletion=complete_run),
    ] = None,
    backend: Annotated[str, typer.Option(metavar="URL", help="Where snapshots are kept: a folder or a URL.")] = (
        DEFAULT_BACKEND
    ),
    restore_from: Annotated[
        str,
        typer.Option(
            metavar="ID", help="latest, none (a fresh start), or a snapshot's id.", autocompletion=complete_snapshot
        ),
    ] = "latest",
    allow: AllowOption = None,
    parallelism: ParallelismOption = None,
    mode: Annotated[str | None, MODE_OPTION] = None,
    master: MasterOption = None,
    log: LogOption = None,
    key_file: KeyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what `cutline run` would restore, line by line, or why it would refuse. Nothing starts or changes.

    Without --mode the mode is that of the snapshot. Exits with 1 if the restore is refused. Spark starts only for a
    graph that a function of the session makes.

    Example: `cutline plan jobs.bank:graph --backend /data/snapshots`
    """
    from cutline.barrier_runtime.driver.restore_check import plan_of

    wish: str | int | None = None if restore_from == "none" else restore_from
    if isinstance(wish, str) and wish != "latest":
        try:
            wish = int(wish)
        except ValueError:
            raise typer.BadParameter(
                f"--restore-from {restore_from}: give latest, none, or the id of a snapshot"
            ) from None
    of_run = None if mode is None else mode_wish(mode)
    records = open_backend(backend, key_file)
    wanted = parallelism_wish(parallelism)
    made = load_graph(graph, master, log).withParallelism(wanted)
    run = name or made.name
    if isinstance(wish, int):
        find_snapshot(records, known_run(records, run), wish)
    found = plan_of(run, made, wish, allow or (), lambda run: RunStore(records, run), of_run)
    if as_json:
        print_json(found.as_dict())
    else:
        print_all(str(found))
    if found.isRefused:
        raise typer.Exit(1)


def load_graph(reference: str, master: str | None, log: Path | None) -> Graph:
    """Return the graph of ``MODULE:GRAPH``. Start Spark only for a function of the session."""
    place = find_graph(reference)
    with contextlib.ExitStack() as stack:
        needs = place.needs_spark
        session = stack.enter_context(spark_session(master or default_master(), log_path=log)) if needs else None
        return place.graph(session)
