"""Commands of the page's visitors: take a snapshot, or stop a run. Each command waits on a thread of its own."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from snapshot.stored.snapshot import Snapshot

#: newest commands whose outcome is shown; the effects of older commands appear among the snapshots
COMMANDS_MAX = 10


class Kind(Enum):
    """Kinds of commands. The values are part of the JSON interface."""

    SNAPSHOT = "snapshot"
    STOP = "stop"


class State(Enum):
    """States of a command. The values are part of the JSON interface."""

    WAITING = "waiting"
    DONE = "done"
    FAILED = "failed"


#: functions that carry out commands, by kind; each blocks until the command is done and returns the snapshot that was
#: taken, or None without a snapshot
Actions: TypeAlias = "Mapping[Kind, Callable[[], Snapshot | None]]"


@dataclass(slots=True)
class _Command:
    number: int
    kind: str
    state: str
    text: str


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
        self._commands: deque[_Command] = deque(maxlen=COMMANDS_MAX)
        self._count = 0

    def submit(self, kind: Kind) -> int | None:
        """Start a command and return its number. Return None while a command of the same kind waits."""
        with self._lock:
            if any(command.kind == kind.value and command.state == State.WAITING.value for command in self._commands):
                return None
            self._count += 1
            text = "taking a snapshot" if kind is Kind.SNAPSHOT else "stopping with a snapshot"
            command = _Command(self._count, kind.value, State.WAITING.value, text)
            self._commands.append(command)
        self._on_change()
        threading.Thread(target=self._carry_out, args=(kind, command), name="cutline-page-order", daemon=True).start()
        return command.number

    def as_document(self) -> list[dict[str, Any]]:
        """Return the commands as plain data, oldest first."""
        with self._lock:
            return [asdict(command) for command in self._commands]

    def end(self) -> None:
        """Mark waiting stop commands as done, because the page may be closed before the stop command returns."""
        with self._lock:
            for command in self._commands:
                if command.kind == Kind.STOP.value and command.state == State.WAITING.value:
                    command.state, command.text = State.DONE.value, "the run has ended"

    def _carry_out(self, kind: Kind, command: _Command) -> None:
        began = time.monotonic()
        try:
            snapshot = self._actions[kind]()
            seconds = time.monotonic() - began
            what = f"snapshot {snapshot.id} was published after {seconds:.2f} s" if snapshot else "the run had ended"
            self._close(command, State.DONE, what)
        except Exception as error:  # noqa: BLE001  # because the visitor must see every failure of the command
            self._close(command, State.FAILED, str(error))

    def _close(self, command: _Command, state: State, text: str) -> None:
        with self._lock:
            command.state, command.text = state.value, text
        self._on_change()
