"""File systems that lack one thing each: every such system either works, or `probe` refuses it by name."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from cutline import FileSystemBackend
from cutline.snapshot.stored.backend import StateBackend, StoreRefused, is_permanent
from cutline.snapshot.stored.layout import run_folder
from cutline.snapshot.stored.memory_files import MemoryFiles
from cutline.state_backends.base import CALL_SECONDS_MAX
from cutline.state_backends.disk import Disk
from cutline.state_backends.retries import PASSING_ERRORS
from tests.state_backends import disks
from tests.state_backends.conformance import FOR_ALL, FOR_SHARED

#: Every system call of the backend, as `Disk` lists the calls.
_CALLS = [name for name in vars(Disk) if not name.startswith("_")]

#: Errors by which file systems, quotas and rights refuse a call for good.
_ERRORS = [
    *(errno.EACCES, errno.EDQUOT, errno.EINVAL, errno.EIO, errno.EMLINK, errno.ENAMETOOLONG, errno.ENOSPC),
    *(errno.ENOSYS, errno.ENOTSUP, errno.EPERM, errno.EROFS, errno.ESTALE, errno.EXDEV),
]

#: Calls without which a store works: a hint, and a call that takes the place of another.
_NOT_NEEDED = ["begin_sync", "rename_new"]

#: Errors of ``link`` that mean "this file system has none". An exclusive rename takes its place.
_NO_LINKS = [errno.EINVAL, errno.EMLINK, errno.ENOSYS, errno.ENOTSUP, errno.EPERM]


def _deadline(error: int) -> float:
    """Return few seconds for an error after which the call is tried again until the deadline."""
    return 0.5 if error in PASSING_ERRORS else CALL_SECONDS_MAX


def _works(backend: StateBackend) -> None:
    backend.probe("run", "token")
    assert backend.put_if_absent("run/a", [b"one"])
    assert backend.files("run") == ["run/a"]
    assert backend.leftovers() == []
    assert backend.get("run/a") == b"one"
    backend.delete("run/a")
    assert backend.files() == []


@pytest.mark.parametrize("error", _ERRORS, ids=lambda error: errno.errorcode[error])
@pytest.mark.parametrize("call", _CALLS)
def test_each_missing_call_is_named_or_replaced(call: str, error: int, tmp_path: Path) -> None:
    """For each call and each error: the run is refused before it begins, with store and cause, or the store works."""
    backend = FileSystemBackend(tmp_path, disk=disks.LackingDisk({call: error}), deadline=_deadline(error))
    if call in _NOT_NEEDED:
        _works(backend)
    elif call == "link" and error in _NO_LINKS:
        _works(backend)
        assert not backend.put_if_absent("run/b", [b"one"]) or not backend.put_if_absent("run/b", [b"two"])
        assert backend.get("run/b") == b"one"
    else:
        with pytest.raises(OSError, match=str(tmp_path)) as refused:
            backend.probe("run", "token")
        assert os.strerror(error) in str(refused.value)
        assert not FileSystemBackend(tmp_path).files() or call == "remove"


@pytest.mark.parametrize("error", _ERRORS, ids=lambda error: errno.errorcode[error])
def test_neither_links_nor_exclusive_rename_is_refused(error: int, tmp_path: Path) -> None:
    """Such a file system lets two coordinators publish, so nothing is written there."""
    disk = disks.LackingDisk({"link": errno.EPERM, "rename_new": error})
    backend = FileSystemBackend(tmp_path, disk=disk, deadline=_deadline(error))
    with pytest.raises(OSError, match=str(tmp_path)) as refused:
        backend.probe("run", "token")
    assert ("no hard links and no exclusive rename" in str(refused.value)) == (error in _NO_LINKS)
    assert FileSystemBackend(tmp_path).files() == []


def test_only_a_folder_is_synchronised_as_one(tmp_path: Path) -> None:
    """A file in the place of a folder holds no names, so nothing was made durable."""
    (tmp_path / "file").write_bytes(b"x")
    Disk().sync_folder(str(tmp_path))
    with pytest.raises(NotADirectoryError):
        Disk().sync_folder(str(tmp_path / "file"))


def test_a_relative_path_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both names begin at the current folder, as those of each other call do."""
    monkeypatch.chdir(tmp_path)
    Path("one").write_bytes(b"x")
    Disk().rename_new("one", "other")
    assert os.listdir(tmp_path) == ["other"]


@pytest.mark.parametrize("disk", [disks.Overwriting, disks.OverwritingRename])
def test_a_disk_that_overwrites_is_refused(disk: Callable[[], Disk], tmp_path: Path) -> None:
    """A condition that is ignored is found before the first claim, not by a damaged run."""
    with pytest.raises(StoreRefused, match="a second writer of a file overwrites the first") as refused:
        FileSystemBackend(tmp_path, disk=disk()).probe("run", "token")
    assert refused.value.errno == errno.ENOTSUP


def test_a_store_in_which_the_probe_is_there_already_is_refused() -> None:
    """A store that refuses a new file cannot hold claims."""

    class Full(MemoryFiles):
        def _put_if_absent(self, path: str, chunks: Sequence[memoryview]) -> bool:
            return False

    with pytest.raises(StoreRefused, match="memory:: a file that nobody wrote is there already"):
        Full({}).probe("run", "token")


def test_a_disk_that_reads_other_bytes_is_refused(tmp_path: Path) -> None:
    """A claim that is read otherwise than it was written has no holder."""
    with pytest.raises(StoreRefused, match="a file is read with other bytes than were written"):
        FileSystemBackend(tmp_path, disk=disks.Stale()).probe("run", "token")


@pytest.mark.parametrize("disk", [disks.SharedCreate, disks.NewInodes])
def test_what_is_not_needed_may_lack(disk: Callable[[], Disk], tmp_path: Path) -> None:
    """An exclusive create and stable inodes are a convenience: names of temporary files are never used twice."""
    _works(FileSystemBackend(tmp_path, disk=disk()))


def test_a_disk_that_cuts_names_is_refused(tmp_path: Path) -> None:
    """Files of one prefix would be one file. The probe's name is as long as the longest name of a run."""
    with pytest.raises(StoreRefused, match="a written file is not listed, or under another name"):
        FileSystemBackend(tmp_path, disk=disks.Truncating()).probe("run", "token")


def test_names_that_differ_in_case_only_are_refused_where_they_are_one() -> None:
    """Two runs would share their claims. Any other name, and the same name again, is fine."""
    backend = FileSystemBackend("/data", disk=disks.CaseInsensitive(), deadline=10)
    backend.probe(run_folder("Orders"), "token")
    backend.put_if_absent("Orders/claims/00000001", [b"x"])
    backend.probe(run_folder("Orders"), "token")
    backend.probe(run_folder("Payments"), "token")
    with pytest.raises(StoreRefused, match="differs from orders in upper and lower case"):
        backend.probe(run_folder("orders"), "token")
    long = "x" * 300
    backend.probe(run_folder(long + "A"), "token")
    with pytest.raises(StoreRefused, match="upper and lower case"):
        backend.probe(run_folder(long + "a"), "token")


def test_names_that_differ_in_case_only_are_two_elsewhere(tmp_path: Path) -> None:
    """A file system that keeps names apart keeps runs apart."""
    backend = FileSystemBackend(tmp_path)
    backend.probe("Orders", "token")
    backend.probe("orders", "token")


@pytest.mark.parametrize("check", FOR_ALL + FOR_SHARED)
def test_the_rename_keeps_the_contract(check: Callable[[StateBackend], None], tmp_path: Path) -> None:
    """Without hard links, of threads and of processes that race, one wins."""
    check(FileSystemBackend(tmp_path / "not" / "there", disk=disks.LackingDisk({"link": errno.EPERM})))


def test_links_and_renames_race(tmp_path: Path) -> None:
    """A writer that links and a writer that renames exclude each other."""
    links = FileSystemBackend(tmp_path)
    renames = FileSystemBackend(tmp_path, disk=disks.LackingDisk({"link": errno.EPERM}))
    assert (links.put_if_absent("a", [b"1"]), renames.put_if_absent("a", [b"2"])) == (True, False)
    assert (renames.put_if_absent("b", [b"2"]), links.put_if_absent("b", [b"1"])) == (True, False)
    assert (links.get("a"), links.get("b")) == (b"1", b"2")


def test_a_rename_whose_answer_was_lost_is_won(tmp_path: Path) -> None:
    """The second try finds the name taken and the own file gone: both by the first try."""

    class Lost(disks.LackingDisk):
        def rename_new(self, source: str, target: str) -> None:
            super().rename_new(source, target)
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))

    assert FileSystemBackend(tmp_path, disk=Lost({"link": errno.EPERM})).put_if_absent("b", [b"x"])


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.ESTALE, errno.ETIMEDOUT])
def test_what_may_pass_is_tried_again(error: int) -> None:
    """A full disk is emptied, and a server comes back: these errors are not final."""
    assert not is_permanent(OSError(error, "x"))


@pytest.mark.parametrize("error", [errno.EACCES, errno.EPERM, errno.EROFS, errno.ENAMETOOLONG, errno.ENOTSUP])
def test_what_stays_is_not_tried_again(error: int) -> None:
    """Missing rights and missing calls stay until somebody mends them."""
    assert is_permanent(OSError(error, "x"))
