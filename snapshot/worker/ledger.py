"""The contract of a ledger: what becomes of the changes of one strand of a subtask.

::

    captured(c) ─> waiting ── task done ──> stored ── ready(c) ──> listed in c ─┬─ published: older ones may go
                      └── task failed: the cuts that need it are declined       └─ aborted: the next cut has it

A ledger is pure. A host performs its tasks on threads beside processing, and passes the results back. What a cut took,
no later cut can take. So a ledger keeps a change whatever becomes of the snapshot: it is listed again, joined with the
next one, or made anew, and that is the ledger's own affair.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Protocol, TypedDict

from cutline.snapshot.errors import CutlineError
from cutline.snapshot.ids import Subtask
from cutline.snapshot.stored.list_rules import ListEntry, LocalVersion, StepBase
from cutline.snapshot.stored.part import Handle
from cutline.snapshot.stored.run_store import RunStore
from cutline.snapshot.subtask.strand import Strand


class Lane(Enum):
    """Which tasks a host performs one after the other."""

    #: calls no store: one at a time, in order, because encoding must wait neither for a store nor for a merge
    ENCODE = "encode"
    #: calls the store of snapshots, several at a time
    STORE = "store"
    #: may take long: one at a time
    COMPACT = "compact"
    #: calls a store of its own: those of one subtask in order, each again and again until it succeeds
    IN_ORDER = "in order"


class Task(Protocol):
    """Work for the host: a small frozen record, with what the work needs."""

    lane: ClassVar[Lane]

    @property
    def subtask(self) -> Subtask:
        """Return the subtask whose change it is."""

    @property
    def strand(self) -> Strand:
        """Return the strand whose ledger takes the result."""

    @property
    def publishes(self) -> int:
        """Return the snapshot whose publication by the subtask waits for the task, or 0."""


class CollectorTask(ABC):
    """Work on the run's store that is of no ledger. Its result goes to the collector."""

    lane: ClassVar[Lane] = Lane.STORE

    #: whether the task changes nothing
    only_reads: ClassVar[bool] = False

    @property
    @abstractmethod
    def number(self) -> int:
        """The number of what is stored. Numbers of a subtask go up."""

    @property
    @abstractmethod
    def subtask(self) -> Subtask:
        """The subtask whose work it is."""

    @abstractmethod
    def run(self, store: RunStore) -> object:
        """Do the work. Return its result, or the task that follows."""


#: a task of a ledger, or of a collector
AnyTask = Task | CollectorTask


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """The result of a task that could not be done. The ledger decides what that means."""

    reason: str


@dataclass(frozen=True, slots=True)
class TaskRefused:
    """The result of a task that was refused for good. The subtasks cannot go on."""

    error: CutlineError


@dataclass(frozen=True, slots=True)
class Declined:
    """A cut that needs a change which could not be stored."""

    snapshot_id: int
    reason: str


class Listed(TypedDict, total=False):
    """Fields of the record of a subtask, which a ledger gives to the acknowledgement of a cut."""

    groups: tuple[int, int] | None
    rows: tuple[ListEntry, ...] | None
    own: tuple[Handle, ...] | None
    steps: tuple[Handle, ...] | None
    base: StepBase | None
    version: LocalVersion | None


class Ledger(Protocol):
    """The changes of one strand of one subtask, in one incarnation."""

    #: whether an acknowledgement is sent again until its snapshot is settled, because no timeout ends such a snapshot
    is_repeated: ClassVar[bool]

    def captured(self, cut: int | None, change: Any) -> list[Any]:
        """Keep a change, and return tasks and `Declined`. None: it was captured between two cuts, or at a restore."""

    def done(self, task: Any, result: Any) -> list[Any]:
        """Take the result of a task, which may be `TaskFailed`. Return more tasks and `Declined`."""

    def ready(self, cut: int) -> Listed | None:
        """Return what the acknowledgement of a cut lists, or None while a change that it needs is not stored."""

    def left(self, cut: int) -> None:
        """Forget a cut that was acknowledged or declined. Its changes stay."""

    def settled(self, published: int, below: int) -> list[Any]:
        """Return the tasks after a publication, and after all snapshots below an id are over.

        Parameters
        ----------
        published : int
            A published snapshot, or 0.
        below : int
            All snapshots below this id are published or aborted. 0: nothing has changed.
        """
