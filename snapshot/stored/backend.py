"""Contract of a state backend: the place where snapshots are stored.

Owns the contract itself and the check of paths. Must not know what is stored, nor how the time of a call is bounded.
Paths are relative to the backend's root, with segments separated by ``/``. Errors are `OSError`: FileNotFoundError for
a missing file, TimeoutError for a store that does not answer in time. After an error nobody knows whether a write
happened (PROTOCOL 7.6).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

from snapshot.channel.frame import Buffer

#: Bytes up to which a worker's contribution to a snapshot travels inside the manifest. A round trip to an object store
#: would cost more than these bytes.
INLINE_BYTES_MAX = 16 * 1024

Result = TypeVar("Result")


class StateBackend(ABC):
    """A place where snapshots are stored. Instances can be pickled, and many threads may share an instance.

    Parameters
    ----------
    inline_bytes_max : int
        Bytes up to which parts that are stored together travel inside the manifest instead of in a file.
    """

    def __init__(self, *, inline_bytes_max: int = INLINE_BYTES_MAX) -> None:
        self.inline_bytes_max = inline_bytes_max

    def put_if_absent(self, path: str, chunks: Sequence[Buffer]) -> bool:
        """Write a file, once. Files are written in no other way.

        Atomic: of all calls for `path`, ever, one returns True, and nobody reads a part of the bytes. The file is
        durable when the call returns True or False. A backend that lost the answer to its write repeats the write,
        and counts equal bytes in the file as its own. Writers of equal bytes that must know which of them wrote put
        tokens of their own into the bytes.

        Raises
        ------
        OSError
            if the store did not confirm the write. The file may even appear later.
        """
        check_path(path)
        views = [memoryview(chunk).cast("B") for chunk in chunks]  # Arrow's buffers are of signed bytes
        return self._call(f"{self}: put {path}", lambda: self._put_if_absent(path, views))

    def get(self, path: str, offset: int = 0, size: int | None = None) -> bytes:
        """Return at most `size` bytes of a file from `offset` on. Fewer bytes are returned at the end of the file.

        Raises
        ------
        FileNotFoundError
            if there is no such file.
        OSError
            if the store fails or does not answer in time.
        """
        check_path(path)
        return self._call(f"{self}: get {path}", lambda: self._get(path, offset, size))

    def exists(self, path: str) -> bool:
        """Return whether a file is there now. Never answered from a cache, because the fence uses it (PROTOCOL 7.2)."""
        check_path(path)
        return self._call(f"{self}: look at {path}", lambda: self._exists(path))

    def files(self, prefix: str = "") -> list[str]:
        """Return the paths of all files below the folder `prefix` ("": all), ascending. A missing folder has none.

        Listed files are durable, so acting on the list is safe even if the power fails next.
        """
        if prefix:
            check_path(prefix)
        return self._call(f"{self}: list {prefix}", lambda: sorted(self._files(prefix)))

    def delete(self, *paths: str) -> None:
        """Remove files, in no order. Durable on return. A missing file is no error."""
        for path in paths:
            check_path(path)
        if paths:
            more = f" and {len(paths) - 1:,} more" if len(paths) > 1 else ""
            self._call(f"{self}: delete {paths[0]}{more}", lambda: self._delete(paths))

    def leftovers(self, prefix: str = "") -> list[str]:
        """Return paths below `prefix` that may be left from writers that died. `delete` removes them.

        The file of a working writer may be among them, so call twice, some time apart.
        """
        return self._call(f"{self}: list leftovers of {prefix}", lambda: sorted(self._leftovers(prefix)))

    def _call(self, what: str, function: Callable[[], Result]) -> Result:
        """Return the result of `function`. `what` names the call in errors. A backend may bound the time."""
        return function()

    @abstractmethod
    def __str__(self) -> str:
        """Return the location of the backend, without credentials, for errors and pages."""

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
    """Refuse a path that is not plain and relative, so that no name can lead out of the root.

    Raises
    ------
    ValueError
        if the path is refused. The message names the path.
    """
    segments = path.split("/")
    if any(segment in ("", ".", "..") or "\0" in segment for segment in segments):
        raise ValueError(f"{path!r} is not a relative path of plain names")
