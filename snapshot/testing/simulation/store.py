"""The backend of a simulated run: shared memory, whose calls can fail for one process at a time."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from cutline.snapshot.stored.memory_files import MemoryFiles

#: maximum bytes of an inline part, so small that parts are stored both ways
_INLINE_BYTES_MAX = 250


class Break(Enum):
    """The failure of a process's next call to the store."""

    FAILS = "fails"
    TEARS = "tears"


class SimulatedBackend(MemoryFiles):
    """The memory that all processes of a simulation share, as one process sees it.

    Parameters
    ----------
    files : dict
        ``{path: bytes}``, shared by all processes.
    """

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(files, inline_bytes_max=_INLINE_BYTES_MAX)
        #: failure of the next call that touches a part, or None
        self._break: Break | None = None

    def break_next(self, how: Break) -> None:
        """Fail the next call that touches a part. Until then small parts are not stored inline."""
        self._break = how
        self.inline_bytes_max = 0

    def _put_if_absent(self, path: str, chunks: Sequence[memoryview]) -> bool:
        match self._take_break(path):
            case Break.FAILS:
                raise OSError(f"{path}: simulated: no space")
            case Break.TEARS if "/records/" in path:  # whole or not at all, but nobody knows which
                super()._put_if_absent(path, chunks)
                raise OSError(f"{path}: simulated: no answer")
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
        """Take the failure of a call on a part or a record. Manifests are written whole or not at all: see `Doubt`."""
        if "/parts/" not in path and "/records/" not in path:
            return None
        found, self._break = self._break, None
        self.inline_bytes_max = _INLINE_BYTES_MAX
        return found
