"""The contract of a backend: every place where snapshots live keeps it.

Owns the contract itself and the check of paths; must not know what is stored, nor how a call is bounded in time.
Paths are relative to the backend's root, their segments separated by ``/``. What fails is an `OSError`: a
missing file FileNotFoundError, a store that does not answer in time TimeoutError. Whether a write that ended
in an error happened is unknown (PROTOCOL 7.6).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

from snapshot.channel.frame import Buffer

#: What the subtasks of a worker give to a snapshot travels inside the manifest up to this size: a round trip to an
#: object store costs more than these bytes.
INLINE_BYTES_MAX = 16 * 1024

Result = TypeVar("Result")


class StateBackend(ABC):
    """A place where snapshots live. Instances can be pickled, and one may be used by many threads.

    Parameters
    ----------
    inline_bytes_max : int
        What is stored together is up to this size not written on its own but travels inside the manifest.
    """

    def __init__(self, *, inline_bytes_max: int = INLINE_BYTES_MAX) -> None:
        self.inline_bytes_max = inline_bytes_max

    def put_if_absent(self, path: str, chunks: Sequence[Buffer]) -> bool:
        """Write a file, once. The only write there is.

        Atomic: of all who ever write `path` one gets True, and nobody sees a part of the bytes. What is there when
        this returns, with True or False, is durable. If the answer to a write that succeeded was lost and asking
        again finds the very same bytes, they count as this write's; whoever must tell himself from others who
        write the same puts a token of his own into the bytes.

        Raises
        ------
        OSError
            if it is not known whether the file was written; it may even appear later.
        """
        check_path(path)
        views = [memoryview(chunk).cast("B") for chunk in chunks]  # Arrow's buffers are of signed bytes
        return self._call(f"{self}: put {path}", lambda: self._put_if_absent(path, views))

    def get(self, path: str, offset: int = 0, size: int | None = None) -> bytes:
        """The bytes of a file from `offset` on, `size` at most; fewer where it ends.

        Raises
        ------
        FileNotFoundError
            if there is none.
        OSError
            if the store fails or does not answer in time.
        """
        check_path(path)
        return self._call(f"{self}: get {path}", lambda: self._get(path, offset, size))

    def exists(self, path: str) -> bool:
        """Whether a file is there now. Never answered from a cache: the fence looks through it (PROTOCOL 7.2)."""
        check_path(path)
        return self._call(f"{self}: look at {path}", lambda: self._exists(path))

    def files(self, prefix: str = "") -> list[str]:
        """The paths of all files below the folder `prefix` ("": all), ascending; none if there is no such folder.

        What is listed is durable: acting on it is safe even if the power fails next.
        """
        if prefix:
            check_path(prefix)
        return self._call(f"{self}: list {prefix}", lambda: sorted(self._files(prefix)))

    def delete(self, *paths: str) -> None:
        """Remove files, in no order; durable on return. One that is not there is no error."""
        for path in paths:
            check_path(path)
        if paths:
            more = f" and {len(paths) - 1:,} more" if len(paths) > 1 else ""
            self._call(f"{self}: delete {paths[0]}{more}", lambda: self._delete(paths))

    def leftovers(self, prefix: str = "") -> list[str]:
        """Paths below `prefix` that writers who died in the middle may have left; `delete` removes them.

        The file of a writer who is still at work may be among them: look twice, some time apart.
        """
        return self._call(f"{self}: list leftovers of {prefix}", lambda: sorted(self._leftovers(prefix)))

    def _call(self, what: str, function: Callable[[], Result]) -> Result:
        """Return what `function` returns; `what` names the call in errors. A backend may bound its time."""
        return function()

    @abstractmethod
    def __str__(self) -> str:
        """Return the place, for errors and pages, without credentials."""

    @abstractmethod
    def _put_if_absent(self, path: str, chunks: Sequence[memoryview]) -> bool: ...

    @abstractmethod
    def _get(self, path: str, offset: int, size: int | None) -> bytes: ...

    @abstractmethod
    def _exists(self, path: str) -> bool: ...

    @abstractmethod
    def _files(self, prefix: str) -> list[str]: ...

    @abstractmethod
    def _delete(self, paths: Sequence[str]) -> None: ...

    def _leftovers(self, prefix: str) -> list[str]:
        return []


def check_path(path: str) -> None:
    """Refuse what is not a plain relative path, so that no name can lead out of the root.

    Raises
    ------
    ValueError
        naming the path.
    """
    segments = path.split("/")
    if any(segment in ("", ".", "..") or "\0" in segment for segment in segments):
        raise ValueError(f"{path!r} is not a relative path of plain names")
