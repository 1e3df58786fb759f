"""The command `cutline`: its commands, options and exit codes. The other modules of this package do the work."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from barrier_runtime.cli import demo_commands, snapshot_commands
from barrier_runtime.cli.completion import complete_run, complete_snapshot
from barrier_runtime.cli.formatting import plain
from barrier_runtime.cli.session import default_master
from barrier_runtime.cli.stored import open_unsigned, signing_key
from barrier_runtime.cli.top import top
from barrier_runtime.page.settings import PORT_DEFAULT, Page
from snapshot.errors import CutlineError

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",  # because only then are paragraphs wrapped to the terminal
    help="Consistent snapshots, and recovery, for Python programs on a Spark barrier stage.",
    epilog="Exit codes: 0 done; 1 failed, damaged or violated; 2 wrong arguments; 130, 143 stopped by Ctrl-C, SIGTERM.",
)

#: folder or URL of snapshots when no `--backend` is given
DEFAULT_BACKEND = "snapshots"


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
def run(
    context: typer.Context,
    graph: Annotated[
        str, typer.Argument(metavar="MODULE:GRAPH", help="A Graph, or a function that returns one: f() or f(spark).")
    ],
    name: Annotated[
        str | None, typer.Option(help="Name of the run; default: the graph's.", autocompletion=complete_run)
    ] = None,
    backend: Annotated[str, typer.Option(metavar="URL", help="Where snapshots are kept: a folder or a URL.")] = (
        DEFAULT_BACKEND
    ),
    workers: Annotated[int | None, typer.Option(min=1, help="Barrier tasks; default: the largest parallelism.")] = None,
    interval: Annotated[float, typer.Option(min=0, help="Seconds between snapshots; 0: only at the end.")] = 10.0,
    timeout: Annotated[float, typer.Option(min=0.001, help="Seconds after which a snapshot is aborted.")] = 600.0,
    retained: Annotated[int, typer.Option(min=1, help="Newest snapshots that are kept.")] = 5,
    alignment: Annotated[
        str, typer.Option(metavar="WISH", help="unaligned, aligned, or seconds: aligned for so long.")
    ] = "unaligned",
    restore_from: Annotated[
        str,
        typer.Option(
            metavar="ID", help="latest, none (a fresh start), or a snapshot's id.", autocompletion=complete_snapshot
        ),
    ] = "latest",
    allow: Annotated[
        list[str] | None, typer.Option(help="May be lost: changedGraph, droppedMessages, droppedState, repeatedOutput.")
    ] = None,
    master: Annotated[
        str | None, typer.Option(help="Spark's master, or sc://host:port; default: local, with a spare slot.")
    ] = None,
    conf: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="Setting of the Spark session.")] = None,
    py_files: Annotated[
        list[Path] | None, typer.Option(exists=True, help=".py or .zip that nodes import; repeat it for more.")
    ] = None,
    ray: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="An existing Ray; default: one of its own.")
    ] = None,
    key_file: snapshot_commands.KeyOption = None,
    safe: Annotated[bool, typer.Option("--safe", help="Refuse pickle in messages and states.")] = False,
    page: Annotated[
        str, typer.Option(metavar="WISH", help="Live page: none, a port, or HOST:PORT; the next free port is taken.")
    ] = f"127.0.0.1:{PORT_DEFAULT}",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print progress as JSON, one document a line, and words to standard error.")
    ] = False,
    log: Annotated[Path | None, typer.Option(help="Log of Spark and the workers; default: a temporary file.")] = None,
) -> None:
    """Run a graph with snapshots; goes on from the newest snapshot if the run has one.

    Ctrl-C or SIGTERM stops the run with a snapshot and says how to go on; a second one stops it at once.
    """
    from barrier_runtime.cli.run_command import RunRequest, run_graph

    request = RunRequest(
        graph=graph,
        name=name,
        backend=open_unsigned(backend),
        master=master or default_master(workers),
        settings=_settings(conf or []),
        python_files=py_files or [],
        log_path=log,
        snapshot_timeout=timeout,
        restore_from=_restore_from(restore_from),
        allow=allow or [],
        options={
            "workers": workers,
            "snapshotInterval": interval or None,
            "retainedSnapshots": retained,
            "alignment": _alignment(alignment),
            "rayAddress": ray,
            "safe": safe,
            "signingKey": signing_key(key_file),
            "page": _page(page),
        },
        as_json=as_json,
    )
    raise typer.Exit(run_graph(request, _resume_arguments(context), Console(stderr=as_json)))


app.command("runs")(snapshot_commands.list_runs)
app.add_typer(snapshot_commands.app, name="snapshots")
app.command("top")(top)
app.add_typer(demo_commands.app, name="demo")


def _settings(pairs: list[str]) -> dict[str, str]:
    wrong = [pair for pair in pairs if "=" not in pair]
    if wrong:
        raise typer.BadParameter(f"--conf {wrong[0]}: give KEY=VALUE")
    return dict(pair.split("=", 1) for pair in pairs)


def _alignment(wish: str) -> str | float:
    if wish in ("unaligned", "aligned"):
        return wish
    try:
        return float(wish)
    except ValueError:
        raise typer.BadParameter(f"--alignment {wish}: give unaligned, aligned, or a number of seconds") from None


def _restore_from(wish: str) -> str | int | None:
    if wish in ("latest", "none"):
        return "latest" if wish == "latest" else None
    try:
        return int(wish)
    except ValueError:
        raise typer.BadParameter(f"--restore-from {wish}: give latest, none, or the id of a snapshot") from None


def _page(wish: str) -> Page | bool:
    if wish == "none":
        return False
    host, _, port = wish.rpartition(":")
    try:
        return Page(host=host.strip("[]"), port=int(port)) if host else Page(port=int(port))
    except ValueError as error:
        raise typer.BadParameter(f"--page {wish}: give none, a port, or HOST:PORT ({error})") from None


def _resume_arguments(context: typer.Context) -> list[str]:
    """Return the present command line without name and backend, and without options that hold for one start only."""
    once = ("name", "backend", "restore_from", "allow")
    arguments = ["cutline", "run", context.params["graph"]]
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is None or source.name != "COMMANDLINE" or parameter.name in (*once, "graph"):
            continue
        value = context.params[parameter.name or ""]
        for each in value if isinstance(value, list | tuple) else [value]:
            arguments += [parameter.opts[0]] if each is True else [parameter.opts[0], str(each)]
    return arguments


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


if __name__ == "__main__":
    main()
