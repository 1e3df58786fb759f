"""In-memory files: the smallest backend that keeps the contract."""

from __future__ import annotations

from collections.abc import Sequence

from cutline.snapshot.stored.backend import INLINE_BYTES_MAX, StateBackend


class MemoryFiles(StateBackend):
    """Store files in a dict. For one thread at a time.

    Parameters
    ----------
    files : dict
        ``{path: bytes}``. Several instances may share the dict.
    inline_bytes_max : int
        See `StateBackend`.
    """

    def __init__(self, files: dict[str, bytes], *, inline_bytes_max: int = INLINE_BYTES_MAX) -> None:
        super().__init__(inline_bytes_max=inline_bytes_max)
        self._bytes = files

    def __str__(self) -> str:
        return "memory:"

    def _put_if_absent(self, path: str, chunks: Sequence[memoryview]) -> bool:
        if path in self._bytes:
            return False
        self._bytes[path] = b"".join(chunks)
        return True

    def _get(self, path: str, offset: int, size: int | None) -> bytes:
        if path not in self._bytes:
            raise FileNotFoundError(f"{self}: there is no {path}")
        return self._bytes[path][offset : None if size is None else offset + size]

    def _exists(self, path: str) -> bool:
        return path in self._bytes

    def _files(self, prefix: str) -> list[str]:
        folder = f"{prefix}/" if prefix else ""
        return [path for path in self._bytes if path.startswith(folder)]

    def _delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._bytes.pop(path, None)
