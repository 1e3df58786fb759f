"""The options ``--allow`` and ``--parallelism`` of commands that start a graph or plan a start.

What is wrong with them is refused before Spark starts.
"""

from __future__ import annotations

from typing import Annotated

import typer

from cutline.barrier_runtime.page.commands import parse_parallelism
from cutline.snapshot.coordinator.recovery import ALLOWANCES, check_allowances


def _checked(names: list[str] | None) -> list[str]:
    try:
        return list(check_allowances(names or []))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


AllowOption = Annotated[
    list[str] | None,
    typer.Option(help=f"May be lost: {', '.join(ALLOWANCES)}.", callback=_checked, autocompletion=lambda: ALLOWANCES),
]

ParallelismOption = Annotated[
    str | None,
    typer.Option(metavar="NODE=N,...", help="Numbers of subtasks of nodes; other nodes have those of the graph."),
]


def parallelism_wish(text: str | None) -> dict[str, int]:
    """Return the numbers of subtasks by node that ``--parallelism`` names."""
    try:
        return parse_parallelism(text) if text else {}
    except ValueError as error:
        raise typer.BadParameter(f"--parallelism {text}: {error}") from None
