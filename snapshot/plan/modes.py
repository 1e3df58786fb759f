"""Modes of a run: what its snapshots store, and how a restore uses that. Nothing else of a run depends on the mode.

A run keeps its mode for life, because its snapshots can be read by the rules of their mode only. The machines know no
mode. They ask its row, and `content`, which alone says what a cut holds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from enum import Enum
from posixpath import isabs
from typing import Any, ClassVar, Final, Literal, Self

from cutline.snapshot.error_text import shown

#: Name of the mode without settings of its own: markers cut the graph, and each snapshot stores all state.
MARKERS: Final = "markers"

#: snapshots from one with state to the next, at most: a part of the ids of a claim, which such a snapshot may skip
_EVERY_MAX: Final = 10_000


#: Bytes of the differences of one subtask of an aggregate, from which it waits for its store.
_DIFFERENCE_BYTES_MAX: Final = 256 * 1024 * 1024


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
    #: folder of the local databases of which a cut with state makes versions, but not of a sink; None: it makes none
    versions_folder: str | None = None
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
    def makes_versions(self) -> bool:
        """Whether cuts make versions of local databases."""
        return self.versions_folder is not None

    @property
    def needs_parts(self) -> bool:
        """Whether state must come in parts, keyed or by partitions, because cuts store what has changed of it."""
        return self.full_factor is not None

    @property
    def divides(self) -> bool:
        """Whether a cut is no moment of a subtask, because messages say on which side of it they are."""
        return self.cut in (CutRule.EPOCHS, CutRule.SLICES)

    @property
    def is_aligned(self) -> bool:
        """Whether all edges are aligned, whatever was wished for them."""
        return self.cut is CutRule.ALIGNED or self.divides

    @property
    def is_alone(self) -> bool:
        """Whether subtasks record themselves alone."""
        return self.cut is CutRule.ALONE

    @property
    def restores_composed(self) -> bool:
        """Whether a restore begins with a cut that is composed of the newest records."""
        return self.is_alone

    @property
    def keeps_channels(self) -> bool:
        """Whether a restore needs the channels of the snapshot, because logs of their messages go on."""
        return self.is_alone

    @property
    def adopts_known(self) -> bool:
        """Whether running workers are adopted only with their snapshot, on which the next ones depend."""
        return self.cut is not CutRule.MARKERS

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


@dataclass(frozen=True, slots=True)
class Mode(ABC):
    """A mode of a run, other than `MARKERS`, which is None."""

    name: ClassVar[str]

    @property
    @abstractmethod
    def _row(self) -> ModeRow:
        """The rules of the mode."""

    @property
    def _settings(self) -> dict[str, Any]:
        """The settings as plain data, which a run stores: the argument of `_of_settings`."""
        return {}

    @classmethod
    def _of_settings(cls, settings: Mapping[str, Any]) -> Self:
        """Return the mode with stored settings. Raise KeyError or ValueError if these are of another mode."""
        return cls()


@dataclass(frozen=True, slots=True)
class InputLogging(Mode):
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

    @property
    def _row(self) -> ModeRow:
        """The rules of the mode."""
        return ModeRow(CutRule.ALIGNED, has_steps=True, every=None, hashes_states=self.hashes == "states")

    @property
    def _settings(self) -> dict[str, Any]:
        """The settings as plain data. The default has none, because the setting is younger than the mode."""
        return {} if self.hashes == "outputs" else {"hashes": self.hashes}

    @classmethod
    def _of_settings(cls, settings: Mapping[str, Any]) -> Self:
        """Return the mode with stored settings."""
        return cls(settings.get("hashes", "outputs"))


@dataclass(frozen=True, slots=True)
class Deltas(Mode):
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

    @property
    def _row(self) -> ModeRow:
        """The rules of the mode."""
        return ModeRow(CutRule.ALIGNED, has_steps=True, every=self.every, full_factor=self.fullFactor)

    @property
    def _settings(self) -> dict[str, Any]:
        """The settings as plain data."""
        return {"every": self.every, "full_factor": self.fullFactor}

    @classmethod
    def _of_settings(cls, settings: Mapping[str, Any]) -> Self:
        """Return the mode with stored settings."""
        return cls(settings["every"], settings["full_factor"])


@dataclass(frozen=True, slots=True)
class PersistentState(Mode):
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

    @property
    def _row(self) -> ModeRow:
        """The rules of the mode."""
        return ModeRow(
            CutRule.ALIGNED, has_steps=True, every=self.every, versions_folder=self.folder, copies_rows=self.copy
        )

    @property
    def _settings(self) -> dict[str, Any]:
        """The settings as plain data."""
        return {"folder": self.folder, "every": self.every, "copy": self.copy}

    @classmethod
    def _of_settings(cls, settings: Mapping[str, Any]) -> Self:
        """Return the mode with stored settings."""
        return cls(settings["folder"], settings["every"], settings["copy"])


@dataclass(frozen=True, slots=True)
class MonoidClocks(Mode):
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

    @property
    def _row(self) -> ModeRow:
        """The rules of the mode."""
        cut = CutRule.EPOCHS if self.clock == "epochs" else CutRule.SLICES
        return ModeRow(cut, difference_bytes_max=self.memory)

    @property
    def _settings(self) -> dict[str, Any]:
        """The settings as plain data."""
        return {"memory": self.memory, "clock": self.clock}

    @classmethod
    def _of_settings(cls, settings: Mapping[str, Any]) -> Self:
        """Return the mode with stored settings."""
        return cls(settings["memory"], settings["clock"])


@dataclass(frozen=True, slots=True)
class ChannelLogs(Mode):
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

    @property
    def _row(self) -> ModeRow:
        """The rules of the mode."""
        return ModeRow(CutRule.ALONE, record_seconds=self.interval)

    @property
    def _settings(self) -> dict[str, Any]:
        """The settings as plain data."""
        return {"interval": self.interval}

    @classmethod
    def _of_settings(cls, settings: Mapping[str, Any]) -> Self:
        """Return the mode with stored settings."""
        return cls(settings["interval"])


def row_of(mode: Mode | None) -> ModeRow:
    """Return the rules of a mode."""
    return ModeRow() if mode is None else mode._row


#: All modes with settings. A mode that needs none is known by its name alone.
MODES: Final[tuple[type[Mode], ...]] = (
    InputLogging,
    Deltas,
    PersistentState,
    MonoidClocks,
    ChannelLogs,
)
_BY_NAME: Final = {mode.name: mode for mode in MODES}

#: Names and settings that `submit(mode=...)` accepts.
ModeWish = Literal["markers", "inputLogging", "deltas", "monoidClocks", "channelLogs"] | Mode


def mode_of(wish: object) -> Mode | None:
    """Return the mode that a user wishes; None for markers.

    Raises
    ------
    ValueError
        if there is no such mode.
    """
    if isinstance(wish, Mode):
        return wish
    if wish == MARKERS:
        return None
    mode = _BY_NAME.get(wish) if type(wish) is str else None
    if mode is None:
        names = [MARKERS, *(name for name, each in _BY_NAME.items() if not _required(each))]
        raise ValueError(f"mode {shown(wish)} is unknown; there are {', '.join(map(repr, names))}")
    if required := _required(mode):
        raise ValueError(
            f"mode {mode.name!r} needs a folder on a disk that stays: mode={mode.__name__}({', '.join(required)})"
        )
    return mode()


def _required(mode: type[Mode]) -> list[str]:
    """Return the settings without a default."""
    return [each.name for each in fields(mode) if each.default is MISSING]


def name_of_mode(mode: Mode | None) -> str:
    """Return the name of a mode."""
    return MARKERS if mode is None else mode.name


def record_of_mode(mode: Mode | None) -> dict[str, Any] | None:
    """Return plain data that `mode_of_record` reads."""
    return None if mode is None else {"name": mode.name, **mode._settings}


def mode_of_record(record: Mapping[str, Any]) -> Mode | None:
    """Read the plain data of `record_of_mode`.

    Raises
    ------
    KeyError, ValueError
        if the record is of no mode that this Cutline knows.
    """
    mode = _BY_NAME.get(record["name"])
    return mode_of(record["name"]) if mode is None else mode._of_settings(record)
