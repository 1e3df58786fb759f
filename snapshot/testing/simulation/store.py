"""The backend of a simulated run: memory, which one process at a time can find broken."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from snapshot.stored.memory_files import MemoryFiles

#: Parts above this size are stored on their own, so that both ways are taken.
_INLINE_BYTES_MAX = 250


class Break(Enum):
    """How the next call of a process to the store ends."""

    FAILS = "fails"
    TEARS = "tears"


class SimulatedBackend(MemoryFiles):
    """The memory that all processes of a simulation share, as one of them sees it.

    Parameters
    ----------
    files : dict
        ``{path: bytes}``, shared.
    """

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(files, inline_bytes_max=_INLINE_BYTES_MAX)
        #: how the next call that touches a part ends
        self._break: Break | None = None

    def break_next(self, how: Break) -> None:
        """Have the next call that touches a part end so; until then small parts are stored on their own too."""
        self._break = how
        self.inline_bytes_max = 0

    def _put_if_absent(self, path: str, chunks: Sequence[memoryview]) -> bool:
        match self._take_break(path):
            case Break.FAILS:
                raise OSError(f"{path}: simulated: no space")
            case Break.TEARS:
                data = b"".join(chunks)
                super()._put_if_absent(path, [memoryview(data)[: len(data) // 2]])
                raise OSError(f"{path}: simulated: torn")
            case None:
                return super()._put_if_absent(path, chunks)

    def _get(self, path: str, offset: int, size: int | None) -> bytes:
        if self._take_break(path) is not None:
            raise OSError(f"{path}: simulated: unreadable")
        return super()._get(path, offset, size)

    def _take_break(self, path: str) -> Break | None:
        """Only parts: a store puts a manifest whole or not at all, and `Doubt` is what can happen to its answer."""
        if "/parts/" not in path:
            return None
        found, self._break = self._break, None
        self.inline_bytes_max = _INLINE_BYTES_MAX
        return found
