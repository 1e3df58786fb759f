"""Contract of a state backend: the place where snapshots are stored.

Owns the contract itself and the check of paths. Must not know what is stored, nor how the time of a call is bounded.
Paths are relative to the backend's root, with segments separated by ``/``. Errors are `OSError`: FileNotFoundError for
a missing file, TimeoutError for a store that does not answer in time, `StoreRefused` for what no second try can mend.
After an error nobody knows whether a write happened (PROTOCOL 7.6, undecided manifest).
"""

from __future__ import annotations

import contextlib
import errno
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

from cutline.snapshot.channel.frame import Buffer

#: Bytes up to which a worker's contribution to a snapshot travels inside the manifest. A round trip to an object store
#: would cost more than these bytes.
INLINE_BYTES_MAX = 16 * 1024

#: Numbers of system errors that stay until somebody changes the store or its rights.
_PERMANENT_ERRORS = frozenset(
    (
        *(errno.EACCES, errno.EINVAL, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.ENOSYS, errno.ENOTDIR),
        *(errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM, errno.EROFS),
    )
)

#: First letters of the name of a file that `probe` writes, and of files that a backend has not finished.
#: No encoded name begins with a dot.
TEMPORARY = ".writing-"

#: Letters of the longest name of a file in a run: a file of parts, with an index of six digits.
_NAME_LETTERS_MAX = 100

#: Segments of a path that are no plain names.
_NO_NAMES = frozenset(("", ".", ".."))

Result = TypeVar("Result")


class StoreRefused(OSError):
    """A store lacks what the contract needs, or refuses the call for good. The text names the store and the cause."""


def is_permanent(error: OSError) -> bool:
    """Return whether repeating the call that raised `error` is of no use, because the cause stays."""
    return isinstance(error, StoreRefused | FileNotFoundError) or error.errno in _PERMANENT_ERRORS


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
        return self._put_repeatedly(self._put_if_absent, path, chunks)

    def put_alone(self, path: str, chunks: Sequence[Buffer]) -> bool:
        """Write a file of any size, whose name no other writer uses. Otherwise as `put_if_absent`.

        Object stores limit the bytes of a write that excludes other writers, because such a write is one request.
        Racing writers of one name may both get True here.

        Raises
        ------
        OSError
            if the store did not confirm the write. The file may even appear later.
        """
        return self._put_repeatedly(self._put_alone, path, chunks)

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

    def probe(self, folder: str, token: str) -> None:
        """Check by a few calls that this store can hold files in `folder`. Call before a run begins.

        A store that ignores the condition of `put_if_absent` would otherwise be noticed by damage only.

        Parameters
        ----------
        folder : str
            Folder of the run.
        token : str
            Letters of the probe's file. No two probes of a store have one token.

        Raises
        ------
        StoreRefused
            if the store does not keep the contract. The text names what is missing.
        OSError
            if the store fails.
        """
        check_path(folder)
        self._probe(folder, token)

    def _call(self, what: str, function: Callable[[], Result]) -> Result:
        """Return the result of `function`. `what` names the call in errors.

        A backend may bound the time, and call `function` again after an error.
        """
        return function()

    def _put_repeatedly(
        self, put: Callable[[str, Sequence[memoryview]], bool], path: str, chunks: Sequence[Buffer]
    ) -> bool:
        check_path(path)
        views = [memoryview(chunk).cast("B") for chunk in chunks]  # Arrow's buffers are of signed bytes
        tries = 0

        def attempt() -> bool:
            nonlocal tries
            tries += 1
            # After a failed try the file may be its work. Only the stored bytes show that.
            return put(path, views) or (tries > 1 and self._get(path, 0, None) == b"".join(views))

        return self._call(f"{self}: put {path}", attempt)

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

    def _put_alone(self, path: str, chunks: Sequence[memoryview]) -> bool:
        return self._put_if_absent(path, chunks)

    def _leftovers(self, prefix: str) -> list[str]:
        return []

    def _probe(self, folder: str, token: str) -> None:
        path = f"{folder}/{TEMPORARY}probe-{token}-".ljust(len(folder) + 1 + _NAME_LETTERS_MAX, "x")
        first, second = b"1 " + token.encode(), b"2 " + token.encode()
        try:
            if not self.put_if_absent(path, [first]):
                raise StoreRefused(errno.ENOTSUP, f"{self}: a file that nobody wrote is there already")
            if self.put_if_absent(path, [second]):
                raise StoreRefused(errno.ENOTSUP, f"{self}: a second writer of a file overwrites the first")
            if self.get(path) != first:
                raise StoreRefused(errno.ENOTSUP, f"{self}: a file is read with other bytes than were written")
            if path not in (*self.files(folder), *self.leftovers(folder)):
                raise StoreRefused(errno.ENOTSUP, f"{self}: a written file is not listed, or under another name")
        except TimeoutError:
            raise  # because a store that hangs would hang once more
        except OSError:
            with contextlib.suppress(OSError):  # because the first error says more
                self.delete(path)
            raise
        self.delete(path)


def check_path(path: str) -> None:
    """Refuse a path that is not plain and relative, so that no name can lead out of the root.

    Raises
    ------
    ValueError
        if the path is refused. The message names the path.
    """
    if "\0" in path or not _NO_NAMES.isdisjoint(path.split("/")):
        raise ValueError(f"{path!r} is not a relative path of plain names")
