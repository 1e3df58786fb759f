"""Commands of `cutline`, run in this process."""

from __future__ import annotations

from typing import Any

from typer.testing import CliRunner

from cutline.barrier_runtime.cli import app


def invoke(*arguments: object, columns: int = 200) -> Any:
    """Run a command, as if on a terminal that is so wide; its output is that of both streams."""
    words = [str(argument) for argument in arguments]
    return CliRunner().invoke(app, words, env={"COLUMNS": str(columns)}, prog_name="cutline")
