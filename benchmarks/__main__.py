"""``python -m benchmarks [NAME ...] [--json]``: measure, and print a table or one JSON object a line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from importlib import import_module
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.effort import QUICK_REPEATS, QUICK_SECONDS, REPEATS, STEADY_SECONDS, Effort
from benchmarks.result import Result
from benchmarks.session import Place, session
from benchmarks.table import table_of


class Name(Enum):
    """The benchmarks, in the order in which they run; each is a module with a function ``measure``."""

    CHANNEL = "channel"
    MESSAGE_FLOOR = "message-floor"
    KEYED_MESSAGES = "keyed-messages"
    KEYED_BATCHES = "keyed-batches"
    SNAPSHOT = "snapshot"
    RECOVERY = "recovery"
    SCALE = "scale"
    SIMULATION = "simulation"
    PAGE = "page"


def main(
    names: Annotated[
        list[Name] | None, typer.Argument(metavar="[NAME]...", help="; ".join(n.value for n in Name))
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line; the table goes to stderr.")] = False,
    seconds: Annotated[float | None, typer.Option(help=f"Of steady state; default {STEADY_SECONDS:g}.")] = None,
    repeats: Annotated[int | None, typer.Option(help=f"Runs of a configuration; default {REPEATS}.")] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="Only show that it works; its figures say that they are quick.")
    ] = False,
) -> None:
    """Measure, and print what came out. Fails when something was computed wrongly."""
    default_seconds, default_repeats = (QUICK_SECONDS, QUICK_REPEATS) if quick else (STEADY_SECONDS, REPEATS)
    effort = Effort(seconds or default_seconds, repeats or default_repeats, quick)
    console = Console(stderr=as_json, width=None if Console(stderr=as_json).is_terminal else 240)
    with session() as place:
        for name in names or list(Name):
            results = []
            for result in _measure_of(name)(effort, place):
                results.append(result)
                if as_json:
                    typer.echo(result.json())
            console.print(table_of(results), "")


def _measure_of(name: Name) -> Callable[[Effort, Place], Iterator[Result]]:
    # Imported when its turn comes: most need Spark and Ray, which take seconds to import.
    module = import_module(f"benchmarks.{name.value.replace('-', '_')}")
    measure: Callable[[Effort, Place], Iterator[Result]] = module.measure
    return measure


if __name__ == "__main__":
    typer.run(main)
