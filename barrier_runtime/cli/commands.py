"""The command `cutline`: its commands, options and exit codes. The other modules of this package do the work."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any

import typer
from rich.console import Console

from cutline.barrier_runtime.cli import demo_commands, snapshot_commands
from cutline.barrier_runtime.cli.completion import complete_run, complete_snapshot
from cutline.barrier_runtime.cli.formatting import plain
from cutline.barrier_runtime.cli.live_run import rescale, stop
from cutline.barrier_runtime.cli.modes_command import modes
from cutline.barrier_runtime.cli.options import RunRequest, resume_arguments, run_request, with_run_options
from cutline.barrier_runtime.cli.plan_command import plan
from cutline.barrier_runtime.cli.snapshot_edit_commands import delete, pin, take, unpin
from cutline.barrier_runtime.cli.stored import find_fork
from cutline.barrier_runtime.cli.top import top
from cutline.snapshot.errors import CutlineError

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # because only then are paragraphs wrapped to the terminal
    help="Consistent snapshots, and recovery, for Python programs on a Spark barrier stage.",
    epilog="Exit codes: 0 done; 1 failed, damaged or violated; 2 wrong arguments; 130, 143 stopped by Ctrl-C, SIGTERM.",
)


def main() -> None:
    """Run the command line."""
    _log_to_standard_error()
    try:
        app(prog_name="cutline")
    except (CutlineError, OSError) as error:
        for line in (f"error: {error}", *getattr(error, "__notes__", [])):
            Console(stderr=True).print(plain(line), markup=False, highlight=False, soft_wrap=True)
        sys.exit(1)


@app.command()
@with_run_options
def run(
    context: typer.Context,
    restore_from: Annotated[
        str,
        typer.Option(
            metavar="ID", help="latest, none (a fresh start), or a snapshot's id.", autocompletion=complete_snapshot
        ),
    ] = "latest",
    **options: Any,
) -> None:
    """Run a graph with snapshots; goes on from the newest snapshot if the run has one.

    Ctrl-C or SIGTERM stops the run with a snapshot and says how to go on; a second one stops it at once.

    Example: `cutline run jobs.bank:graph --backend /data/snapshots --interval 1`
    """
    wish = None if restore_from == "none" else _snapshot_wish("--restore-from", restore_from, ("latest", "none"))
    _start(context, replace(run_request(**options), restore_from=wish, needs_snapshot=isinstance(wish, int)))


@app.command()
@with_run_options
def restore(
    context: typer.Context,
    snapshot: Annotated[
        str,
        typer.Option("--from", metavar="ID", help="latest, or a snapshot's id.", autocompletion=complete_snapshot),
    ] = "latest",
    **options: Any,
) -> None:
    """Run a graph from a stored snapshot of its run. A run without a snapshot is refused, unlike by `cutline run`.

    Later snapshots leave the history of the run. Only pinned ones can be restored again.

    Example: `cutline restore jobs.bank:graph --backend /data/snapshots --from 7000042`
    """
    wish = _snapshot_wish("--from", snapshot, ("latest",))
    _start(context, replace(run_request(**options), restore_from=wish, needs_snapshot=True))


@app.command()
@with_run_options
def fork(
    context: typer.Context,
    name: Annotated[str, typer.Option(help="Name of the new run.")],
    origin: Annotated[
        str | None,
        typer.Option("--run", help="Name of the run to fork; default: the only one.", autocompletion=complete_run),
    ] = None,
    snapshot: Annotated[
        str,
        typer.Option("--from", metavar="ID", help="latest, or a snapshot's id.", autocompletion=complete_snapshot),
    ] = "latest",
    **options: Any,
) -> None:
    """Run a graph under a new name, from a stored snapshot of another run. The other run is not changed.

    The new run must have no snapshot of its own yet.

    Example: `cutline fork jobs.bank:graph --backend /data/snapshots --run bank --from 7000042 --name bank-test`
    """
    wish = _snapshot_wish("--from", snapshot, ("latest",))
    request = run_request(name=name, **options)
    found = find_fork(request.checked_backend, origin, None if wish == "latest" else int(wish), name)
    _start(context, replace(request, restore_from=found))


def _start(context: typer.Context, request: RunRequest) -> None:
    from cutline.barrier_runtime.cli.run_command import run_graph

    raise typer.Exit(run_graph(request, resume_arguments(context), Console(stderr=request.as_json)))


app.command("plan")(plan)
app.command("modes")(modes)
app.command("runs")(snapshot_commands.list_runs)
app.add_typer(snapshot_commands.app, name="snapshots")
for _command in (take, pin, unpin, delete):
    snapshot_commands.app.command()(_command)
app.command("top")(top)
app.command("stop")(stop)
app.command("rescale")(rescale)
app.add_typer(demo_commands.app, name="demo")


def _snapshot_wish(option: str, wish: str, words: Sequence[str]) -> str | int:
    if wish in words:
        return wish
    try:
        return int(wish)
    except ValueError:
        raise typer.BadParameter(f"{option} {wish}: give {', '.join(words)}, or the id of a snapshot") from None


class _StandardError(logging.Handler):
    """Writes to the present standard error, which a live display replaces so that lines appear above the display."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write one line."""
        sys.stderr.write(self.format(record) + "\n")


def _log_to_standard_error() -> None:
    """Send the driver's warnings to the terminal.

    Workers use the level of this logger, and write to the log of the session.
    """
    handler = _StandardError()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    logger = logging.getLogger("cutline")
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    # Silenced, because this logger only reports that authentication is on, as Cutline configures Ray.
    logging.getLogger("ray._private.authentication.authentication_token_setup").setLevel(logging.ERROR)
