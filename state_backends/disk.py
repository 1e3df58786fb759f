"""System calls of the file-system backend, and nothing more.

The class is small, so that a test can replace it by a disk that fails, or a disk that forgets unsynced data. Each
method is one system call, or one loop over it.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import sys
from collections.abc import Sequence

#: Buffers in one gathered write. The kernel takes 1,024.
GATHERED_CHUNKS_MAX = 512

#: Values of Linux and macOS for the exclusive rename: the flag, and the descriptor that means the current folder.
_RENAME_NOREPLACE, _RENAME_EXCL, _AT_FDCWD = 1, 4, -100


class Disk:
    """The real disk. Stateless."""

    def create(self, path: str) -> int:
        """Create an empty file and return its descriptor. Raises FileExistsError if the file exists."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    def write(self, descriptor: int, chunks: Sequence[memoryview]) -> int:
        """Write some bytes of the first `GATHERED_CHUNKS_MAX` chunks, in order. Return the number of bytes."""
        return os.writev(descriptor, chunks)

    def begin_sync(self, descriptor: int, offset: int, size: int) -> None:
        """Let the disk begin to write these bytes while others are written. A hint only; `sync` makes them durable."""
        # Linux begins to write dirty pages here, and drops only clean pages from its cache. `sync` reports errors.
        with contextlib.suppress(OSError):
            os.posix_fadvise(descriptor, offset, size, os.POSIX_FADV_DONTNEED)

    def sync(self, descriptor: int) -> None:
        """Make the written data durable. The file's name is not durable yet."""
        os.fsync(descriptor)

    def close(self, descriptor: int) -> None:
        """Close a file. Makes nothing durable."""
        os.close(descriptor)

    def link(self, source: str, target: str) -> None:
        """Give a file a second name. Raises FileExistsError if the name is taken."""
        os.link(source, target)

    def rename_new(self, source: str, target: str) -> None:
        """Rename a file. Raises FileExistsError if the name is taken, and ENOSYS if the system has no such call."""
        library = ctypes.CDLL(None, use_errno=True)
        one, other = os.fsencode(source), os.fsencode(target)
        if hasattr(library, "renameat2"):
            failed = library.renameat2(_AT_FDCWD, one, _AT_FDCWD, other, _RENAME_NOREPLACE)
        elif sys.platform == "darwin" and hasattr(library, "renamex_np"):
            failed = library.renamex_np(one, other, _RENAME_EXCL)
        else:
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS), source, None, target)
        if failed:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), source, None, target)

    def same_file(self, one: str, other: str) -> bool:
        """Return whether two names are of one file."""
        return os.path.samefile(one, other)

    def remove(self, path: str) -> None:
        """Remove a name. Raises FileNotFoundError if there is no such name."""
        os.unlink(path)

    def make_folder(self, path: str) -> None:
        """Make a folder. Raises FileExistsError if the name is taken."""
        os.mkdir(path, 0o755)

    def sync_folder(self, path: str) -> None:
        """Make the names in a folder durable."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def read(self, path: str, offset: int = 0, size: int | None = None) -> bytes:
        """Return the bytes of a file from `offset` on, `size` at most."""
        with open(path, "rb", buffering=0) as file:
            file.seek(offset)
            if size is None:
                return file.readall()
            pieces: list[bytes] = []
            while size and (piece := file.read(size)):  # the kernel gives at most 2 GiB a call
                pieces.append(piece)
                size -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def exists(self, path: str) -> bool:
        """Return whether the name exists, of a file or a folder. Errors other than its absence are raised."""
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def is_folder(self, path: str) -> bool:
        """Return whether the name is of a folder."""
        return os.path.isdir(path)

    def entries(self, path: str) -> Sequence[tuple[str, bool]]:
        """Return (name, is a folder) of all entries of a folder. Raises FileNotFoundError if there is no folder."""
        with os.scandir(path) as found:
            return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
