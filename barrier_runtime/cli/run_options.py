"""The options that ``cutline run``, ``restore`` and ``fork`` share, and the command that goes on with a run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cutline.barrier_runtime.cli.completion import complete_run
from cutline.barrier_runtime.cli.mode_option import MODE_OPTION, mode_wish
from cutline.barrier_runtime.cli.session import default_master
from cutline.barrier_runtime.cli.snapshot_commands import KeyOption
from cutline.barrier_runtime.cli.start_options import AllowOption, ParallelismOption, parallelism_wish
from cutline.barrier_runtime.cli.stored import open_unsigned, signing_key
from cutline.barrier_runtime.page.settings import PORT_DEFAULT, Page
from cutline.snapshot.plan.modes import MARKERS, ModeWish
from cutline.snapshot.stored.signed import with_signing_key

if TYPE_CHECKING:
    from cutline.snapshot.stored.backend import StateBackend
    from cutline.snapshot.stored.snapshot import Snapshot

#: folder or URL of snapshots when no `--backend` is given
DEFAULT_BACKEND = "snapshots"

#: options of one start, which the command that goes on does not repeat
_OF_ONE_START = ("name", "backend", "restore_from", "allow", "parallelism", "snapshot", "origin", "graph")


@dataclass(frozen=True, slots=True)
class RunRequest:
    """Arguments of ``cutline run``, ``restore`` and ``fork``."""

    graph: str  #: ``MODULE:GRAPH``
    name: str | None  #: name of the run, or None for the graph's name
    backend: StateBackend
    master: str
    settings: Mapping[str, str]  #: settings of the Spark session
    python_files: Sequence[Path]
    log_path: Path | None  #: log of Spark and the workers, or None for a temporary file
    snapshot_timeout: float  #: seconds after which a snapshot is aborted
    #: "latest" or a snapshot id; a snapshot of the run to fork; None for a fresh start
    restore_from: str | int | Snapshot | None
    needs_snapshot: bool  #: whether a run without the snapshot is refused instead of started afresh
    allow: Collection[str]
    parallelism: Mapping[str, int]  #: numbers of subtasks by node, instead of those of the graph
    mode: ModeWish
    options: Mapping[str, Any]  #: further arguments of `BarrierRuntime`
    as_json: bool  #: whether progress goes to standard output as JSON lines

    @property
    def checked_backend(self) -> StateBackend:
        """The backend behind the check of signatures, if there is a key. `BarrierRuntime` adds the check itself."""
        return with_signing_key(self.backend, self.options["signingKey"])


def run_request(
    *,
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
    mode: Annotated[str, MODE_OPTION] = MARKERS,
    allow: AllowOption = None,
    parallelism: ParallelismOption = None,
    master: Annotated[
        str | None, typer.Option(help="Spark's master, or sc://host:port; default: local, with a spare slot.")
    ] = None,
    conf: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="Setting of the Spark session.")] = None,
    py_files: Annotated[
        list[Path] | None,
        typer.Option(exists=True, dir_okay=False, help=".py or .zip that nodes import; repeat it for more."),
    ] = None,
    ray: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="An existing Ray; default: one of its own.")
    ] = None,
    key_file: KeyOption = None,
    safe: Annotated[bool, typer.Option("--safe", help="Refuse pickle in messages and states.")] = False,
    page: Annotated[
        str, typer.Option(metavar="WISH", help="Live page: none, a port, or HOST:PORT; the next free port is taken.")
    ] = f"127.0.0.1:{PORT_DEFAULT}",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print progress as JSON, one document a line, and words to standard error.")
    ] = False,
    log: Annotated[Path | None, typer.Option(help="Log of Spark and the workers; default: a temporary file.")] = None,
) -> RunRequest:
    """Return what the options ask for. The run goes on from its newest snapshot, if any."""
    return RunRequest(
        graph=graph,
        name=name,
        backend=open_unsigned(backend),
        master=master or default_master(workers),
        settings=_settings(conf or []),
        python_files=py_files or [],
        log_path=log,
        snapshot_timeout=timeout,
        restore_from="latest",
        needs_snapshot=False,
        allow=allow or [],
        parallelism=parallelism_wish(parallelism),
        mode=mode_wish(mode),
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


def with_run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `run_request` after its own. An option of its own replaces a shared one."""
    own = [each for each in _parameters(command) if each.kind is not inspect.Parameter.VAR_KEYWORD]
    names = [each.name for each in own]
    shared = [each for each in _parameters(run_request) if each.name not in names]
    keywords = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in (*own, *shared)]
    command.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]  # which typer reads
    return command


def resume_arguments(context: typer.Context) -> list[str]:
    """Return the command that goes on with the run: without name and backend, and without options of one start."""
    arguments = ["cutline", "run", context.params["graph"]]
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if source is None or source.name != "COMMANDLINE" or parameter.name in _OF_ONE_START:
            continue
        value = context.params[parameter.name or ""]
        for each in value if isinstance(value, list | tuple) else [value]:
            arguments += [parameter.opts[0]] if each is True else [parameter.opts[0], str(each)]
    return arguments


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return [*inspect.signature(function, eval_str=True).parameters.values()]


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


def _page(wish: str) -> Page | bool:
    if wish == "none":
        return False
    host, _, port = wish.rpartition(":")
    try:
        return Page(host=host.strip("[]"), port=int(port)) if host else Page(port=int(port))
    except ValueError as error:
        raise typer.BadParameter(f"--page {wish}: give none, a port, or HOST:PORT ({error})") from None
