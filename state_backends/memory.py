"""Snapshots in the memory of one process: that of the coordinator, whose loss they do not survive."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from snapshot.stored.memory_files import MemoryFiles

#: No part is ever written on its own: the only process that has this memory is the coordinator's, so every part
#: comes to it inside the manifest.
ALL_INLINE_BYTES = 2**63 - 1


class MemoryBackend(MemoryFiles):
    """Keeps snapshots in a dict. For tests, and for runs that need recovery but no durability.

    It lives in the coordinator's process and ends with it: after the loss of the coordinator, of the driver or
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
