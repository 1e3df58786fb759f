"""File systems that fail for a moment: the call is repeated, once decided, and ends with the store's own error."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cutline import FileSystemBackend
from cutline.snapshot.stored.backend import StateBackend, is_permanent
from cutline.state_backends.base import DeadlineBackend
from cutline.state_backends.disk import Disk
from cutline.state_backends.memory import MemoryBackend
from cutline.state_backends.retries import PASSING_ERRORS, status_may_pass
from tests.state_backends import disks

#: Every system call without which a write, a read, a list or a removal fails.
_CALLS = [
    *("create", "write", "sync", "close", "link", "remove", "make_folder", "sync_folder"),
    *("read", "exists", "entries"),
]

#: Errors of network file systems and of file systems of user space that pass by themselves.
_MOMENTARY = [
    *(errno.EAGAIN, errno.EBUSY, errno.EINTR, errno.EIO, errno.ENOTCONN, errno.EREMOTEIO),
    *(errno.ECONNRESET, errno.EHOSTUNREACH, errno.ESTALE, errno.ETIMEDOUT),
]

#: Errors that stay until somebody mends their cause.
_LASTING = [
    *(errno.EACCES, errno.EDQUOT, errno.EFBIG, errno.ENAMETOOLONG, errno.ENOENT, errno.ENOSPC, errno.EPERM, errno.EROFS)
]


class Unsteady(Disk):
    """A real disk of which one call fails some times, and then works. `tried` counts the calls."""

    def __init__(self, call: str, error: int, failures: float) -> None:
        self.tried = 0
        self._call = call
        self._error = error
        self._failures = failures

    def __getattribute__(self, name: str) -> Any:
        found = object.__getattribute__(self, name)
        return self._unsteady(found) if name == object.__getattribute__(self, "__dict__").get("_call") else found

    def _unsteady(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def fail(*arguments: Any) -> Any:
            self.tried += 1
            if self.tried <= self._failures:
                raise OSError(self._error, os.strerror(self._error))
            return call(*arguments)

        return fail


def use(backend: StateBackend) -> None:
    """Write, lose, read, list and remove."""
    assert backend.put_if_absent("a/b", [b"content"])
    assert not backend.put_if_absent("a/b", [b"other"])
    assert backend.get("a/b") == b"content"
    assert backend.exists("a/b")
    assert backend.files() == ["a/b"]
    backend.delete("a/b")
    assert backend.files() == []


@pytest.mark.parametrize("error", _MOMENTARY, ids=lambda error: errno.errorcode[error])
@pytest.mark.parametrize("call", _CALLS)
def test_what_fails_for_a_moment_is_not_noticed(call: str, error: int, tmp_path: Path) -> None:
    """Each call fails with each error that passes, twice: the backend keeps its contract, and counts its own write."""
    disk = Unsteady(call, error, failures=2)
    use(FileSystemBackend(tmp_path / "root", disk=disk))
    assert disk.tried > 2


@pytest.mark.parametrize("error", _LASTING, ids=lambda error: errno.errorcode[error])
def test_what_cannot_succeed_is_tried_once(error: int, tmp_path: Path) -> None:
    """No space, no right, no name, no folder: the error comes at once, with the file system's own words."""
    disk = Unsteady("write", error, failures=1)
    with pytest.raises(OSError, match=f"{tmp_path}: put a/b: {os.strerror(error)}") as failed:
        FileSystemBackend(tmp_path, disk=disk).put_if_absent("a/b", [b"content"])
    assert (failed.value.errno, disk.tried) == (error, 1)


def test_no_error_is_both_passing_and_permanent() -> None:
    """The rule of a call and the rule of the coordinator, which waits longer, do not contradict each other."""
    assert not any(is_permanent(OSError(error, "x")) for error in PASSING_ERRORS)


def test_statuses_that_may_pass() -> None:
    """A wrong request stays wrong, but for four statuses. A server's fault may pass, but what it cannot do stays."""
    assert [status for status in range(400, 500) if status_may_pass(status)] == [408, 409, 425, 429]
    assert [status for status in range(500, 600) if not status_may_pass(status)] == [501, 505]


@pytest.mark.parametrize("call", ["read", "link"])
def test_the_last_error_is_the_file_systems_own(call: str, tmp_path: Path) -> None:
    """A server that stays away: not a timeout, which says nothing, but what the last try said, with store and file."""
    assert FileSystemBackend(tmp_path).put_if_absent("a", [b"x"])
    backend = FileSystemBackend(tmp_path, disk=Unsteady(call, errno.ESTALE, failures=float("inf")), deadline=1)
    with pytest.raises(OSError, match=rf"{tmp_path}: (get a|put b): {os.strerror(errno.ESTALE)}") as failed:
        _ = backend.get("a") if call == "read" else backend.put_if_absent("b", [b"x"])
    assert failed.value.errno == errno.ESTALE


def test_each_outage_is_logged_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """However many tries fail, an outage is one line, which comes with the first failure."""
    disk = Unsteady("read", errno.EIO, failures=3)
    backend = FileSystemBackend(tmp_path, disk=disk)
    backend.put_if_absent("a", [b"x"])
    for _ in range(2):
        disk.tried = 0
        backend.get("a")
    assert ["get a: Input/output error; tried again" in record.message for record in caplog.records] == [True, True]


class LostAnswer(disks.LackingDisk):
    """A real disk that links, and then reports an error, once. Another writer's file may come before the next try."""

    def __init__(self, root: Path, *, other: bytes | None) -> None:
        super().__init__({})
        self.is_armed = True
        self._root = root
        self._other = other

    def link(self, source: str, target: str) -> None:
        if not self.is_armed:
            return super().link(source, target)
        self.is_armed = False
        if self._other is None:
            super().link(source, target)
        else:
            FileSystemBackend(self._root).put_if_absent(os.path.relpath(target, self._root), [self._other])
        raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_write_whose_answer_was_lost_is_won(tmp_path: Path) -> None:
    """The second try finds the very same bytes, so the write was ours. Later equal bytes are another writer's."""
    backend = FileSystemBackend(tmp_path, disk=LostAnswer(tmp_path, other=None))
    assert backend.put_if_absent("a", [b"mi", b"ne"])
    assert not backend.put_if_absent("a", [b"mine"])


def test_another_winner_is_seen_behind_a_lost_answer(tmp_path: Path) -> None:
    """Between the failed try and the next one another writer wins: that is a loss."""
    backend = FileSystemBackend(tmp_path, disk=LostAnswer(tmp_path, other=b"other"))
    assert not backend.put_if_absent("a", [b"mine"])
    assert backend.get("a") == b"other"


def test_one_policy_for_all_backends() -> None:
    """Each backend that may fail has its calls repeated by the base, and by nothing else."""
    bounded = [each for each in _descendants(StateBackend) if each.__module__.startswith("cutline.state_backends.")]
    assert {each.__name__ for each in bounded} >= {"FileSystemBackend", "ObjectStoreBackend"}
    for each in bounded:
        assert issubclass(each, DeadlineBackend | MemoryBackend)
        assert "_call" not in vars(each) or each is DeadlineBackend


def _descendants(kind: type) -> list[type]:
    children: list[type] = kind.__subclasses__()
    return children + [each for child in children for each in _descendants(child)]
