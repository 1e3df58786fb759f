"""The contract of a cut's start: the coordinator's half of a cut rule.

The subtasks' half decides where each subtask cuts. Subtasks may have to answer a question before a snapshot starts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Protocol

from cutline.snapshot.coordinator.control import ClockAnswered, CoordinatorMessage
from cutline.snapshot.ids import Subtask
from cutline.snapshot.plan.topology import Topology


@dataclass(frozen=True, slots=True)
class Exchange:
    """A question, and those whose answers a snapshot awaits before the snapshot starts."""

    question: CoordinatorMessage
    asked: tuple[Subtask, ...]
    #: seconds after which the snapshot is aborted
    seconds_max: float


class CutStart(Protocol):
    """How the cuts of a run start."""

    #: whether time and idleness start snapshots. If not, only requests and the subtasks themselves do
    is_triggered: ClassVar[bool]

    def begin(self, incarnation: int, snapshot_id: int) -> Exchange | None:
        """Begin a snapshot. None: the snapshot starts at once."""

    def receive(self, answer: ClockAnswered) -> CoordinatorMessage | None:
        """Take an answer. After the last one, return what all workers receive before the snapshot starts."""

    def who_is_late(self, named_max: int) -> str:
        """Return the reason of a timeout, with the names of some subtasks that have not answered."""

    def initiators(self, wanted: Iterable[Subtask]) -> tuple[Subtask, ...]:
        """Return the subtasks that start the cut by themselves, of which some are `wanted`."""


class StartAtOnce:
    """Start each snapshot without an exchange. Markers reach the other subtasks.

    Parameters
    ----------
    topology : Topology
    """

    is_triggered: ClassVar[bool] = True

    def __init__(self, topology: Topology) -> None:
        self._topology = topology

    def begin(self, incarnation: int, snapshot_id: int) -> Exchange | None:
        """Start at once."""
        return None

    def receive(self, answer: ClockAnswered) -> CoordinatorMessage | None:
        """Drop the answer, because nothing was asked."""
        return None

    def who_is_late(self, named_max: int) -> str:
        """Return nothing, because nobody was asked."""
        return ""

    def initiators(self, wanted: Iterable[Subtask]) -> tuple[Subtask, ...]:
        """PROTOCOL 3.5: the graph's own initiators reach the subtasks that the wanted initiators do not reach."""
        wanted = tuple(wanted)
        reached = dict.fromkeys(self._topology.reachable(wanted))
        others = (subtask for subtask in self._topology.initiators() if subtask not in reached)
        return tuple(dict.fromkeys((*wanted, *others)))
