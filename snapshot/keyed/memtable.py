"""Sealed rows of a cold tier, and how many of them may be in memory before the subtask gets no further event.

The writer and the storage of snapshots need the same encoded rows. Whoever comes first encodes, and the other goes on
where the first is, because neither may wait for the other: the store of snapshots may hang, and the writer too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from cutline.snapshot.channel.output_buffer import BackpressureFlag
from cutline.snapshot.keyed.row_store import Steps
from cutline.snapshot.keyed.rows import DirtyTable
from cutline.snapshot.keyed.segment import Segment

#: Memtables that may wait for the writer before the subtask gets no further event.
WAITING_MAX: Final = 2

#: Memtables that may be in memory: for the writer, for the encoder, or being emptied.
HELD_MAX: Final = 4

#: Seconds after which a thread looks again whether another thread has done its step.
_STEP_WAIT_SECONDS: Final = 0.001


@dataclass(slots=True)
class Memtable:
    """Sealed rows of all states of a subtask. Read-only until `is_applied`."""

    tables: tuple[DirtyTable, ...]
    #: encodes the tables
    steps: Steps[Segment]
    #: {name of the state: its rows}
    by_name: dict[str, DirtyTable] = field(init=False)
    #: whether all rows are in the store
    is_applied: bool = False
    #: whether storage has the encoded rows, or does not want them
    is_taken: bool = False
    _segment: Segment | None = None
    _error: BaseException | None = None
    #: has an entry while nobody does a step
    _turns: list[None] = field(default_factory=lambda: [None])

    def __post_init__(self) -> None:
        self.by_name = {table.spec.name: table for table in self.tables}

    def encoding(self) -> Steps[Segment]:
        """Encode the rows, unless another caller does. Return their segment. Called before the caller has it only.

        Raises
        ------
        BaseException
            that the encoding has raised, to each caller.
        """
        while self._segment is None:
            yield self._step()
        return self._segment

    def _step(self) -> float | None:
        """Do one step, or return the seconds to wait while another thread does one."""
        try:
            self._turns.pop()  # atomic, so exactly one thread finds the entry
        except IndexError:
            return _STEP_WAIT_SECONDS
        try:
            if self._error is not None:
                raise self._error
            if self._segment is None:
                return next(self.steps)
        except StopIteration as end:
            segment: Segment | None = end.value
            assert segment is not None, "each caller encodes before it gives the rows up"
            self._segment = segment
        except BaseException as error:
            self._error = error
            raise
        finally:
            self._turns.append(None)
        return None

    def applied(self) -> None:
        """Note that all rows are in the store. Called by the writer."""
        self.is_applied = True
        self._forget()

    def release(self) -> bool:
        """Note that storage has the encoded rows. Return False, because the tier empties the tables."""
        self.is_taken = True
        self._forget()
        return False

    def _forget(self) -> None:
        if self.is_applied and self.is_taken:
            self._segment = None

    @property
    def is_empty(self) -> bool:
        """Whether nobody needs the rows any more, and they are freed."""
        return self.is_taken and not any(table.rows for table in self.tables)


class MemtableGate:
    """Closes the flag of a subtask while too many memtables are in memory.

    Parameters
    ----------
    backpressure : BackpressureFlag
    """

    def __init__(self, backpressure: BackpressureFlag) -> None:
        self._backpressure = backpressure
        #: memtables in memory, oldest first
        self._held: list[Memtable] = []
        self._is_closed = False

    @property
    def can_open(self) -> bool:
        """Whether the gate is closed, and a memtable has left memory since."""
        return self._is_closed and any(memtable.is_empty for memtable in self._held)

    def add(self, memtable: Memtable) -> None:
        """Count a memtable until it is empty."""
        self._held.append(memtable)

    def update(self, waiting: int) -> None:
        """Open or close. `waiting` memtables wait for the writer."""
        self._held = [memtable for memtable in self._held if not memtable.is_empty]
        is_closed = waiting >= WAITING_MAX or len(self._held) >= HELD_MAX
        if is_closed != self._is_closed:
            self._is_closed = is_closed
            self._backpressure.closed += 1 if is_closed else -1
