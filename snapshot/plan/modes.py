"""Modes of a run: what its snapshots store, and how a restore uses that. Nothing else of a run depends on the mode.

A run keeps its mode for life, because its snapshots can be read by the rules of their mode only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal

from snapshot.error_text import shown

#: Name of the mode without settings of its own: markers cut the graph, and each snapshot stores all state.
MARKERS: Final = "markers"


@dataclass(frozen=True, slots=True)
class InputLogging:
    """Store no state: log what the sources read and what each subtask chose, and repeat the work from the start.

    The designers of DBSP call the method so (Feldera, "Approaches to fault tolerance").
    """

    name: ClassVar[str] = "inputLogging"


#: Mode of a run, other than `MARKERS`, which is None.
Mode = InputLogging

#: Names and settings that `submit(mode=...)` accepts.
ModeWish = Literal["markers", "inputLogging"] | Mode

_MODES: Final[dict[str, Mode | None]] = {MARKERS: None, InputLogging.name: InputLogging()}


def mode_of(wish: object) -> Mode | None:
    """Return the mode that a user wishes; None for markers.

    Raises
    ------
    ValueError
        if there is no such mode.
    """
    if isinstance(wish, InputLogging):
        return wish
    if type(wish) is not str or wish not in _MODES:
        raise ValueError(f"mode {shown(wish)} is unknown; there are {', '.join(map(repr, _MODES))}")
    return _MODES[wish]


def name_of_mode(mode: Mode | None) -> str:
    """Return the name of a mode."""
    return MARKERS if mode is None else mode.name


def record_of_mode(mode: Mode | None) -> dict[str, Any] | None:
    """Return plain data that `mode_of_record` reads."""
    return None if mode is None else {"name": mode.name}


def mode_of_record(record: Mapping[str, Any]) -> Mode | None:
    """Read the plain data of `record_of_mode`.

    Raises
    ------
    KeyError, ValueError
        if the record is of no mode that this Cutline knows.
    """
    return mode_of(record["name"])
