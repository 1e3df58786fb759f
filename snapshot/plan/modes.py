"""Modes of a run: what its snapshots store, and how a restore uses that. Nothing else of a run depends on the mode.

A run keeps its mode for life, because its snapshots can be read by the rules of their mode only. The machines know no
mode. They ask its row, and `content`, which alone says what a cut holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from posixpath import isabs
from typing import Any, ClassVar, Final, Literal, assert_never

from cutline.snapshot.error_text import shown

#: Name of the mode without settings of its own: markers cut the graph, and each snapshot stores all state.
MARKERS: Final = "markers"

#: snapshots from one with state to the next, at most: a part of the ids of a claim, which such a snapshot may skip
_EVERY_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class InputLogging:
    """Store no state: log what the sources read and what each subtask chose, and repeat the work from the start.

    The designers of DBSP call the method so (Feldera, "Approaches to fault tolerance").

    Parameters
    ----------
    hashes : str
        ``"outputs"``: a replay compares the messages of each step. ``"states"``: the state of each subtask too, which
        takes time in proportion to the state, at each cut.
    """

    hashes: Literal["outputs", "states"] = "outputs"

    name: ClassVar[str] = "inputLogging"

    def __post_init__(self) -> None:
        if self.hashes not in ("outputs", "states"):
            raise ValueError(f"InputLogging: hashes is 'outputs' or 'states', not {shown(self.hashes)}")


@dataclass(frozen=True, slots=True)
class Deltas:
    """Log as `InputLogging` does, and store what has changed of the state in some snapshots (Feldera, as above).

    Parameters
    ----------
    every : int
        Snapshots of which one stores state. A snapshot on request always does.
    fullFactor : float
        Bytes of a node's deltas, in multiples of its last whole state, from which its state is stored as a whole.
    """

    every: int = 10
    fullFactor: float = 2.0

    name: ClassVar[str] = "deltas"

    def __post_init__(self) -> None:
        if type(self.every) is not int or not 1 <= self.every <= _EVERY_MAX:
            raise ValueError(f"Deltas: every is a whole number from 1 to {_EVERY_MAX:,}, not {shown(self.every)}")
        if type(self.fullFactor) not in (int, float) or not 0 < self.fullFactor < float("inf"):
            raise ValueError(f"Deltas: fullFactor is a number above 0, not {shown(self.fullFactor)}")


@dataclass(frozen=True, slots=True)
class PersistentState:
    """Log as `InputLogging` does, and keep the state in databases on disks that stay (Feldera, as above).

    Some snapshots make a version of each database, by hard links. A restore opens the versions of a snapshot.

    Parameters
    ----------
    folder : str
        Folder on a local disk of every worker that outlives the workers. Each disk may have its own contents.
    every : int
        Snapshots of which one makes versions. A snapshot on request always does.
    copy : bool
        Whether the backend gets the changed rows too, so that a lost disk costs only time, and the run can be rescaled.
    """

    folder: str
    every: int = 10
    copy: bool = False

    name: ClassVar[str] = "persistentState"

    def __post_init__(self) -> None:
        if type(self.folder) is not str or not isabs(self.folder):
            raise ValueError(f"PersistentState: folder is an absolute path, not {shown(self.folder)}")
        if type(self.every) is not int or not 1 <= self.every <= _EVERY_MAX:
            raise ValueError(
                f"PersistentState: every is a whole number from 1 to {_EVERY_MAX:,}, not {shown(self.every)}"
            )
        if type(self.copy) is not bool:
            raise ValueError(f"PersistentState: copy is True or False, not {shown(self.copy)}")


#: Bytes of the differences of one subtask of an aggregate, from which it waits for its store.
_DIFFERENCE_BYTES_MAX: Final = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class MonoidClocks:
    """Agree on a clock, and keep totals in a store that may be slow or down (Jackson, "Exactly once semantics", 2014).

    A snapshot has the offsets of the sources. Nothing is held for it, and nothing in flight is stored.

    Parameters
    ----------
    memory : int
        Bytes of one subtask's differences, from which the sources wait for the store.
    clock : str
        How the clock is found. ``"epochs"``: each source says where it is, and nobody waits. ``"negotiated"``: the
        aggregates say what they have seen, and wait until the slowest has answered, as Jackson describes it.
    """

    memory: int = _DIFFERENCE_BYTES_MAX
    clock: Literal["epochs", "negotiated"] = "epochs"

    name: ClassVar[str] = "monoidClocks"

    def __post_init__(self) -> None:
        if type(self.memory) is not int or self.memory < 1:
            raise ValueError(f"MonoidClocks: memory is a whole number of bytes from 1, not {shown(self.memory)}")
        if self.clock not in ("epochs", "negotiated"):
            raise ValueError(f"MonoidClocks: clock is 'epochs' or 'negotiated', not {shown(self.clock)}")


@dataclass(frozen=True, slots=True)
class ChannelLogs:
    """Let each subtask store a record by itself: its state, its numbers, and a log of what it has sent.

    The designers of Dozer proposed such logs (Dozer, discussion 516).

    Parameters
    ----------
    interval : float
        Seconds from one record of a subtask to its next.
    """

    interval: float = 5.0

    name: ClassVar[str] = "channelLogs"

    def __post_init__(self) -> None:
        if type(self.interval) not in (int, float) or not 0 < self.interval < float("inf"):
            raise ValueError(f"ChannelLogs: interval is a number of seconds above 0, not {shown(self.interval)}")


#: Mode of a run, other than `MARKERS`, which is None.
Mode = InputLogging | Deltas | PersistentState | MonoidClocks | ChannelLogs


class CutRule(Enum):
    """How a cut goes through the graph."""

    #: along each edge by markers, with the alignment of the edge
    MARKERS = "markers"
    #: by markers, aligned on all edges
    ALIGNED = "aligned"
    #: nothing is held: each message carries the epoch to which it belongs
    EPOCHS = "epochs"
    #: nothing is held: each message carries its slice of the input, and the aggregates agree on a clock
    SLICES = "slices"
    #: no marker: each subtask records itself alone, and a cut is composed of records
    ALONE = "alone"


@dataclass(frozen=True, slots=True)
class ModeRow:
    """The rules of a mode, as the machines need them."""

    cut: CutRule = CutRule.MARKERS
    #: whether each cut ends a step, which a restore repeats
    has_steps: bool = False
    #: snapshots of which one stores the state of all nodes, or None where none does
    every: int | None = 1
    #: whether a cut with state makes a version of the local database, but not of a sink
    makes_versions: bool = False
    #: whether a cut with such a version stores the changed rows too
    copies_rows: bool = True
    #: whether each step has hashes of the states at its cut
    hashes_states: bool = False
    #: bytes of deltas, in multiples of the last whole state, from which a state is stored as a whole; None: as usual
    full_factor: float | None = None
    #: bytes of one subtask's differences, from which it waits for its store
    difference_bytes_max: int = _DIFFERENCE_BYTES_MAX
    #: seconds from one record of a subtask to its next; 0 where subtasks do not record themselves
    record_seconds: float = 0.0

    @property
    def multiple(self) -> int:
        """Return the number whose multiples are the ids of snapshots that store all state."""
        return self.every or 1

    @property
    def divides(self) -> bool:
        """Whether a cut is no moment of a subtask, because messages say on which side of it they are."""
        return self.cut in (CutRule.EPOCHS, CutRule.SLICES)

    @property
    def is_alone(self) -> bool:
        """Whether subtasks record themselves alone."""
        return self.cut is CutRule.ALONE

    @property
    def replays_all(self) -> bool:
        """Whether no snapshot ends the work that a restore repeats."""
        return self.every is None or self.is_alone


@dataclass(frozen=True, slots=True)
class CutContent:
    """What one cut stores of one subtask, besides its status, its messages in flight and its prepared output."""

    #: the state of the node: whole, or as changes
    state: bool
    #: the changed rows of keyed state
    rows: bool
    #: a version of the local database
    version: bool
    #: whether the snapshot has the state of all subtasks, so that later logs go on after it
    is_base: bool


def content(row: ModeRow, snapshot_id: int, *, is_sink: bool) -> CutContent:
    """Return what the cut of a snapshot stores of a subtask.

    A sink stores its state in each cut, because its output is not repeated.
    """
    is_base = row.every is not None and snapshot_id % row.every == 0
    has_state = is_base or is_sink
    has_version = is_base and row.makes_versions and not is_sink
    return CutContent(has_state, has_state and (row.copies_rows or not has_version), has_version, is_base)


def row_of(mode: Mode | None) -> ModeRow:
    """Return the rules of a mode."""
    match mode:
        case None:
            return ModeRow()
        case InputLogging(hashes):
            return ModeRow(CutRule.ALIGNED, has_steps=True, every=None, hashes_states=hashes == "states")
        case Deltas(every, factor):
            return ModeRow(CutRule.ALIGNED, has_steps=True, every=every, full_factor=factor)
        case PersistentState(_, every, copies):
            return ModeRow(CutRule.ALIGNED, has_steps=True, every=every, makes_versions=True, copies_rows=copies)
        case MonoidClocks(memory, clock):
            return ModeRow(CutRule.EPOCHS if clock == "epochs" else CutRule.SLICES, difference_bytes_max=memory)
        case ChannelLogs(interval):
            return ModeRow(CutRule.ALONE, record_seconds=interval)
        case _:
            assert_never(mode)


#: Names and settings that `submit(mode=...)` accepts.
ModeWish = Literal["markers", "inputLogging", "deltas", "monoidClocks", "channelLogs"] | Mode

_MODES: Final[dict[str, Mode | None]] = {
    MARKERS: None,
    **{mode.name: mode for mode in (InputLogging(), Deltas(), MonoidClocks(), ChannelLogs())},
}


def mode_of(wish: object) -> Mode | None:
    """Return the mode that a user wishes; None for markers.

    Raises
    ------
    ValueError
        if there is no such mode.
    """
    if isinstance(wish, Mode):
        return wish
    if wish == PersistentState.name:
        raise ValueError("mode 'persistentState' needs a folder on a disk that stays: mode=PersistentState(folder)")
    if type(wish) is not str or wish not in _MODES:
        raise ValueError(f"mode {shown(wish)} is unknown; there are {', '.join(map(repr, _MODES))}")
    return _MODES[wish]


def name_of_mode(mode: Mode | None) -> str:
    """Return the name of a mode."""
    return MARKERS if mode is None else mode.name


def record_of_mode(mode: Mode | None) -> dict[str, Any] | None:
    """Return plain data that `mode_of_record` reads."""
    if isinstance(mode, Deltas):
        return {"name": mode.name, "every": mode.every, "full_factor": mode.fullFactor}
    if isinstance(mode, PersistentState):
        return {"name": mode.name, "folder": mode.folder, "every": mode.every, "copy": mode.copy}
    if isinstance(mode, MonoidClocks):
        return {"name": mode.name, "memory": mode.memory, "clock": mode.clock}
    if isinstance(mode, ChannelLogs):
        return {"name": mode.name, "interval": mode.interval}
    if isinstance(mode, InputLogging) and mode.hashes == "states":
        return {"name": mode.name, "hashes": mode.hashes}
    return None if mode is None else {"name": mode.name}


def mode_of_record(record: Mapping[str, Any]) -> Mode | None:
    """Read the plain data of `record_of_mode`.

    Raises
    ------
    KeyError, ValueError
        if the record is of no mode that this Cutline knows.
    """
    if record["name"] == Deltas.name:
        return Deltas(record["every"], record["full_factor"])
    if record["name"] == PersistentState.name:
        return PersistentState(record["folder"], record["every"], record["copy"])
    if record["name"] == MonoidClocks.name:
        return MonoidClocks(record["memory"], record["clock"])
    if record["name"] == ChannelLogs.name:
        return ChannelLogs(record["interval"])
    if record["name"] == InputLogging.name:
        return InputLogging(record.get("hashes", "outputs"))
    return mode_of(record["name"])
