"""The options of commands that start a graph or plan a start: ``cutline run``, ``restore``, ``fork`` and ``plan``.

Wrong values are refused before Spark starts. ``--mode MODE[:SETTING=VALUE,...]`` names the modes of
`snapshot.plan.modes` and their settings. No mode is named here: the settings of a mode are the fields of its class, and
the type of a field decides how a value is read.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_args, get_origin, get_type_hints

import typer

from cutline.barrier_runtime.cli.completion import complete_run
from cutline.barrier_runtime.cli.session import default_master
from cutline.barrier_runtime.cli.snapshot_commands import KeyOption
from cutline.barrier_runtime.cli.stored import open_unsigned, signing_key
from cutline.barrier_runtime.page.commands import parse_parallelism
from cutline.barrier_runtime.page.settings import PORT_DEFAULT, Page
from cutline.snapshot.coordinator.recovery import ALLOWANCES, check_allowances
from cutline.snapshot.plan.modes import MARKERS, MODES, Mode, ModeWish, mode_of
from cutline.snapshot.stored.signed import with_signing_key

if TYPE_CHECKING:
    from cutline.snapshot.stored.backend import StateBackend
    from cutline.snapshot.stored.snapshot import Snapshot

#: folder or URL of snapshots when no `--backend` is given
DEFAULT_BACKEND = "snapshots"

# ---------------------------------------------------------------- --allow and --parallelism


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


# ---------------------------------------------------------------- --mode

_CLASSES: Final[dict[str, type[Mode]]] = {each.name: each for each in MODES}

#: {type of a setting: (how a text is read, what the text must be)}; of any other type the text itself is the value
_READERS: Final[dict[Any, tuple[Callable[[str], Any], str]]] = {
    bool: (lambda text: {"true": True, "false": False}[text.lower()], "true or false"),
    int: (int, "a whole number"),
    float: (float, "a number"),
}


def complete_mode(incomplete: str) -> list[str]:
    """Return the modes that begin with `incomplete`; after a colon, settings; after an equals sign, values."""
    name, colon, rest = incomplete.partition(":")
    if not colon:
        return [each for each in (MARKERS, *_CLASSES) if each.startswith(name)]
    before, comma, last = rest.rpartition(",")
    setting, equals, value = last.partition("=")
    head = f"{name}:{before}{comma}"
    if not equals:
        return [f"{head}{each}=" for each in _defaults(name) if each.startswith(setting)]
    return [f"{head}{setting}={each}" for each in _choices(name, setting) if each.startswith(value)]


def mode_wish(text: str) -> ModeWish:
    """Return the mode that a user wishes.

    Raises
    ------
    typer.BadParameter
        if there is no such mode or setting, or a setting is missing or has a wrong value.
    """
    name, colon, rest = text.partition(":")
    try:
        if name not in _CLASSES:
            mode_of(name)
        given = _settings(name, rest.split(",") if colon else [])
        return _CLASSES[name](**given) if name in _CLASSES else MARKERS
    except ValueError as error:
        raise typer.BadParameter(f"--mode {text}: {error}") from None


def all_modes() -> dict[str, Mode]:
    """Return each mode with its defaults, and with each other value of a setting that has few, as they are written.

    A setting without a default has a placeholder.
    """
    found: dict[str, Mode] = {}
    for name, mode in _CLASSES.items():
        given: dict[str, Any] = {each: _PLACEHOLDER for each, default in _defaults(name).items() if default is MISSING}
        found[name] = mode(**given)
        for setting, default in _defaults(name).items():
            for text in _choices(name, setting):
                if (value := _value(name, setting, text)) != default:
                    found[f"{name}:{setting}={text}"] = mode(**given, **{setting: value})
    return found


def _settings(name: str, pairs: list[str]) -> dict[str, Any]:
    defaults, given = _defaults(name), dict[str, Any]()
    for pair in pairs:
        setting, equals, value = pair.partition("=")
        if not equals or setting not in defaults or setting in given:
            raise ValueError(f"{pair!r} is no setting, or is given twice; write {_form(name)}")
        given[setting] = _value(name, setting, value)
    missing = [each for each, default in defaults.items() if default is MISSING and each not in given]
    if missing:
        raise ValueError(f"{', '.join(missing)} is not given; write {_form(name)}")
    return given


def _value(name: str, setting: str, text: str) -> Any:
    read, expected = _READERS.get(get_type_hints(_CLASSES[name])[setting], (str, ""))
    try:
        return read(text)
    except (KeyError, ValueError):
        raise ValueError(f"{setting} is {expected}, not {text!r}") from None


def _defaults(name: str) -> dict[str, Any]:
    """Return {setting of a mode: its default, or MISSING}."""
    return {each.name: each.default for each in fields(_CLASSES[name])} if name in _CLASSES else {}


def _choices(name: str, setting: str) -> tuple[str, ...]:
    """Return the texts that a setting may have, or () if there are too many."""
    hint = get_type_hints(_CLASSES[name]).get(setting) if name in _CLASSES else None
    if hint is bool:
        return ("true", "false")
    return get_args(hint) if get_origin(hint) is Literal else ()


def _form(name: str) -> str:
    """Return how a mode is written with all its settings, as ``deltas:every=10,fullFactor=2.0``."""
    pairs = [f"{each}={'...' if default is MISSING else default}" for each, default in _defaults(name).items()]
    return f"{name}:{','.join(pairs)}" if pairs else name


def _help(name: str) -> str:
    """Return the form of a mode, with the choices of its settings."""
    choices = [f"{each} {' or '.join(_choices(name, each))}" for each in _defaults(name) if _choices(name, each)]
    return f"{_form(name)} ({', '.join(choices)})" if choices else _form(name)


#: value of a setting without a default, where nothing reads it: such settings are folders
_PLACEHOLDER: Final = "/folder"

#: the option of all commands that take a mode
MODE_OPTION: Final[Any] = typer.Option(
    metavar="MODE",
    help=f"What snapshots store: {', '.join(map(_help, (MARKERS, *_CLASSES)))}. Settings may be left out.",
    autocompletion=complete_mode,
)


# ---------------------------------------------------------------- the options of a run

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
        settings=_conf(conf or []),
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


def _conf(pairs: list[str]) -> dict[str, str]:
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
