"""Commands of `cutline`, run in this process."""

from __future__ import annotations

from functools import cache
from typing import Any
from unittest.mock import patch

import typer.testing
from typer.main import get_command

from cutline.barrier_runtime.cli import app

#: Makes the commands once, because that reads the annotations of all of them, which takes 0.05 s.
_made_once = cache(get_command)


def invoke(*arguments: object, columns: int = 200) -> Any:
    """Run a command, as if on a terminal that is so wide; its output is that of both streams."""
    words = [str(argument) for argument in arguments]
    with patch.object(typer.testing, "_get_command", _made_once):
        return typer.testing.CliRunner().invoke(app, words, env={"COLUMNS": str(columns)}, prog_name="cutline")
