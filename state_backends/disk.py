"""The system calls that the file-system backend makes, and nothing more.

One small object, so that a test can put another in its place: one that fails, or one that forgets what was
not synced. Each method is one system call, or one loop over it.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

#: Buffers in one gathered write; the kernel takes 1,024.
GATHERED_CHUNKS_MAX = 512


class Disk:
    """The real thing. Stateless."""

    def create(self, path: str) -> int:
        """A descriptor of a new empty file; FileExistsError if there is one."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)

    def write(self, descriptor: int, chunks: Sequence[memoryview]) -> int:
        """Write some of `chunks`, `GATHERED_CHUNKS_MAX` at most, the first ones first; returns how many bytes."""
        return os.writev(descriptor, chunks)

    def begin_sync(self, descriptor: int, offset: int, size: int) -> None:
        """The disk may begin with these bytes while others are written. A hint, and no promise: `sync` is one."""
        # Linux begins to write what is dirty here, and drops from its cache only what was written by then. What goes
        # wrong, `sync` raises.
        with contextlib.suppress(OSError):
            os.posix_fadvise(descriptor, offset, size, os.POSIX_FADV_DONTNEED)

    def sync(self, descriptor: int) -> None:
        """Make the written bytes durable. The name of the file is not durable yet."""
        os.fsync(descriptor)

    def close(self, descriptor: int) -> None:
        """Close; says nothing about durability."""
        os.close(descriptor)

    def link(self, source: str, target: str) -> None:
        """Give a file a second name, if nobody has that name; FileExistsError otherwise."""
        os.link(source, target)

    def same_file(self, one: str, other: str) -> bool:
        """Whether two names are of one file."""
        return os.path.samefile(one, other)

    def remove(self, path: str) -> None:
        """Remove a name; FileNotFoundError if there is none."""
        os.unlink(path)

    def make_folder(self, path: str) -> None:
        """Make one folder; FileExistsError if there is something."""
        os.mkdir(path, 0o755)

    def sync_folder(self, path: str) -> None:
        """The names in a folder are durable when this returns."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def read(self, path: str, offset: int = 0, size: int | None = None) -> bytes:
        """The bytes of a file from `offset` on, `size` at most."""
        with open(path, "rb", buffering=0) as file:
            file.seek(offset)
            if size is None:
                return file.readall()
            pieces: list[bytes] = []
            while size and (piece := file.read(size)):  # the kernel gives 2 GiB at a time
                pieces.append(piece)
                size -= len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def exists(self, path: str) -> bool:
        """Whether the name is there; an error other than its absence is raised."""
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def entries(self, path: str) -> Sequence[tuple[str, bool]]:
        """(name, is a folder) of everything in a folder; FileNotFoundError if there is none."""
        with os.scandir(path) as found:
            return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
