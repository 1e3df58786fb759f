"""Memory for copies of large states, kept from one snapshot to the next.

New memory is cleared by the system page by page, and in a virtual machine its host may have to find it first: a copy
of 1 GB took 0.3 to 1.1 s into new memory, and 0.1 into memory that was there.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

#: Smaller copies the process's allocator keeps memory for by itself.
KEPT_BYTES_MIN = 1024 * 1024

#: Seconds after which a block that no snapshot needed is given back.
KEPT_SECONDS_MAX = 60.0

#: A new block is larger by this part, for states that grow. Until it is written to, it takes no memory.
_ROOM_PART = 8


@dataclass(eq=False, slots=True)
class _Block:
    memory: npt.NDArray[np.uint8]
    #: when it was seen idle for the first time
    idle_since: float | None = None


class KeptMemory:
    """Blocks of memory, each lent to one copy at a time. All methods are one thread's; copies may go on any."""

    def __init__(self) -> None:
        self._idle: list[_Block] = []

    @property
    def idle_bytes(self) -> int:
        """Return the bytes that are kept and not lent."""
        return sum(block.memory.nbytes for block in self._idle)

    def allocate(self, size: int) -> npt.NDArray[np.uint8]:
        """So many bytes to write to; they are kept for another copy as soon as nothing refers to them any more.

        Cut no array out of it: NumPy lets that refer to the whole block. Views of its bytes refer to it.
        """
        if size < KEPT_BYTES_MIN:
            return np.empty(size, np.uint8)
        block = self._take(size)
        lent = block.memory[:size]  # an object of its own, whose end is seen
        weakref.finalize(lent, self._idle.append, block).atexit = False
        return lent

    def copy(self, data: memoryview) -> memoryview:
        """A copy of `data`, in such room."""
        room = self.allocate(data.nbytes)
        room[:] = np.frombuffer(data, np.uint8)
        return room.data.toreadonly()

    def release_idle(self, now: float) -> None:
        """Give back what has not been needed for `KEPT_SECONDS_MAX`; `now` in seconds of any steady clock."""
        for block in list(self._idle):
            if block.idle_since is None:
                block.idle_since = now
            elif now - block.idle_since > KEPT_SECONDS_MAX:
                self._idle.remove(block)

    def give_back(self) -> None:
        """Keep nothing: memory is needed for something else. What is lent goes when it comes back."""
        self._idle = []

    def _take(self, size: int) -> _Block:
        fitting = [block for block in self._idle if size <= block.memory.nbytes <= 2 * size]
        if not fitting:
            self._make_room(size)
            return _Block(np.empty(size + size // _ROOM_PART, np.uint8))
        # Of equal ones that which came last: the others shall be seen to be idle.
        block = min(reversed(fitting), key=lambda block: block.memory.nbytes)
        self._idle.remove(block)
        block.idle_since = None
        return block

    def _make_room(self, size: int) -> None:
        """Give back as much of what is too small, so that a state which grows leaves no block of each size."""
        outgrown = [block for block in self._idle if block.memory.nbytes < size]
        for block in sorted(outgrown, key=lambda block: block.memory.nbytes, reverse=True):
            if size <= 0:
                return
            self._idle.remove(block)
            size -= block.memory.nbytes
