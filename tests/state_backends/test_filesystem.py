"""The file-system backend: the contract, and every way in which a disk, a process or the power fails."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from cutline import FileSystemBackend, StateBackend
from cutline.snapshot.stored.backend import StoreRefused
from cutline.state_backends.base import ABANDONED_CALLS_MAX
from cutline.state_backends.disk import GATHERED_CHUNKS_MAX, Disk
from cutline.state_backends.filesystem import PIECE_BYTES
from tests.leaks import LeakCheck
from tests.state_backends import disks
from tests.state_backends.conformance import FOR_ALL, FOR_SHARED


@pytest.mark.parametrize("check", FOR_ALL + FOR_SHARED)
def test_conformance(check: Callable[[StateBackend], None], tmp_path: Path) -> None:
    """It keeps the contract of all backends, in a root that does not exist yet."""
    check(FileSystemBackend(tmp_path / "not" / "there"))


def test_no_leak(tmp_path: Path, leak_check: LeakCheck) -> None:
    """No descriptor, thread or temporary file is left, whatever the outcome of a write."""
    backend = FileSystemBackend(tmp_path)
    assert [backend.put_if_absent("a/b", [b"x"]) for _ in range(3)] == [True, False, False]
    assert [path.name for path in tmp_path.rglob("*")] == ["a", "b"]


@pytest.mark.parametrize("root", ["relative/path", "", "s3://bucket/x", "file://host/x", "file:///x?y"])
def test_roots_are_absolute(root: str) -> None:
    """A root that would be another one in another process is refused."""
    with pytest.raises(ValueError, match=r"absolute path|three slashes"):
        FileSystemBackend(root)


def test_urls_and_paths_are_one() -> None:
    """A path, its URL and its encoded URL name one root."""
    roots = [FileSystemBackend(root).root for root in ("/a b/c", "file:///a b/c", "file:///a%20b/c/", "/a b//c/")]
    assert roots == ["/a b/c"] * 4
    assert str(FileSystemBackend("/a/b")) == "file:///a/b"


# ---- power


def durable_after(disk: disks.ForgetfulDisk) -> None:
    """Checker: what a writer was told, and what a reader saw, is there after the power failed at that moment."""
    backend = FileSystemBackend("/data/runs", disk=disk, deadline=10)
    described: list[str] = []
    try:
        for path in ("r/claims/1", "r/claims/2", "r/snapshots/1"):
            assert backend.put_if_absent(path, [b"content of ", path.encode()])
            described.append(path)
        assert not backend.put_if_absent("r/claims/1", [b"x"])
    except disks.PowerLoss:
        pass
    disk.lose_power()
    for path in described:
        assert backend.exists(path), f"{path} was written, and the power took it"
    for path in backend.files():
        assert backend.get(path) == b"content of " + path.encode(), f"a part of {path} is visible"


def system_calls(kind: type[disks.ForgetfulDisk] = disks.ForgetfulDisk) -> int:
    """How many steps `durable_after` takes when nothing fails."""
    disk = kind()
    durable_after(disk)
    return disk.calls


@pytest.mark.parametrize("at", range(system_calls()))
def test_power_fails_at_every_system_call(at: int) -> None:
    """Wherever the power fails: what was acknowledged is there, and nothing is there in part."""
    durable_after(disks.ForgetfulDisk(at))


@pytest.mark.parametrize("at", range(system_calls(disks.NoHardLinks)))
def test_power_fails_at_every_system_call_of_a_rename(at: int) -> None:
    """A file system without hard links keeps the same promise."""
    durable_after(disks.NoHardLinks(at))


@pytest.mark.parametrize("disk", [disks.NeverSyncsFolders, disks.NeverSyncsFiles])
def test_a_sync_left_out_is_caught(disk: type[disks.ForgetfulDisk]) -> None:
    """Teeth: without either sync the checker above fails."""
    with pytest.raises(AssertionError, match=r"the power took it|is visible"):
        durable_after(disk())


def listing(reader: FileSystemBackend, paths: list[str]) -> list[str]:
    """Return the paths that the reader lists."""
    return [path for path in paths if path in reader.files()]


def losing(reader: FileSystemBackend, paths: list[str]) -> list[str]:
    """Return the paths that the reader tries to write, and that another writer has written."""
    return [path for path in paths if not reader.put_if_absent(path, [b"other"])]


Access = Callable[[FileSystemBackend, list[str]], list[str]]


def seen_and_kept(at: int, reads: type[FileSystemBackend], access: Access) -> tuple[list[str], list[str]]:
    """Return what a reader saw of a writer that died at a system call, and what of it survives the power."""
    disk = disks.ForgetfulDisk(at)
    paths = [f"r/{folder}/{number}" for number in range(3) for folder in ("snapshots", "claims")]
    with contextlib.suppress(disks.PowerLoss):  # here only the process dies
        for path in paths:
            FileSystemBackend("/data/runs", disk=disk, deadline=10).put_if_absent(path, [b"x"])
    disk.fails_at = -1
    seen = access(reads("/data/runs", disk=disk, deadline=10), paths)
    disk.lose_power()
    reader = FileSystemBackend("/data/runs", disk=disk, deadline=10)
    return seen, [path for path in seen if reader.exists(path) and reader.get(path) == b"x"]


#: More than the system calls of the writer above.
_WRITER_CALLS_MAX = 80


@pytest.mark.parametrize("access", [listing, losing])
def test_what_a_reader_saw_does_not_vanish(access: Access) -> None:
    """A writer dies at any system call. What another process then lists, or loses against, survives the power.

    Else a base could be written that continues from a manifest which is gone after the restart.
    """
    found = [seen_and_kept(at, FileSystemBackend, access) for at in range(_WRITER_CALLS_MAX)]
    assert [seen for seen, _ in found] == [kept for _, kept in found]
    assert {len(seen) for seen, _ in found} == set(range(7)), "the writer died between all of its files"


class NeverSyncs(FileSystemBackend):
    """The mutant "a reader relies on the writer's sync"."""

    def _sync_folder(self, path: str) -> None:
        """Leave it out."""


class WritersSync(FileSystemBackend):
    """The mutant "a loser does not sync the folder of the file"."""

    _wins = False

    def _link(self, temporary: str, final: str) -> bool:
        self._wins = super()._link(temporary, final)
        return self._wins

    def _sync_folder(self, path: str) -> None:
        if self._wins or path.rpartition("/")[2] not in ("claims", "snapshots"):
            super()._sync_folder(path)


@pytest.mark.parametrize(("mutant", "access"), [(NeverSyncs, listing), (NeverSyncs, losing), (WritersSync, losing)])
def test_a_reader_that_does_not_sync_is_caught(mutant: type[FileSystemBackend], access: Access) -> None:
    """Teeth: without the reader's own sync, some file that it saw is gone."""
    found = [seen_and_kept(at, mutant, access) for at in range(_WRITER_CALLS_MAX)]
    assert any(seen != kept for seen, kept in found)


@pytest.mark.parametrize("at", range(16))
def test_a_file_in_a_folder_of_a_dead_writer_is_kept(at: int) -> None:
    """A writer dies at any system call, also between the making of a folder and its sync.

    The next writer in that folder finds the folder there, and syncs its name.
    """
    disk = disks.ForgetfulDisk()
    FileSystemBackend("/data/runs", disk=disk, deadline=10).put_if_absent("other/a", [b"z"])
    disk.fails_at = disk.calls + at
    with contextlib.suppress(disks.PowerLoss):  # here only the process dies
        FileSystemBackend("/data/runs", disk=disk, deadline=10).put_if_absent("r/claims/1", [b"x"])
    disk.fails_at = -1
    assert FileSystemBackend("/data/runs", disk=disk, deadline=10).put_if_absent("r/claims/2", [b"y"])
    disk.lose_power()
    assert FileSystemBackend("/data/runs", disk=disk, deadline=10).get("r/claims/2") == b"y"


def test_what_was_deleted_does_not_come_back() -> None:
    """Several at once, in several folders, of which each is synced once, if it is there."""
    disk = disks.ForgetfulDisk()
    backend = FileSystemBackend("/data/runs", disk=disk, deadline=10)
    for path in ("r/a/1", "r/a/2", "r/b/1", "r/b/2"):
        backend.put_if_absent(path, [b"x"])
    calls = disk.calls
    backend.delete("r/a/1", "r/b/1", "r/a/2", "r/c/1")
    assert disk.calls - calls == 4 + 3
    disk.lose_power()
    assert backend.files() == ["r/b/2"]


@pytest.mark.parametrize("buffers_max", [1, 512])
def test_a_large_file_is_stored_while_it_is_written(buffers_max: int, tmp_path: Path) -> None:
    """The disk begins with each whole piece once it is written, whatever a write takes."""
    disk = disks.WatchedDisk(buffers_max)
    backend = FileSystemBackend(tmp_path, disk=disk)
    chunks = [b"envelope", bytes(range(256)) * (PIECE_BYTES // 200), b"in between", b"x" * PIECE_BYTES]
    content = b"".join(chunks)
    assert backend.put_if_absent("large", chunks)
    assert backend.get("large") == content

    begun = [(offset, size) for what, offset, size in disk.seen if what == "begin"]
    assert begun == [(offset, PIECE_BYTES) for offset in range(0, len(content) - PIECE_BYTES, PIECE_BYTES)]
    written = 0
    for what, offset, size in disk.seen:
        if what == "write":
            written = offset + size
        assert written == len(content) if what == "sync" else offset + size <= written, "synced ahead of its writing"


def test_a_file_of_one_piece_is_just_synced(tmp_path: Path) -> None:
    """A small one, and one that ends where a piece does."""
    for name, chunks in (("small", [b"x", b"y"]), ("whole", [b"x" * (PIECE_BYTES - 1), b"y"])):
        disk = disks.WatchedDisk(512)
        assert FileSystemBackend(tmp_path, disk=disk).put_if_absent(name, chunks)
        assert disk.seen == [("write", 0, sum(map(len, chunks))), ("sync", 0, sum(map(len, chunks)))]


def test_many_chunks_are_looked_at_once(tmp_path: Path) -> None:
    """A part of a hundred thousand messages is not gone through anew with each write."""
    disk = disks.WatchedDisk(GATHERED_CHUNKS_MAX)
    chunks = [b"%d" % number for number in range(5_000)]
    backend = FileSystemBackend(tmp_path, disk=disk)
    assert backend.put_if_absent("a", chunks)
    assert backend.get("a") == b"".join(chunks)
    assert disk.chunks_given == len(chunks)


# ---- errors


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
@pytest.mark.parametrize("call", ["make_folder", "create", "write", "sync", "link"])
def test_failed_writes_leave_nothing(call: str, error: int, tmp_path: Path) -> None:
    """Disk full, quota used, a read-only disk: an OSError at once, no file, no leftover; the next try succeeds."""
    disk = disks.FailingDisk(call, error)
    backend = FileSystemBackend(tmp_path, disk=disk)
    with pytest.raises(OSError, match=r"\[Errno") as failed:
        backend.put_if_absent("a/b", [b"content"])
    assert failed.value.errno == error
    assert (backend.files(), backend.leftovers()) == ([], [])
    assert backend.put_if_absent("a/b", [b"content"])
    assert backend.get("a/b") == b"content"


def test_a_folder_that_cannot_be_synced_leaves_the_outcome_open(tmp_path: Path) -> None:
    """After the last sync failed the file may be there: an error, and looking again decides (PROTOCOL 7.6)."""
    failing = FileSystemBackend(tmp_path, disk=disks.LackingDisk({"sync_folder": errno.EIO}), deadline=0.5)
    with pytest.raises(OSError, match="Input/output"):
        failing.put_if_absent("b", [b"content"])
    backend = FileSystemBackend(tmp_path)
    assert not backend.put_if_absent("b", [b"aborted"])
    assert backend.get("b") == b"content"


def test_errors_name_store_call_and_file(tmp_path: Path) -> None:
    """The system's text alone may name neither: a full disk says "no space", not where."""
    backend = FileSystemBackend(tmp_path, disk=disks.FailingDisk("write", errno.ENOSPC))
    with pytest.raises(OSError, match=f"file://{tmp_path}: put a/b: No space left on device"):
        backend.put_if_absent("a/b", [b"content"])


def test_a_folder_in_place_of_a_file_is_an_error(tmp_path: Path) -> None:
    """Nobody can write the file, so no writer loses against another either."""
    (tmp_path / "a").mkdir()
    with pytest.raises(StoreRefused, match=f"file://{tmp_path}: put a: a folder has the name of the file"):
        FileSystemBackend(tmp_path).put_if_absent("a", [b"x"])


def test_a_link_whose_answer_was_lost_is_won(tmp_path: Path) -> None:
    """A network file system that repeats a link finds its own file there: that is a win, not a loss."""
    assert FileSystemBackend(tmp_path, disk=disks.LostAnswerDisk()).put_if_absent("b", [b"x"])


def test_a_run_that_was_removed_can_be_written_again(tmp_path: Path) -> None:
    """A folder that someone removed is made again, though this process has made it before."""
    backend = FileSystemBackend(tmp_path)
    backend.put_if_absent("r/a", [b"x"])
    (tmp_path / "r" / "a").unlink()
    (tmp_path / "r").rmdir()
    assert backend.put_if_absent("r/a", [b"y"])


# ---- time


def test_a_disk_that_hangs_is_given_up(tmp_path: Path, leak_check: LeakCheck) -> None:
    """A call that gets no answer is a TimeoutError that names it; hanging calls are bounded; a disk that comes
    back is used again, and nothing is left of the calls."""
    disk = disks.HangingDisk()
    backend = FileSystemBackend(tmp_path, disk=disk, deadline=0.05)
    assert FileSystemBackend(tmp_path).put_if_absent("a", [b"x"])  # a slow disk may need longer than the deadline
    for _ in range(ABANDONED_CALLS_MAX):
        with pytest.raises(TimeoutError, match=f"{tmp_path}: get a: no answer in 0.05 s"):
            backend.get("a")
    with pytest.raises(TimeoutError, match=f"not tried, {ABANDONED_CALLS_MAX} earlier calls"):
        backend.get("a")
    disk.released.set()
    leaks = leak_check.wait()
    assert leaks == []
    assert backend.get("a") == b"x"


def test_pickled_it_is_the_same_place(tmp_path: Path) -> None:
    """A worker's copy writes to the same place."""
    backend = FileSystemBackend(tmp_path, inlineBytesMax=5, deadline=7)
    copy = pickle.loads(pickle.dumps(backend))
    copy.put_if_absent("a/b", [b"x"])
    assert backend.get("a/b") == b"x"
    assert copy.inline_bytes_max == 5


# ---- kill -9

WRITER = """
import hashlib, itertools, sys
from cutline import FileSystemBackend
backend = FileSystemBackend(sys.argv[1])
for number in itertools.count():
    body = bytes([number % 256]) * 30_000_000
    backend.put_if_absent(f"f/{number}-{hashlib.sha256(body).hexdigest()}", [body[:100], body[100:]])
    print(number, flush=True)
"""


def test_killed_writers_leave_nothing_visible(tmp_path: Path) -> None:
    """SIGKILL in the middle of writing, several times: every visible file is whole, the rest are leftovers."""
    backend = FileSystemBackend(tmp_path)
    for lines in (1, 2, 3):
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
        assert writer.stdout is not None
        for _ in range(lines):
            assert writer.stdout.readline()
        # The moment at which a temporary file is seen is in the middle of a write.
        while not backend.leftovers() and writer.poll() is None:
            pass
        writer.send_signal(signal.SIGKILL)
        writer.communicate(timeout=30)
    for path in backend.files():
        assert hashlib.sha256(backend.get(path)).hexdigest() == path.rpartition("-")[2]
    assert backend.leftovers(), "no writer was killed in the middle of a write"
    for path in backend.leftovers():
        backend.delete(path)
    assert backend.leftovers() == []


# ---- a call that is tried again


class _SyncFailsOnce(Disk):
    """A real disk on which the first synchronisation of a folder fails, once `is_due`."""

    def __init__(self) -> None:
        self.is_due = False
        self.synced: list[str] = []

    def sync_folder(self, path: str) -> None:
        if self.is_due:
            self.is_due = False
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        super().sync_folder(path)
        self.synced.append(path)


def test_a_removal_that_is_tried_again_is_durable(tmp_path: Path) -> None:
    """The second try finds no file, and synchronises the folder all the same."""
    disk = _SyncFailsOnce()
    backend = FileSystemBackend(tmp_path, disk=disk)
    assert backend.put_if_absent("run/snapshots/7", [b"x"])
    disk.synced.clear()
    disk.is_due = True
    backend.delete("run/snapshots/7", "never/there")
    assert disk.synced == [str(tmp_path / "run/snapshots")]


def test_a_new_root_that_is_tried_again_is_durable(tmp_path: Path) -> None:
    """The second try finds the root, and synchronises its name all the same."""
    disk = _SyncFailsOnce()
    disk.is_due = True
    backend = FileSystemBackend(tmp_path / "above" / "root", disk=disk)
    assert backend.put_if_absent("claims/1", [b"x"])
    assert {str(tmp_path), str(tmp_path / "above"), str(tmp_path / "above" / "root")} <= set(disk.synced)
