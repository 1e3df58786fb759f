"""Commands for a run: take, pin, unpin and delete snapshots, rescale, stop. Each waits on a thread of its own."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from cutline.snapshot.stored.snapshot import Snapshot

#: newest commands whose outcome is shown, and commands that wait at most; the effects of older commands appear among
#: the snapshots
COMMANDS_MAX = 10


class Kind(Enum):
    """Kinds of commands. The values are part of the JSON interface."""

    SNAPSHOT = "snapshot"
    STOP = "stop"
    STOP_NOW = "stop-now"
    RESCALE = "rescale"
    PIN = "pin"
    UNPIN = "unpin"
    DELETE = "delete"


class State(Enum):
    """States of a command. The values are part of the JSON interface."""

    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"


#: functions that carry out commands, by kind; each takes the arguments of its kind, blocks until the command is done,
#: and returns the snapshot that was taken, or None without a snapshot
Actions: TypeAlias = "Mapping[Kind, Callable[..., Snapshot | None]]"

#: arguments of a command, as keyword arguments of its action
Arguments: TypeAlias = Mapping[str, Any]

#: {kind: (text of a waiting command, text of a command that is done)}
_TEXTS = {
    Kind.SNAPSHOT: ("taking a snapshot", "the run had ended"),
    Kind.STOP: ("stopping with a snapshot", "the run has ended"),
    Kind.STOP_NOW: ("stopping without a snapshot", "the run has ended"),
    Kind.RESCALE: ("rescaling to {}", "rescaled to {}"),
    Kind.PIN: ("pinning snapshot {}", "snapshot {} is pinned"),
    Kind.UNPIN: ("unpinning snapshot {}", "snapshot {} is not pinned"),
    Kind.DELETE: ("deleting snapshot {}", "snapshot {} is deleted"),
}


def _flag(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text == "true"


def _seconds(text: str) -> float:
    seconds = float(text)
    if not (seconds > 0 and math.isfinite(seconds)):
        raise ValueError(f"{text!r} is no number of seconds above 0")
    return seconds


def parse_parallelism(text: str) -> dict[str, int]:
    """Return the parallelism by node of a text as ``count=4,total=1``.

    Raises
    ------
    ValueError
        if a node has no number, or is named twice.
    """
    found: dict[str, int] = {}
    for each in text.split(","):
        name, _, number = each.rpartition("=")
        if not name or not number.isdecimal() or name in found:
            raise ValueError(f"{each!r} is not NODE=NUMBER, or names a node twice")
        found[name] = int(number)
    return found


def parallelism_text(parallelism: Mapping[str, int]) -> str:
    """Return the text that `parse_parallelism` reads."""
    return ",".join(f"{name}={number}" for name, number in parallelism.items())


#: {kind: {name of an argument: its parser}}
_PARSERS: Mapping[Kind, Mapping[str, Callable[[str], Any]]] = {
    Kind.SNAPSHOT: {"pinned": _flag, "timeout": _seconds},
    Kind.STOP: {"timeout": _seconds},
    Kind.STOP_NOW: {},
    Kind.RESCALE: {"parallelism": parse_parallelism, "timeout": _seconds},
    **{kind: {"snapshotId": int} for kind in (Kind.PIN, Kind.UNPIN, Kind.DELETE)},
}


def parse_arguments(kind: Kind, texts: Mapping[str, str]) -> Arguments:
    """Return the arguments of a command from the texts of a request.

    Raises
    ------
    ValueError
        if an argument is unknown, missing or malformed. The text names the argument.
    """
    parsers = _PARSERS[kind]
    unknown = [name for name in texts if name not in parsers]
    if unknown:
        raise ValueError(f"{kind.value} has no argument {unknown[0]!r}; it has {', '.join(parsers) or 'none'}")
    missing = [name for name in ("snapshotId", "parallelism") if name in parsers and name not in texts]
    if missing:
        raise ValueError(f"{kind.value} needs {missing[0]}")
    found = {}
    for name, text in texts.items():
        try:
            found[name] = parsers[name](text)
        except ValueError as error:
            raise ValueError(f"{kind.value}: {name}: {error}") from error
    return found


@dataclass(slots=True)
class _Command:
    number: int
    kind: str
    state: str
    text: str
    #: id of the snapshot that was taken, or that the command names; None without either
    snapshot: int | None


class Commands:
    """Carry out the commands for one run. Methods may be called on any thread and do not block.

    Parameters
    ----------
    actions : mapping of Kind to callable
        Functions that carry out commands and block until the command is done.
    on_change : callable
        Called on any thread after each change of a command.
    """

    def __init__(self, actions: Actions, on_change: Callable[[], None]) -> None:
        self._actions = actions
        self._on_change = on_change
        self._lock = threading.Lock()
        #: oldest first; those that wait, and the newest that are done, at most `COMMANDS_MAX` together
        self._commands: list[_Command] = []
        self._count = 0

    def submit(self, kind: Kind, arguments: Arguments) -> int | None:
        """Start a command and return its number.

        Return None while the same command waits, of the same snapshot if the command names one, or too many wait.
        """
        snapshot_id: int | None = arguments.get("snapshotId")
        with self._lock:
            waiting = [command for command in self._commands if command.state == State.WAITING.value]
            is_same = any(command.kind == kind.value and command.snapshot == snapshot_id for command in waiting)
            if is_same or len(waiting) >= COMMANDS_MAX:
                return None
            self._count += 1
            text = _TEXTS[kind][0].format(_object_of(arguments))
            command = _Command(self._count, kind.value, State.WAITING.value, text, snapshot_id)
            self._forget_one()
            self._commands.append(command)
        self._on_change()
        work = (kind, arguments, command)
        threading.Thread(target=self._carry_out, args=work, name="cutline-page-command", daemon=True).start()
        return command.number

    def _forget_one(self) -> None:
        """Make room for a command. One that waits stays, because its client waits for its end."""
        if len(self._commands) == COMMANDS_MAX:
            self._commands.remove(next(each for each in self._commands if each.state != State.WAITING.value))

    def as_document(self) -> list[dict[str, Any]]:
        """Return the commands as plain data, oldest first."""
        with self._lock:
            return [asdict(command) for command in self._commands]

    def end(self) -> None:
        """Mark waiting stop commands as done, because the page may be closed before the stop command returns."""
        with self._lock:
            for command in self._commands:
                if command.kind in (Kind.STOP.value, Kind.STOP_NOW.value) and command.state == State.WAITING.value:
                    command.state, command.text = State.DONE.value, "the run has ended"

    def _carry_out(self, kind: Kind, arguments: Arguments, command: _Command) -> None:
        began = time.monotonic()
        try:
            snapshot = self._actions[kind](**arguments)
            what = _outcome(kind, arguments, snapshot, time.monotonic() - began)
            self._close(command, State.DONE, what, snapshot.id if snapshot else command.snapshot)
        except Exception as error:  # noqa: BLE001  # because the visitor must see every failure of the command
            self._close(command, State.FAILED, str(error), command.snapshot)

    def _close(self, command: _Command, state: State, text: str, snapshot_id: int | None) -> None:
        with self._lock:
            command.state, command.text, command.snapshot = state.value, text, snapshot_id
        self._on_change()


def _object_of(arguments: Arguments) -> str:
    """Return the snapshot or the parallelism that a command names, or ""."""
    if "parallelism" in arguments:
        return parallelism_text(arguments["parallelism"]).replace(",", ", ")
    return str(arguments.get("snapshotId", ""))


def _outcome(kind: Kind, arguments: Arguments, snapshot: Snapshot | None, seconds: float) -> str:
    done = _TEXTS[kind][1].format(_object_of(arguments))
    if snapshot is None:
        return done
    if kind is Kind.RESCALE:
        return f"{done} from snapshot {snapshot.id}, after {seconds:.2f} s"
    return f"snapshot {snapshot.id} was published after {seconds:.2f} s"
