"""Commands ``cutline demo``, which run the programs of `demos`, each in a Spark session of its own."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from cutline.barrier_runtime.cli.session import default_master, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

app = typer.Typer(no_args_is_help=True, help="Programs that show what Cutline does.")


@app.command()
def wordcount(
    folder: Annotated[
        Path | None,
        typer.Option("--input", exists=True, file_okay=False, help="Text; default: the standard library of Python."),
    ] = None,
    output: Annotated[Path | None, typer.Option(help="A new folder for the counts; default: a temporary one.")] = None,
    parallelism: Annotated[int, typer.Option(min=1, help="Subtasks of each node, and workers.")] = 2,
    interval: Annotated[float, typer.Option(min=0.05, help="Seconds between snapshots.")] = 1.0,
    kill: Annotated[bool, typer.Option("--kill/--no-kill", help="Kill a worker process halfway.")] = True,
) -> None:
    """Count the words of real text, kill a worker halfway, and compare with Spark's own count.

    Example: `cutline demo wordcount --parallelism 4`
    """
    console = Console()
    with _demo_session(parallelism, console) as spark:
        is_equal = _demo("wordcount").run_demo(
            spark, console, folder=folder, output=output, parallelism=parallelism, interval=interval, kill=kill
        )
    raise typer.Exit(0 if is_equal else 1)


@app.command()
def bank(
    seconds: Annotated[float, typer.Option(min=1, help="How long money moves, without counting repetitions.")] = 10.0,
    accounts: Annotated[int, typer.Option(min=2, help="Each with a channel to every other.")] = 8,
    interval: Annotated[float, typer.Option(min=0.05, help="Seconds between snapshots.")] = 0.5,
) -> None:
    """Move money around in cycles, kill workers again and again, and check the sum in every snapshot.

    Example: `cutline demo bank --seconds 30`
    """
    console, module = Console(), _demo("bank")
    with _demo_session(module.WORKERS, console) as spark:
        is_constant = module.run_demo(spark, console, seconds=seconds, accounts=accounts, interval=interval)
    raise typer.Exit(0 if is_constant else 1)


@contextlib.contextmanager
def _demo_session(workers: int, console: Console) -> Iterator[SparkSession]:
    with contextlib.ExitStack() as stack:
        with console.status("starting Spark"):
            spark = stack.enter_context(spark_session(default_master(workers)))
        yield spark


def _demo(name: str) -> Any:
    # Imported by name, because the demos depend on the runtime, and the runtime must not depend on the demos.
    return importlib.import_module(f"cutline.demos.{name}")
