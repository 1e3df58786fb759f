"""Report of a recovery: how far each subtask was, compared with its senders, and what it is sent again (PROTOCOL 14.9).

For people. Kept in the manifest of the snapshot that a restore makes of the newest records. The certificate decides by
the numbers of channels alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from cutline.snapshot.ids import Subtask
from cutline.snapshot.stored import keys
from cutline.snapshot.stored.keys import StoredMap
from cutline.snapshot.stored.part import SUBTASK

#: {partition of a source: offset below which all is included}, as sorted pairs
SourceProgress = tuple[tuple[str, int], ...]


class Relation(Enum):
    """How the checkpoint of a subtask lies to that of one of its senders. Values are stored: never rename."""

    EQUAL = "equal"
    BEHIND = "behind"
    AHEAD = "ahead"
    INCOMPARABLE = "incomparable"


@dataclass(frozen=True, slots=True)
class ReplayedLog:
    """A sender of a subtask, and the messages of its log that the subtask is sent again."""

    sender: Subtask
    relation: Relation
    #: numbers of the first and the last message; `first` is above `last` where there is none
    first: int
    last: int

    @property
    def count(self) -> int:
        """Number of messages that are sent again."""
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class SubtaskRecovery:
    """One subtask at a recovery."""

    subtask: Subtask
    #: number of the record with which it goes on
    record: int
    #: what it had processed of each source, at least
    checkpoint: SourceProgress
    logs: tuple[ReplayedLog, ...]


@dataclass(frozen=True, slots=True)
class RecoveryReport:
    """All subtasks at a recovery, in the order of the graph."""

    subtasks: tuple[SubtaskRecovery, ...]

    def __str__(self) -> str:
        return "\n".join(line for each in self.subtasks for line in _lines(each))


def _lines(each: SubtaskRecovery) -> list[str]:
    offsets = ", ".join(f"{partition} to {offset}" for partition, offset in each.checkpoint) or "nothing"
    logs = [
        f"  {log.relation.value} {log.sender}: "
        + (f"messages {log.first} to {log.last} again" if log.count else "nothing to send again")
        for log in each.logs
    ]
    return [f"{each.subtask}: record {each.record}, has {offsets}", *logs]


_LOG = StoredMap(
    ReplayedLog,
    keys.REPLAYED_LOG,
    write={"sender": SUBTASK.write, "relation": lambda relation: relation.value},
    read={"sender": SUBTASK.read, "relation": Relation},
)

_SUBTASK = StoredMap(
    SubtaskRecovery,
    keys.SUBTASK_RECOVERY,
    write={
        "subtask": SUBTASK.write,
        "checkpoint": lambda pairs: list(map(list, pairs)),
        "logs": lambda logs: list(map(_LOG.write, logs)),
    },
    read={
        "subtask": SUBTASK.read,
        "checkpoint": lambda pairs: tuple(map(tuple, pairs)),
        "logs": lambda logs: tuple(map(_LOG.read, logs)),
    },
)

#: Stored form of a report in the manifest.
RECOVERY_REPORT = StoredMap(
    RecoveryReport,
    keys.RECOVERY_REPORT,
    write={"subtasks": lambda each: list(map(_SUBTASK.write, each))},
    read={"subtasks": lambda each: tuple(map(_SUBTASK.read, each))},
)
