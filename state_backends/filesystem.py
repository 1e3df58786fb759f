"""Snapshots in a folder of a local or shared file system.

Owns the system calls of `put_if_absent`: a synced temporary file gets its name by ``link``, which the kernel grants to
one writer only. A file system without hard links gets an exclusive rename instead. Then the folder is synced. Must not
know what is stored.

On NFS mount with ``lookupcache=none`` on all hosts. Otherwise the fence may miss a new claim for as long as the client
caches its absence.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from urllib.parse import unquote, urlsplit

from cutline.snapshot.stored.backend import INLINE_BYTES_MAX, TEMPORARY, StoreRefused, is_permanent
from cutline.state_backends.base import CALL_SECONDS_MAX, DeadlineBackend
from cutline.state_backends.disk import GATHERED_CHUNKS_MAX, Disk

#: Bytes of a large file after which the disk begins to write while the rest is copied to the kernel's pages. So both
#: together take as long as the slower. Smaller pieces are faster alone, but a busy loop delays this thread after each
#: call.
PIECE_BYTES = 64 * 1024 * 1024

#: Numbers of the errors by which file systems refuse a call that they do not have. EPERM is Linux's answer to ``link``.
_NOT_THERE = (errno.EPERM, errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK)


class FileSystemBackend(DeadlineBackend):
    """Store snapshots below a folder, which is made by the first write.

    Parameters
    ----------
    root : str
        An absolute path or a ``file://`` URL, the same on all hosts.
    inlineBytesMax, deadline
        See `StateBackend` and `DeadlineBackend`.
    disk : Disk
        The system calls; tests replace them.

    Raises
    ------
    ValueError
        if `root` is neither an absolute path nor a ``file://`` URL.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        inlineBytesMax: int = INLINE_BYTES_MAX,
        deadline: float = CALL_SECONDS_MAX,
        disk: Disk | None = None,
    ) -> None:
        super().__init__(inline_bytes_max=inlineBytesMax, deadline=deadline)
        self.root = _folder_of(os.fspath(root))
        self._disk = Disk() if disk is None else disk
        #: {path: None} of folders whose own names are known to be durable
        self._durable: dict[str, None] = {}
        #: {path: None} of folders that this instance made, and whose names are not durable yet
        self._unsynced: dict[str, None] = {}

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_durable": {}, "_unsynced": {}}  # another host's disk may be another disk

    def __str__(self) -> str:
        return f"file://{self.root}"

    def _put_if_absent(self, path: str, chunks: Sequence[memoryview]) -> bool:
        final = self._absolute(path)
        folder = os.path.dirname(final)
        self._make_folders(folder)
        # A new name for every try, because after a failed fsync the old file's pages may count as clean and never be
        # written.
        temporary = os.path.join(folder, TEMPORARY + secrets.token_hex(8))
        try:
            self._write(temporary, chunks)
            won = self._link(temporary, final)
        finally:
            with contextlib.suppress(OSError):  # because `leftovers` finds the file, and the first error says more
                self._disk.remove(temporary)
        # The loser syncs as well, because a file that it acts on must not vanish with the power.
        self._sync_folder(folder)
        return won

    def _get(self, path: str, offset: int, size: int | None) -> bytes:
        try:
            return self._disk.read(self._absolute(path), offset, size)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise FileNotFoundError(f"{self}: there is no {path}") from error
        except IsADirectoryError as error:
            raise FileNotFoundError(f"{self}: there is no file {path}, but a folder of that name") from error

    def _exists(self, path: str) -> bool:
        return self._disk.exists(self._absolute(path)) and not self._disk.is_folder(self._absolute(path))

    def _files(self, prefix: str) -> list[str]:
        return [path for path in self._walk(prefix) if not _is_temporary(path)]

    def _leftovers(self, prefix: str) -> list[str]:
        return [path for path in self._walk(prefix) if _is_temporary(path)]

    def _delete(self, paths: Sequence[str]) -> None:
        folders: dict[str, None] = {}
        for path in paths:
            absolute = self._absolute(path)
            # Also the folder of a file that is gone, because a failed try may have removed the file.
            folders[os.path.dirname(absolute)] = None
            with contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
                self._disk.remove(absolute)
        for folder in folders:
            with contextlib.suppress(FileNotFoundError, NotADirectoryError):
                self._sync_folder(folder)

    def _probe(self, folder: str, token: str) -> None:
        """Check also that the folder is no other run's, where names in upper and lower case are one."""
        super()._probe(folder, token)
        self._call(f"{self}: probe", partial(self._refuse_other_case, self._absolute(folder)))

    def _refuse_other_case(self, absolute: str) -> None:
        while absolute != self.root:
            parent, name = os.path.split(absolute)
            if name not in (entry for entry, _ in self._disk.entries(parent)):
                raise StoreRefused(
                    errno.EEXIST,
                    f"{self}: a folder is there whose name differs from {name} in upper and lower case only, and this "
                    "file system takes both names for one: choose another name",
                )
            absolute = parent

    def _translated(self, what: str, error: Exception) -> Exception:
        if not isinstance(error, OSError) or error.errno is None or isinstance(error, StoreRefused):
            return error
        # The system's own text may name neither the store nor the file.
        cause = OSError if not is_permanent(error) or isinstance(error, FileNotFoundError) else StoreRefused
        return cause(error.errno, f"{what}: {error.strerror}")

    def _absolute(self, path: str) -> str:
        return os.path.join(self.root, path)

    def _make_folders(self, folder: str) -> None:
        """Make `folder` and all missing folders above it, durably. A synced name is lost if its folder vanishes."""
        existed = self._disk.exists(folder)
        is_ours = folder in self._unsynced or folder.startswith(self.root + "/")
        if existed and (folder in self._durable or not is_ours):
            return  # the owner is responsible for folders above the root, and for an existing root
        parent = os.path.dirname(folder)
        self._make_folders(parent)
        if not existed:
            with contextlib.suppress(FileExistsError):
                self._disk.make_folder(folder)
                self._unsynced[folder] = None
        self._sync_folder(parent)  # also for an existing folder, because its maker may not have synced it yet
        self._durable[folder] = None
        self._unsynced.pop(folder, None)

    def _write(self, path: str, chunks: Sequence[memoryview]) -> None:
        descriptor = self._disk.create(path)
        try:
            rest, offset = [chunk for chunk in chunks if chunk], 0
            while rest:
                left = PIECE_BYTES - offset % PIECE_BYTES
                count = self._disk.write(descriptor, _first(rest[:GATHERED_CHUNKS_MAX], left))
                rest, offset = _without(rest, count), offset + count
                if rest and count == left:
                    self._disk.begin_sync(descriptor, offset - PIECE_BYTES, PIECE_BYTES)
            self._needed("fsync", partial(self._disk.sync, descriptor))
        finally:
            self._disk.close(descriptor)

    def _link(self, temporary: str, final: str) -> bool:
        try:
            self._disk.link(temporary, final)
        except FileExistsError:
            if self._disk.is_folder(final):
                raise IsADirectoryError(errno.EISDIR, "a folder has the name of the file") from None
            # A network file system may have made the link, lost the answer and tried again.
            return self._disk.same_file(temporary, final)
        except OSError as error:
            if error.errno not in _NOT_THERE:
                raise
            return self._rename(temporary, final)
        return True

    def _rename(self, temporary: str, final: str) -> bool:
        """Do without hard links."""
        try:
            self._needed("hard links and no exclusive rename", partial(self._disk.rename_new, temporary, final))
        except FileExistsError:
            return not self._disk.exists(temporary)  # an answer was lost, as in `_link`
        return True

    def _sync_folder(self, path: str) -> None:
        self._needed("fsync of a folder", partial(self._disk.sync_folder, path))

    def _needed(self, what: str, call: Callable[[], None]) -> None:
        """Make a system call. Name `what` if the file system does not have the call."""
        try:
            call()
        except OSError as error:
            if error.errno not in _NOT_THERE:
                raise
            raise StoreRefused(
                errno.ENOTSUP,
                f"{self}: this file system has no {what} ({error.strerror}), so a published snapshot could be lost or "
                "overwritten there: choose another file system, or an object store",
            ) from error

    def _walk(self, prefix: str) -> Iterator[str]:
        folders = [prefix]
        while folders:
            folder = folders.pop()
            absolute = self._absolute(folder) if folder else self.root
            try:
                entries = self._disk.entries(absolute)
            except (FileNotFoundError, NotADirectoryError):
                continue
            for name, is_folder in entries:
                path = f"{folder}/{name}" if folder else name
                if is_folder:
                    folders.append(path)
                else:
                    yield path
            # Synced after reading, so that the listed files are durable from here on (contract of `files`).
            self._sync_folder(absolute)


def _first(chunks: Sequence[memoryview], size: int) -> list[memoryview]:
    """Return the first `size` bytes of `chunks`."""
    first: list[memoryview] = []
    for chunk in chunks:
        if size <= 0:
            break
        first.append(chunk[:size])
        size -= len(chunk)
    return first


def _without(chunks: Sequence[memoryview], written: int) -> list[memoryview]:
    """Return `chunks` without the first `written` bytes."""
    for number, chunk in enumerate(chunks):
        if written < len(chunk):
            return [chunk[written:], *chunks[number + 1 :]]
        written -= len(chunk)
    return []


def _is_temporary(path: str) -> bool:
    return path.rpartition("/")[2].startswith(TEMPORARY)


def _folder_of(root: str) -> str:
    if root.startswith("file:"):
        url = urlsplit(root)
        if url.netloc not in ("", "localhost") or url.query or url.fragment:
            raise ValueError(f"{root!r}: a file URL has three slashes and a path, as file:///data/snapshots")
        root = unquote(url.path)
    if "://" in root or not os.path.isabs(root):
        raise ValueError(f"{root!r}: give an absolute path or a file:// URL: workers start in other folders")
    return os.path.normpath(root)
