"""Snapshots in the memory of the coordinator's process. They are lost with that process."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from cutline.snapshot.stored.memory_files import MemoryFiles

#: Limit that stores every part inside the manifest, because only the coordinator's process has this memory.
ALL_INLINE_BYTES = 2**63 - 1


class MemoryBackend(MemoryFiles):
    """Store snapshots in a dict. For tests, and for runs that need recovery but no durability.

    The dict belongs to the coordinator's process and ends with it. After the loss of the coordinator, of the driver or
    of its host the run starts from the beginning. A pickled copy is empty and separate from its original.
    """

    def __init__(self) -> None:
        super().__init__({}, inline_bytes_max=ALL_INLINE_BYTES)
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[type[MemoryBackend], tuple[()]]:
        return (MemoryBackend, ())

    def _put_if_absent(self, path: str, chunks: Sequence[memoryview]) -> bool:
        with self._lock:
            return super()._put_if_absent(path, chunks)

    def _get(self, path: str, offset: int, size: int | None) -> bytes:
        with self._lock:
            return super()._get(path, offset, size)

    def _files(self, prefix: str) -> list[str]:
        with self._lock:
            return super()._files(prefix)

    def _delete(self, paths: Sequence[str]) -> None:
        with self._lock:
            super()._delete(paths)
