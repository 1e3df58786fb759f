"""Stores of aggregates whose server or process is killed, paused or locked: errors, then work, and whole writes."""

from __future__ import annotations

import random
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from redis import Redis
from redis.exceptions import ResponseError

from benchmarks.servers import PostgreSQLServer, RedisServer, Server
from cutline import PostgreSQLStore, RedisStore, RocksDBStore, SQLiteStore
from cutline.snapshot.errors import Fenced
from cutline.snapshot.operators.aggregate_store import AggregateStore, StoreClaim
from cutline.snapshot.stored.backend import StoreRefused
from cutline.state_backends.aggregate_stores import postgresql, redis, sqlite
from cutline.state_backends.aggregate_stores.cell_store import CellStore
from tests.run_size import scaled

_CLAIM = StoreClaim("r", 1)
_KEYS = [f"key {number}" for number in range(3_000)]
_SECONDS_MAX = 60

#: a process that writes until it is killed; a line says what it has written
_WRITER = """
import sys
from cutline.snapshot.operators.aggregate_store import StoreClaim
from cutline import RocksDBStore, SQLiteStore
store = globals()[sys.argv[1]](sys.argv[2])
claim = StoreClaim("r", 1)
store.take(claim)
for value in range(1, 1_000_000):
    store.write(claim, 1, [(f"key {number}", value) for number in range(int(sys.argv[3]))])
    print(value, flush=True)
"""


class Served(NamedTuple):
    """A server, and what makes connections to an empty store on it."""

    server: Server
    maker: Callable[[], AggregateStore]


@pytest.fixture(params=["postgresql", "redis"])
def served(
    request: pytest.FixtureRequest, postgresql: PostgreSQLServer, redis_server: RedisServer, tmp_path: Path
) -> Served:
    """A store of each kind that has a server."""
    name = f"{request.param}_{tmp_path.name}"[-30:].lower()
    if request.param == "postgresql":
        return Served(postgresql, lambda: PostgreSQLStore(postgresql.url, table=name))
    return Served(redis_server, lambda: RedisStore(redis_server.url, prefix=name))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores wait for a second, or for the shortest time that their client knows."""
    for module in (postgresql, redis, sqlite):
        monkeypatch.setattr(module, "CALL_SECONDS_MAX", 1.0)
    monkeypatch.setattr(postgresql, "_STATEMENT_SECONDS_MAX", 0.5)
    monkeypatch.setattr(postgresql, "_CONNECT_SECONDS_MAX", 2)
    monkeypatch.setattr(redis, "_CONNECT_SECONDS_MAX", 1.0)


def _fails(store: AggregateStore, call: Callable[[], object]) -> None:
    """A call raises an error that may pass, and which names the store."""
    with pytest.raises(OSError, match=r"see whether") as found:
        call()
    assert not isinstance(found.value, StoreRefused)
    assert str(store) in str(found.value)


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_server_that_comes_back(served: Served, end: str) -> None:
    """While it is away each call fails; then the same instance goes on, with all that was written."""
    store = served.maker()
    store.take(_CLAIM)
    store.write(_CLAIM, 1, [("a", 1)])
    store.commit(_CLAIM, 1)
    store.write(_CLAIM, 2, [("a", 2)])
    getattr(served.server, end)()
    try:
        _fails(store, lambda: store.get("a"))
        _fails(store, lambda: store.write(_CLAIM, 2, [("a", 3)]))
        _fails(store, lambda: store.commit(_CLAIM, 2))
        _fails(store, lambda: store.rollBack(_CLAIM, 1))
        _fails(store, lambda: store.take(_CLAIM))
    finally:
        served.server.start()
    assert store.get("a") == 1
    assert store.take(_CLAIM) == 1
    store.commit(_CLAIM, 2)
    assert store.get("a") == 2
    store.close()


def test_a_connection_that_was_lost(served: Served) -> None:
    """A server that was started again between two calls costs one error at most."""
    store = served.maker()
    store.take(_CLAIM)
    served.server.kill()
    served.server.start()
    with suppress(OSError):  # Redis's client sees that its connection has ended, and connects again
        store.write(_CLAIM, 1, [("a", 1)])
    store.write(_CLAIM, 1, [("a", 1)])
    store.commit(_CLAIM, 1)
    assert store.get("a") == 1
    store.close()


@pytest.mark.usefixtures("impatient")
def test_a_server_that_hangs(served: Served) -> None:
    """Calls end with an error while the server is paused, also those that connect. Repeated calls have one effect."""
    store = served.maker()
    store.take(_CLAIM)
    store.write(_CLAIM, 1, [("a", 1)])
    store.commit(_CLAIM, 1)
    served.server.pause()
    try:
        for _ in range(2):  # the second one connects first
            _fails(store, lambda: store.write(_CLAIM, 2, [("a", 2), ("b", 2)]))
    finally:
        served.server.resume()
    store.write(_CLAIM, 2, [("a", 2), ("b", 2)])
    assert store.current(["a", "b"]) == [1, None]
    store.commit(_CLAIM, 2)
    assert store.current(["a", "b"]) == [2, 2]
    store.close()


def test_a_redis_that_does_not_let_connect(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is away: one try of five seconds, then an error that may pass. Callers know when to try again."""
    seconds = []

    def connect(self: socket.socket, address: object) -> None:
        seconds.append(self.gettimeout())
        raise TimeoutError("timed out")

    monkeypatch.setattr(socket.socket, "connect", connect)
    store = RedisStore("redis://127.0.0.1/0")
    _fails(store, lambda: store.get("a"))
    assert seconds == [5.0]


@pytest.mark.parametrize("answer", ["OOM", "BUSY", "MISCONF", "NOREPLICAS"])
def test_a_redis_that_cannot_serve_now(answer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No memory, a script that runs long, a disk that fails, lost replicas: another try may succeed."""

    def get(*_: object) -> bytes:
        raise ResponseError(f"{answer} the server cannot do this now")

    monkeypatch.setattr(Redis, "get", get)
    store = RedisStore("redis://127.0.0.1/0")
    _fails(store, lambda: store.take(_CLAIM))


def test_a_redis_whose_holder_always_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deed is tried a hundred times, and then an error that may pass says how often."""
    scripts: list[object] = []

    def evaluate(_: object, script: object, *arguments: object) -> int:
        scripts.append(script)
        return 0

    monkeypatch.setattr(Redis, "get", lambda *_: None)
    monkeypatch.setattr(Redis, "evalsha", evaluate)
    store = RedisStore("redis://127.0.0.1/0")
    with pytest.raises(OSError, match="other claims and commits came between in all of 100 tries") as found:
        store.take(_CLAIM)
    assert not isinstance(found.value, StoreRefused)
    assert str(store) in str(found.value)
    assert len(scripts) == 100


def test_a_write_is_cut_off(served: Served) -> None:
    """A server is killed in the middle of large writes: each write is there in whole or not, and what returned is."""
    store, chance, newest = served.maker(), random.Random(1), 0
    for number in range(1, scaled(5) + 1):
        claim, begun, ended = StoreClaim("r", number), threading.Semaphore(0), threading.Event()
        done = [newest]
        store.take(claim)

        def write(claim: StoreClaim = claim, begun: Any = begun, ended: Any = ended, done: list[int] = done) -> None:
            with suppress(OSError):
                while not ended.is_set():
                    begun.release()
                    store.write(claim, claim.number, [(key, done[-1] + 1) for key in _KEYS])
                    done.append(done[-1] + 1)

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            for _ in range(chance.randint(1, 5)):
                assert begun.acquire(timeout=_SECONDS_MAX)
            served.server.kill()
            ended.set()
            served.server.start()
            writing.result(_SECONDS_MAX)
        assert store.take(claim) == (number - 1 or -1)
        store.commit(claim, number)
        [found] = {value or 0 for value in store.current(_KEYS)}
        assert found in (done[-1], done[-1] + 1)
        newest = found
    store.close()


@pytest.mark.usefixtures("impatient")
def test_a_frozen_writer_does_not_keep_the_store(postgresql: PostgreSQLServer) -> None:
    """A writer that stops within its transaction loses its locks by a time-out, and its claim to the next one."""
    frozen, store = (PostgreSQLStore(postgresql.url, table="frozen") for _ in range(2))
    frozen.take(_CLAIM)
    table: Any = frozen._table
    table._execute("BEGIN")
    table.holder()
    for _ in range(_SECONDS_MAX):
        with suppress(OSError):  # the statement that waits has a time-out too
            store.take(StoreClaim("r", 2))
            break
    _fails(frozen, lambda: frozen.write(_CLAIM, 1, [("a", 1)]))
    with pytest.raises(Fenced, match="claim 2"):
        frozen.write(_CLAIM, 1, [("a", 1)])
    for each in (store, frozen):
        each.close()


@pytest.mark.usefixtures("impatient")
def test_a_locked_file(tmp_path: Path) -> None:
    """While another process has locked an SQLite file, writes fail, and readers read."""
    store = SQLiteStore(tmp_path / "totals.db")
    store.take(_CLAIM)
    other = sqlite3.connect(tmp_path / "totals.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    _fails(store, lambda: store.write(_CLAIM, 1, [("a", 1)]))
    assert store.get("a") is None
    other.close()
    store.write(_CLAIM, 1, [("a", 1)])
    store.close()


@pytest.mark.parametrize("store_class", [SQLiteStore, RocksDBStore])
def test_a_writing_process_is_killed(store_class: type[SQLiteStore | RocksDBStore], tmp_path: Path) -> None:
    """What it has written is there, and the write that was cut off is there in whole or not at all."""
    command = [sys.executable, "-c", _WRITER, store_class.__name__, str(tmp_path / "totals"), str(len(_KEYS))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        done = [int(process.stdout.readline()) for _ in range(3)]
        process.kill()
        done += map(int, process.stdout.read().split())
    store = store_class(tmp_path / "totals")
    store.take(StoreClaim("r", 2))
    store.commit(StoreClaim("r", 2), 1)
    [found] = set(store.current(_KEYS))
    assert found in (done[-1], done[-1] + 1)
    store.close()


def test_a_large_rollback_goes_on_where_it_was_cut_off(shared_maker: Callable[[], AggregateStore]) -> None:
    """Else a rollback that takes longer than a call may would begin afresh at each restore, for ever."""
    store, parts = shared_maker(), [range(first, first + 9_000) for first in range(0, 45_000, 9_000)]
    store.take(_CLAIM)
    store.write(_CLAIM, 1, [(key, 1) for key in parts[0]])
    store.commit(_CLAIM, 1)
    for part in parts:
        store.write(_CLAIM, 2, [(key, 2) for key in part])
    [done] = _roll_back(store, _CLAIM, calls_max=1)
    assert done, "the first part was rolled back"
    assert store.current([0, 44_999]) == [1, None]
    store.take(StoreClaim("r", 2))
    assert _roll_back(store, StoreClaim("r", 2), calls_max=10) == [True, False], "the second part was left"
    store.commit(StoreClaim("r", 2), 3)
    assert store.current(range(45_000)) == [1] * 9_000 + [None] * 36_000
    store.close()


def _roll_back(store: AggregateStore, claim: StoreClaim, calls_max: int) -> list[bool]:
    """Roll back to snapshot 1, with an error after so many parts. Return what the parts returned."""
    assert isinstance(store, CellStore) and store._table is not None
    part = store._table.roll_back
    answers: list[bool] = []

    def answer(snapshot_id: int, committed: int) -> bool:
        if len(answers) == calls_max:
            raise OSError("cut off")
        answers.append(part(snapshot_id, committed))
        return bool(answers[-1])

    store._table.roll_back = answer  # type: ignore[method-assign]
    with suppress(OSError):
        store.rollBack(claim, 1)
    return answers


#: two subtasks of one aggregate, whose disk is full while the first of them writes
_FULL = """
import resource
import signal
import sys

from cutline.snapshot.operators.aggregate_store import StoreClaim
from cutline import RocksDBStore

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
claim = StoreClaim("r", 1)
stores = [RocksDBStore(sys.argv[1]) for _ in range(int(sys.argv[2]))]
for store in stores:
    store.take(claim)
    store.commit(claim, 0)
for store in stores[1:]:
    store.write(claim, 1, [("other", 1)])
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
try:
    stores[0].write(claim, 1, [(number, "x" * 1000) for number in range(1000)])
except OSError as error:
    print("must have room" in str(error))
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
stores[0].write(claim, 1, [("key", 1)])
for store in stores:
    store.commit(claim, 1)
print(stores[-1].current(["key", 7] + ["other"] * (len(stores) - 1)))
for store in stores:
    store.close()
"""


@pytest.mark.parametrize("subtasks", [1, 2])
def test_a_disk_that_was_full_is_written_again(tmp_path: Path, subtasks: int) -> None:
    """RocksDB refuses all writes after one that failed, until the database is opened anew."""
    command = [sys.executable, "-c", _FULL, str(tmp_path / "db"), str(subtasks)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_SECONDS_MAX)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == ["True", str([1, None] + [1] * (subtasks - 1))]
