"""Disks for tests: one in memory that forgets what was not synced, and real ones that fail or hang."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from cutline.state_backends.disk import Disk


class PowerLoss(Exception):
    """The power failed during this system call."""


@dataclass(eq=False)
class _File:
    data: bytes = b""
    durable: bytes = b""


@dataclass(eq=False)
class _Folder:
    names: dict[str, _File | _Folder] = field(default_factory=dict)
    durable: dict[str, _File | _Folder] = field(default_factory=dict)


class ForgetfulDisk(Disk):
    """A whole file system in memory. `lose_power` leaves only what was synced: bytes by file, names by folder.

    Parameters
    ----------
    fails_at : int
        Number of the system call, counted from 0, before which the power fails; negative: never.
    """

    def __init__(self, fails_at: int = -1) -> None:
        self.root = _Folder()
        self.calls = 0
        self.fails_at = fails_at
        self._open: dict[int, _File] = {}

    def lose_power(self) -> None:
        """Forget everything that was not synced, and come back."""
        self._open.clear()
        self.fails_at = -1
        self._forget(self.root)

    def create(self, path: str) -> int:
        self._step()
        folder, name = self._parent(path)
        if name in folder.names:
            raise FileExistsError(path)
        file = _File()
        folder.names[name] = file
        self._open[self.calls] = file
        return self.calls

    def write(self, descriptor: int, chunks: Sequence[memoryview]) -> int:
        self._step()
        data = b"".join(chunks)
        torn = data[: max(1, len(data) // 2)]
        self._open[descriptor].data += torn
        return len(torn)

    def begin_sync(self, descriptor: int, offset: int, size: int) -> None:
        """It promises nothing, and the descriptor is none of the system's."""

    def sync(self, descriptor: int) -> None:
        self._step()
        self._open[descriptor].durable = self._open[descriptor].data

    def close(self, descriptor: int) -> None:
        self._open.pop(descriptor, None)

    def link(self, source: str, target: str) -> None:
        self._step()
        folder, name = self._parent(target)
        if name in folder.names:
            raise FileExistsError(target)
        folder.names[name] = self._file(source)

    def rename_new(self, source: str, target: str) -> None:
        self._step()
        folder, name = self._parent(target)
        if name in folder.names:
            raise FileExistsError(target)
        before, old_name = self._parent(source)
        folder.names[name] = before.names.pop(old_name)

    def is_folder(self, path: str) -> bool:
        return self.exists(path) and isinstance(self._find(path), _Folder)

    def same_file(self, one: str, other: str) -> bool:
        return self._file(one) is self._file(other)

    def remove(self, path: str) -> None:
        self._step()
        folder, name = self._parent(path)
        if name not in folder.names:
            raise FileNotFoundError(path)
        del folder.names[name]

    def make_folder(self, path: str) -> None:
        self._step()
        folder, name = self._parent(path)
        if name in folder.names:
            raise FileExistsError(path)
        folder.names[name] = _Folder()

    def sync_folder(self, path: str) -> None:
        self._step()
        folder = self._folder(path)
        folder.durable = dict(folder.names)

    def read(self, path: str, offset: int = 0, size: int | None = None) -> bytes:
        return self._file(path).data[offset : None if size is None else offset + size]

    def exists(self, path: str) -> bool:
        try:
            self._find(path)
        except FileNotFoundError:
            return False
        return True

    def entries(self, path: str) -> Sequence[tuple[str, bool]]:
        return [(name, isinstance(found, _Folder)) for name, found in self._folder(path).names.items()]

    def _step(self) -> None:
        if self.calls == self.fails_at:
            raise PowerLoss
        self.calls += 1

    def _forget(self, folder: _Folder) -> None:
        folder.names = dict(folder.durable)
        for found in folder.names.values():
            if isinstance(found, _Folder):
                self._forget(found)
            else:
                found.data = found.durable

    def _find(self, path: str) -> _File | _Folder:
        found: _File | _Folder = self.root
        for name in path.split("/")[1:]:
            if name:
                if not isinstance(found, _Folder) or name not in found.names:
                    raise FileNotFoundError(path)
                found = found.names[name]
        return found

    def _folder(self, path: str) -> _Folder:
        found = self._find(path)
        if not isinstance(found, _Folder):
            raise NotADirectoryError(path)
        return found

    def _file(self, path: str) -> _File:
        found = self._find(path)
        assert isinstance(found, _File)
        return found

    def _parent(self, path: str) -> tuple[_Folder, str]:
        folder, _, name = path.rpartition("/")
        return self._folder(folder), name


class NeverSyncsFolders(ForgetfulDisk):
    """The mutant "directory not fsynced"."""

    def sync_folder(self, path: str) -> None:
        self._step()


class NeverSyncsFiles(ForgetfulDisk):
    """The mutant "file not fsynced"."""

    def sync(self, descriptor: int) -> None:
        self._step()


class NoHardLinks(ForgetfulDisk):
    """A disk in memory that has an exclusive rename, and no hard links."""

    def link(self, source: str, target: str) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


class CaseInsensitive(ForgetfulDisk):
    """A disk in memory that takes names for one if they differ in upper and lower case only."""

    def _find(self, path: str) -> _File | _Folder:
        return super()._find(self._spelled(path))

    def _parent(self, path: str) -> tuple[_Folder, str]:
        return super()._parent(self._spelled(path))

    def _spelled(self, path: str) -> str:
        """Return `path` with each name as the folder spells the name."""
        folder: _File | _Folder | None = self.root
        names = []
        for name in path.split("/")[1:]:
            there = folder.names if isinstance(folder, _Folder) else {}
            names.append(next((each for each in there if each.casefold() == name.casefold()), name))
            folder = there.get(names[-1])
        return "/" + "/".join(names)


class LackingDisk(Disk):
    """A real disk of which some system calls always fail, each with its error.

    Parameters
    ----------
    errors : dict
        ``{name of a method: number of its error}``.
    """

    def __init__(self, errors: dict[str, int]) -> None:
        self._errors = errors

    def __getattribute__(self, name: str) -> Any:
        errors = object.__getattribute__(self, "__dict__").get("_errors", {})
        if name not in errors:
            return object.__getattribute__(self, name)

        def fail(*_: object) -> None:
            raise OSError(errors[name], os.strerror(errors[name]))

        return fail


class Overwriting(Disk):
    """A real disk whose ``link`` does not refuse a name that is taken."""

    def link(self, source: str, target: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(target)
        super().link(source, target)


class OverwritingRename(LackingDisk):
    """A real disk without hard links, whose rename ignores the condition."""

    def __init__(self) -> None:
        super().__init__({"link": errno.EPERM})

    def rename_new(self, source: str, target: str) -> None:
        os.rename(source, target)


class SharedCreate(Disk):
    """A real disk that ignores that a file must be created by its writer."""

    def create(self, path: str) -> int:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)


class NewInodes(Disk):
    """A real disk that numbers a file anew at each call, as some file systems of user space do."""

    def same_file(self, one: str, other: str) -> bool:
        return False


class Stale(Disk):
    """A real disk that reads a new file as empty, as a cache of another time would."""

    def read(self, path: str, offset: int = 0, size: int | None = None) -> bytes:
        return b""


class Truncating(Disk):
    """A real disk that cuts long names, as the oldest file systems do."""

    def create(self, path: str) -> int:
        return super().create(_cut(path))

    def link(self, source: str, target: str) -> None:
        super().link(_cut(source), _cut(target))

    def remove(self, path: str) -> None:
        super().remove(_cut(path))

    def read(self, path: str, offset: int = 0, size: int | None = None) -> bytes:
        return super().read(_cut(path), offset, size)

    def same_file(self, one: str, other: str) -> bool:
        return super().same_file(_cut(one), _cut(other))


def _cut(path: str) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, name[:14])


class FailingDisk(Disk):
    """A real disk of which one system call fails once, with `error`; a write is torn first."""

    def __init__(self, call: str, error: int) -> None:
        self.armed = True
        self._call = call
        self._error = error

    def create(self, path: str) -> int:
        self._fail("create")
        return super().create(path)

    def write(self, descriptor: int, chunks: Sequence[memoryview]) -> int:
        if self.armed and self._call == "write":
            super().write(descriptor, [chunks[0][:1]])
        self._fail("write")
        return super().write(descriptor, chunks)

    def sync(self, descriptor: int) -> None:
        self._fail("sync")
        super().sync(descriptor)

    def link(self, source: str, target: str) -> None:
        self._fail("link")
        super().link(source, target)

    def make_folder(self, path: str) -> None:
        self._fail("make_folder")
        super().make_folder(path)

    def sync_folder(self, path: str) -> None:
        self._fail("sync_folder")
        super().sync_folder(path)

    def _fail(self, call: str) -> None:
        if self.armed and call == self._call:
            self.armed = False
            raise OSError(self._error, os.strerror(self._error))


class WatchedDisk(Disk):
    """A real disk that notes what is written, begun and synced, and writes so many buffers at one time at most."""

    def __init__(self, buffers_max: int) -> None:
        #: (offset, bytes) of writes that begin there, and of what may begin to be synced; "sync" for all
        self.seen: list[tuple[str, int, int]] = []
        #: what all writes were given, written or not
        self.chunks_given = 0
        self._buffers_max = buffers_max
        self._written = 0

    def write(self, descriptor: int, chunks: Sequence[memoryview]) -> int:
        self.chunks_given += len(chunks)
        count = super().write(descriptor, chunks[: self._buffers_max])
        self.seen.append(("write", self._written, count))
        self._written += count
        return count

    def begin_sync(self, descriptor: int, offset: int, size: int) -> None:
        self.seen.append(("begin", offset, size))
        super().begin_sync(descriptor, offset, size)

    def sync(self, descriptor: int) -> None:
        self.seen.append(("sync", 0, self._written))
        super().sync(descriptor)


class LostAnswerDisk(Disk):
    """A network file system that links, loses the answer, asks again and is told that the name exists."""

    def link(self, source: str, target: str) -> None:
        super().link(source, target)
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


class HangingDisk(Disk):
    """A real disk whose reads hang until `released` is set."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def read(self, path: str, offset: int = 0, size: int | None = None) -> bytes:
        self.released.wait()
        return super().read(path, offset, size)
