"""Snapshots in the memory of one process: that of the coordinator, whose loss they do not survive."""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence

from state_backends.base import StateBackend

#: No part is ever written on its own: the only process that has this memory is the coordinator's, so every part
#: comes to it inside the manifest.
ALL_INLINE_BYTES = 2**63 - 1


class MemoryBackend(StateBackend):
    """Keeps snapshots in a dict. For tests, and for runs that need recovery but no durability.

    It lives in the coordinator's process and ends with it: after the loss of the coordinator, of the driver or
    of its host the run starts from the beginning. A pickled copy is empty and separate from its original.
    """

    def __init__(self) -> None:
        super().__init__(inline_bytes_max=ALL_INLINE_BYTES, deadline=math.inf)
        self._bytes: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def __str__(self) -> str:
        return "memory:"

    def __reduce__(self) -> tuple[type[MemoryBackend], tuple[()]]:
        return (MemoryBackend, ())

    def _put_if_absent(self, path: str, chunks: Sequence[memoryview]) -> bool:
        data = b"".join(chunks)
        with self._lock:
            if path in self._bytes:
                return False
            self._bytes[path] = data
            return True

    def _get(self, path: str, offset: int, size: int | None) -> bytes:
        with self._lock:
            if path not in self._bytes:
                raise FileNotFoundError(f"{self}: there is no {path}")
            return self._bytes[path][offset : None if size is None else offset + size]

    def _exists(self, path: str) -> bool:
        with self._lock:
            return path in self._bytes

    def _files(self, prefix: str) -> list[str]:
        folder = f"{prefix}/" if prefix else ""
        with self._lock:
            return [path for path in self._bytes if path.startswith(folder)]

    def _delete(self, paths: Sequence[str]) -> None:
        with self._lock:
            for path in paths:
                self._bytes.pop(path, None)
