"""Memory for copies of large states, kept from one snapshot to the next.

The system clears new memory page by page, and in a virtual machine the host may have to find the pages first. A copy
of 1 GB took 0.3 to 1.1 s into new memory, and 0.1 s into kept memory.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

#: Bytes below which copies get memory from the process's allocator, which keeps memory of this size itself.
KEPT_BYTES_MIN = 1024 * 1024

#: Seconds after which an idle block is given back.
KEPT_SECONDS_MAX = 60.0

#: Divisor of a new block's size that gives its spare room, for growing states. Unwritten room takes no memory.
_ROOM_PART = 8


@dataclass(eq=False, slots=True)
class _Block:
    memory: npt.NDArray[np.uint8]
    #: seconds of the caller's clock when `release_idle` first found the block idle, or None
    idle_since: float | None = None


class KeptMemory:
    """Blocks of memory, each lent to one copy at a time. One thread calls all methods; any thread may copy."""

    def __init__(self) -> None:
        self._idle: list[_Block] = []

    @property
    def idle_bytes(self) -> int:
        """Bytes that are kept and not lent."""
        return sum(block.memory.nbytes for block in self._idle)

    def allocate(self, size: int) -> npt.NDArray[np.uint8]:
        """Lend `size` writable bytes. The block is kept for another copy as soon as nothing refers to the bytes.

        Slice no array out of the result, because NumPy lets a slice refer to the whole block. Memoryviews are safe.
        """
        if size < KEPT_BYTES_MIN:
            return np.empty(size, np.uint8)
        block = self._take(size)
        lent = block.memory[:size]  # an object of its own, so that a finalizer can watch its end
        weakref.finalize(lent, self._idle.append, block).atexit = False
        return lent

    def copy(self, data: memoryview) -> memoryview:
        """Return a copy of `data` in kept memory."""
        room = self.allocate(data.nbytes)
        room[:] = np.frombuffer(data, np.uint8)
        return room.data.toreadonly()

    def release_idle(self, now: float) -> None:
        """Give back blocks that were idle for `KEPT_SECONDS_MAX`. `now` is in seconds of any steady clock."""
        for block in list(self._idle):
            if block.idle_since is None:
                block.idle_since = now
            elif now - block.idle_since > KEPT_SECONDS_MAX:
                self._idle.remove(block)

    def give_back(self) -> None:
        """Give back all idle blocks, because memory is needed elsewhere. Lent blocks are freed when they come back."""
        self._idle = []

    def _take(self, size: int) -> _Block:
        fitting = [block for block in self._idle if size <= block.memory.nbytes <= 2 * size]
        if not fitting:
            self._make_room(size)
            return _Block(np.empty(size + size // _ROOM_PART, np.uint8))
        # The last returned of equal blocks is taken, so that the rest stay idle and are given back.
        block = min(reversed(fitting), key=lambda block: block.memory.nbytes)
        self._idle.remove(block)
        block.idle_since = None
        return block

    def _make_room(self, size: int) -> None:
        """Give back about `size` bytes of outgrown blocks, so that a growing state leaves no block of each size."""
        outgrown = [block for block in self._idle if block.memory.nbytes < size]
        for block in sorted(outgrown, key=lambda block: block.memory.nbytes, reverse=True):
            if size <= 0:
                return
            self._idle.remove(block)
            size -= block.memory.nbytes
