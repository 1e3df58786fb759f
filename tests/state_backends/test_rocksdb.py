"""The database of a subtask: rows of bytes, in bounded memory, in a folder that goes with the process."""

from __future__ import annotations

import multiprocessing
import os
import random
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import TypeVar

import pytest

import cutline.state_backends.rocksdb as rocksdb
from cutline.snapshot.errors import StateError
from cutline.snapshot.keyed.row_store import StoredRow
from cutline.state_backends.rocksdb import Database, RocksDBMemory

pytest.importorskip("rocksdict")

_Result = TypeVar("_Result")

_MEMORY_BYTES = 8 * 1024 * 1024
#: seconds after which a child counts as hanging
_CHILD_SECONDS = 60


def _in_child(function: Callable[..., _Result], *args: object) -> _Result:
    """Run a function in a spawned process, because this process must never open a database before it forks."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *args).result(_CHILD_SECONDS)


def _write(database: Database, rows: Iterable[StoredRow]) -> None:
    """Add rows. The last of equal ones counts."""
    pending = iter(sorted(dict(rows).items()))
    for _ in database.ingest(iter(lambda: list(islice(pending, 250)), [])):
        pass


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """An empty database."""
    opened = Database(RocksDBMemory(_MEMORY_BYTES), tmp_path, "1-node-0")
    yield opened
    opened.close()


def test_the_use_of_memory_is_in_bytes(database: Database) -> None:
    """Write buffers are there from the beginning."""
    used = database.memory_use()
    assert all(isinstance(size, int) for size in used.values())
    assert used["cur-size-all-mem-tables"] > 0


def test_rows_are_read_as_they_were_written(database: Database) -> None:
    """Single reads, reads of many and scans agree with a dict after random writes and removals."""
    chance, model = random.Random(1), {}
    for _ in range(20):
        rows = {
            b"%d" % chance.randrange(3_000): chance.choice([None, b"", b"%d" % chance.random()]) for _ in range(900)
        }
        _write(database, rows.items())
        model.update(rows)
    held = {row: value for row, value in model.items() if value is not None}
    names = [b"%d" % n for n in range(3_000)]
    assert {row: database.get(row) for row in names} == {row: held.get(row) for row in names}
    assert database.get_many(names) == [held.get(row) for row in names]
    assert list(database.scan(b"", b"\xff")) == sorted(held.items())
    assert list(database.scan(b"12", b"13")) == sorted((r, v) for r, v in held.items() if b"12" <= r < b"13")


def test_a_scan_does_not_see_later_writes(database: Database) -> None:
    """An iterator reads the rows as they were when it was opened, while another thread may write."""
    _write(database, ((b"%04d" % n, b"old") for n in range(1_000)))
    rows = database.scan(b"", b"\xff")
    first = next(rows)
    _write(database, ((b"%04d" % n, b"new" if n % 2 else None) for n in range(1_000)))
    assert {value for _, value in [first, *rows]} == {b"old"}


def test_the_end_of_a_scan_stays(database: Database) -> None:
    """A scan ends where it must, also when the memory of the end has other contents meanwhile."""
    _write(database, ((b"%06d" % n, b"x") for n in range(200)))
    for first in range(190):
        rows = database.scan(b"%06d" % first, b"%06d" % (first + 10))
        others = [b"%06d" % n for n in range(1_000)]
        assert [row for row, _ in rows] == [b"%06d" % n for n in range(first, first + 10)], len(others)


def test_files_replace_what_is_there(database: Database) -> None:
    """Ingested rows count over applied and over earlier ingested ones, and removals remove."""
    _write(database, [(b"a", b"1"), (b"b", b"1"), (b"c", b"1")])
    _write(database, [(b"a", b"2"), (b"b", None), (b"d", b"2")])
    _write(database, [])
    assert list(database.scan(b"", b"\xff")) == [(b"a", b"2"), (b"c", b"1"), (b"d", b"2")]
    _write(database, [(b"a", None), (b"d", b"3")])
    assert list(database.scan(b"", b"\xff")) == [(b"c", b"1"), (b"d", b"3")]


def test_an_ingestion_is_seen_as_a_whole(database: Database) -> None:
    """Until its last step reads and scans return the older rows, and from then on the newer ones."""
    names = [b"%04d" % n for n in range(1_000)]
    _write(database, ((name, b"old") for name in names))
    steps = database.ingest([[(name, b"new")] for name in names])
    for _ in steps:
        assert set(database.get_many(names[::100])) == {b"old"}
    before = database.scan(b"", b"\xff")
    assert {value for _, value in before} == set(database.get_many(names)) == {b"new"}


def test_removals_and_ingestions_count_in_their_sequence(database: Database) -> None:
    """A removal is in a write buffer, and an ingestion is not, but the later one counts."""
    _write(database, [(b"a", b"1"), (b"b", b"1")])
    assert database.remove([b"a", b"b"])
    _write(database, [(b"a", b"2")])
    assert database.get_many([b"a", b"b"]) == [b"2", None]
    assert database.remove([b"a"])
    assert database.get_many([b"a", b"b"]) == [None, None]


def test_a_reader_beside_the_writer_never_sees_an_older_row(database: Database) -> None:
    """Rows of one file are replaced together, also where the write buffer is flushed because it has their keys."""
    names = [b"%04d" % n for n in range(500)]

    def write() -> None:
        for version in range(40):
            _write(database, ((name, b"%04d" % version) for name in names))
            database.remove([b"0000-"])

    _write(database, ((name, b"") for name in names))
    with ThreadPoolExecutor(1) as pool:
        writing, seen = pool.submit(write), b""
        while not writing.done():
            row = database.get(names[0])
            assert row is not None and row >= seen
            values = {value for _, value in database.scan(b"", b"\xff")}
            assert len(values) == 1 and min(values) >= row
            seen = min(values)
        writing.result()
    assert set(database.get_many(names)) == {b"0039"}


def test_unsorted_files_are_refused(database: Database) -> None:
    """Rows that are not sorted are an error that names the database."""
    with pytest.raises(StateError, match="1-node-0: cannot ingest"):
        list(database.ingest([[(b"b", b"1"), (b"a", b"1")]]))


def test_nothing_is_left(tmp_path: Path) -> None:
    """A closed database leaves no folder, and one of the same name begins empty."""
    memory = RocksDBMemory(_MEMORY_BYTES)
    one = Database(memory, tmp_path, "1-node-0")
    _write(one, [(b"a", b"1")])
    one.close()
    one.close()
    assert [path.name for path in tmp_path.iterdir()] == ["owners"]
    other = Database(memory, tmp_path, "1-node-0")
    assert other.get(b"a") is None
    other.close()


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    """A parent that is no folder is a StateError that names the subtask."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StateError, match="1-node-0: cannot open"):
        Database(RocksDBMemory(_MEMORY_BYTES), tmp_path / "file", "1-node-0")


def test_without_rocksdict_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A worker without the library says so, and what to do."""
    monkeypatch.setattr(rocksdb, "is_installed", lambda: False)
    with pytest.raises(StateError, match=r"pip install 'cutline\[rocksdb\]'"):
        Database(RocksDBMemory(_MEMORY_BYTES), tmp_path, "1-node-0")


def test_databases_share_their_memory() -> None:
    """Three databases, filled with six times their memory, stay within the memory and a fourth of it."""
    before, after = _in_child(_fill_three)
    assert after - before < 1.25 * _SHARED_BYTES + _ALLOCATOR_BYTES


_SHARED_BYTES = 32 * 1024 * 1024
#: what the allocator keeps beside, however small the memory is
_ALLOCATOR_BYTES = 24 * 1024 * 1024


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _fill_three() -> tuple[int, int]:
    import tempfile

    chance, memory = random.Random(1), RocksDBMemory(_SHARED_BYTES)
    memory.options()
    before = _resident_bytes()
    with tempfile.TemporaryDirectory() as folder:
        databases = [Database(memory, Path(folder), f"1-node-{n}") for n in range(3)]
        for database in databases:
            for _ in range(16):
                _write(database, ((b"%d" % chance.randrange(10**9), chance.randbytes(1_000)) for _ in range(4_000)))
        for database in databases:
            assert sum(1 for _ in database.scan(b"", b"\xff")) > 63_000
        after = _resident_bytes()
        for database in databases:
            database.close()
    return before, after


def _use(folder: str) -> int:
    database = Database(RocksDBMemory(_MEMORY_BYTES), Path(folder), "1-node-0")
    _write(database, ((b"%d" % n, bytes(1_000)) for n in range(20_000)))
    count = sum(1 for _ in database.scan(b"", b"\xff"))
    database.close()
    return count


def _fork_users(folder: str, *, opens_before: bool) -> list[int | str]:
    """Use a database in two children at once, made by real forks of a process that has imported everything."""
    import rocksdict  # noqa: F401  # importing is allowed anywhere

    memory = RocksDBMemory(_MEMORY_BYTES)
    if opens_before:
        Database(memory, Path(folder), "parent").close()
    forks = multiprocessing.get_context("fork")
    queue = forks.SimpleQueue()

    def child() -> None:
        try:
            queue.put(_use(folder))
        except StateError as error:
            queue.put(str(error))

    children = [forks.Process(target=child) for _ in range(2)]
    for each in children:
        each.start()
    for each in children:
        each.join(_CHILD_SECONDS / 2)
        if each.exitcode is None:
            each.kill()
    return [queue.get() for each in children if each.exitcode == 0]


def _fork_users_of_clean(folder: str) -> list[int | str]:
    return _fork_users(folder, opens_before=False)


def _fork_users_of_opened(folder: str) -> list[int | str]:
    return _fork_users(folder, opens_before=True)


def test_forked_workers_open_their_own(tmp_path: Path) -> None:
    """Children of a process that imported all and opened nothing use databases, as Spark's workers do."""
    assert _in_child(_fork_users_of_clean, str(tmp_path)) == [20_000, 20_000]


def test_a_child_of_a_user_is_refused(tmp_path: Path) -> None:
    """A child of a process that has opened a database would hang, so it gets an error that says what to do."""
    results = _in_child(_fork_users_of_opened, str(tmp_path))
    assert [str(each).endswith("start processes by spawn instead of fork") for each in results] == [True, True]
