"""The thread of a store's writer: jobs in their sequence, errors by name, and an end that waits for nobody."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import pytest

from cutline.snapshot.errors import StateError
from cutline.snapshot.keyed.cold_tier import ColdLimits, ColdTier
from cutline.snapshot.keyed.row_store import Job, RowStore, StoredRow, Writer
from cutline.state_backends.rocksdb import Database, RocksDBMemory
from cutline.state_backends.writer_thread import WriterThread
from tests.snapshot.keyed.keyed_subtask import KeyedSubtask


def _noting(found: list[int], number: int) -> Job:
    yield None
    found.append(number)


def test_jobs_are_done_in_their_sequence() -> None:
    """A job begins after all earlier jobs have ended, and each end wakes the subtask."""
    done, found = threading.Semaphore(0), list[int]()
    writer = WriterThread("1-node-0", done.release)
    for number in range(10):
        writer.submit(_noting(found, number))
    for _ in range(10):
        assert done.acquire(timeout=10)
    writer.close()
    assert found == list(range(10))


def test_the_thread_ends_with_its_process() -> None:
    """A subtask that ends without closing its writer does not keep the process. The thread has the writer's name."""
    done, found = threading.Event(), list[threading.Thread]()

    def noting() -> Iterator[None]:
        yield
        found.append(threading.current_thread())

    writer = WriterThread("1-node-0", done.set)
    writer.submit(noting())
    assert done.wait(10)
    writer.close()
    [thread] = found
    assert (thread.name, thread.daemon) == ("1-node-0", True)


def test_close_does_not_wait_for_a_stalled_write() -> None:
    """A job whose store never takes its rows is given up at its next step."""
    stalled = threading.Event()

    def stalling() -> Iterator[None]:
        while True:
            stalled.set()
            yield

    writer = WriterThread("1-node-0", lambda: None)
    writer.submit(stalling())
    assert stalled.wait(10)
    writer.close()
    writer.close()


class _FullDisk(Database):
    """A database whose disk is full."""

    def ingest(self, parts: Iterable[Sequence[StoredRow]]) -> Job:
        raise self._failed("ingest rows into", OSError(28, "No space left on device"))


def test_a_full_disk_is_an_error_of_the_next_turn(tmp_path: Path) -> None:
    """A failed write is due at once, also if nothing more is written. The error names the node."""
    pytest.importorskip("rocksdict")
    failed = threading.Event()

    def open_store(_: object) -> tuple[RowStore, Writer]:
        database = _FullDisk(RocksDBMemory(8 * 1024 * 1024), tmp_path, "1-node-0")
        return database, WriterThread("1-node-0", failed.set)

    tier = ColdTier(open_store, ColdLimits(memtable_rows=1))
    subtask = KeyedSubtask(lambda: tier)
    state = subtask.value()
    subtask.states.opened()
    state.updateAll(["a"], ["b"])
    tier.seal()
    assert failed.wait(10)
    assert subtask.states.is_due
    with pytest.raises(StateError, match=r"1-node-0: cannot ingest .* No space left on device"):
        subtask.states.sweep()
    tier.close()
    assert [path.name for path in tmp_path.iterdir()] == ["owners"]
