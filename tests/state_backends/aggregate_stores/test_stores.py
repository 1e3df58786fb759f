"""All stores of aggregates keep the contract: from one thread, from many, and from another process."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from cutline import MemoryStore
from cutline.snapshot.errors import Fenced
from cutline.snapshot.operators.aggregate_store import StoreClaim
from cutline.state_backends.aggregate_stores.memory import MemoryTable
from cutline.state_backends.retries import repeated
from cutline.testing import checkStore
from tests.leaks import LeakCheck
from tests.run_size import scaled
from tests.state_backends.aggregate_stores.conftest import Maker

_SECONDS_MAX = 60

_WRITERS = 4
_KEYS = 50

#: what another process does with a store
_OTHER_PROCESS = """
import pickle, sys
from cutline.snapshot.operators.aggregate_store import StoreClaim
store = pickle.loads(bytes.fromhex(sys.argv[1]))
assert store.get("a") == 1
store.write(StoreClaim("r", 1), 2, [("a", 2), ("b", 2)])
store.close()
"""


def test_the_contract_is_kept(maker: Maker, leak_check: LeakCheck) -> None:
    """`checkStore` finds nothing, and leaves no connection, thread or process."""
    checkStore(maker, examples=scaled(50))


def test_another_process_writes(shared_maker: Maker) -> None:
    """A pickled copy in another process writes into the same store, while this process has a connection."""
    store = shared_maker()
    claim = StoreClaim("r", 1)
    store.take(claim)
    store.write(claim, 1, [("a", 1)])
    store.commit(claim, 1)
    command = [sys.executable, "-c", _OTHER_PROCESS, pickle.dumps(store).hex()]
    subprocess.run(command, check=True, timeout=_SECONDS_MAX)
    assert store.current(["a", "b"]) == [1, None]
    store.commit(claim, 2)
    assert store.current(["a", "b"]) == [2, 2]
    store.close()


def test_all_but_writers_are_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two that share the holder, and then both change it, would wait for each other. Writers only read it."""
    done: list[bool] = []
    atomically = MemoryTable.atomically

    def noting(self: MemoryTable, deed: Callable[[], Any], *, alone: bool) -> Any:
        done.append(alone)
        return atomically(self, deed, alone=alone)

    monkeypatch.setattr(MemoryTable, "atomically", noting)
    store, claim = MemoryStore(), StoreClaim("r", 1)
    store.take(claim)
    store.write(claim, 1, [("a", 1)])
    store.commit(claim, 1)
    store.rollBack(claim, 1)
    assert done == [True, False, True, True]


def test_many_make_the_store(maker: Maker) -> None:
    """Connections that are the first at one time all succeed, and the highest claim has the store."""
    begin = threading.Barrier(_WRITERS * 2)

    def take(number: int) -> bool:
        store = maker()
        begin.wait(_SECONDS_MAX)
        claim = StoreClaim("r", number)
        try:  # again after an error that may pass, as of a file that another connection has locked for long
            repeated(lambda: store.take(claim), _SECONDS_MAX, lambda _: None, lambda error: type(error) is OSError)
        except Fenced:
            return False
        finally:
            store.close()
        return True

    numbers = range(1, 2 * _WRITERS + 1)
    with ThreadPoolExecutor(len(numbers)) as pool:
        taken = list(pool.map(take, numbers))
    assert taken[-1]
    store = maker()
    assert store.take(StoreClaim("r", len(numbers))) == -1
    with pytest.raises(Fenced):
        store.take(StoreClaim("r", len(numbers) - 1))
    store.close()


def test_a_fenced_writer_changes_nothing(maker: Maker) -> None:
    """Writers of claim 1 go on until they are fenced. All that they wrote was written before claim 2 was taken."""
    store = maker()
    store.take(StoreClaim("r", 1))
    wrote = threading.Semaphore(0)

    def write(writer: int) -> None:
        own = maker()
        try:
            for value in range(1, 1_000_000):
                own.write(StoreClaim("r", 1), 1, [((writer, key), value) for key in range(_KEYS)])
                wrote.release()
        except Fenced:
            return
        finally:
            own.close()
        raise AssertionError("never fenced")

    keys = [[(writer, key) for key in range(_KEYS)] for writer in range(_WRITERS)]
    with ThreadPoolExecutor(_WRITERS) as pool:
        writers = [pool.submit(write, writer) for writer in range(_WRITERS)]
        for _ in range(_WRITERS * 5):
            assert wrote.acquire(timeout=_SECONDS_MAX)
        claim = StoreClaim("r", 2)
        assert store.take(claim) == -1
        store.commit(claim, 1)
        found = [store.current(each) for each in keys]
        for each in writers:
            each.result(_SECONDS_MAX)
    assert [store.current(each) for each in keys] == found
    assert all(len(set(values)) == 1 for values in found), "a write is there in part"
    store.close()


def test_readers_see_whole_snapshots(maker: Maker) -> None:
    """While two connections write and one commits, a reader finds all keys at one snapshot, and never goes back."""
    claim = StoreClaim("r", 1)
    one, other, reader = maker(), maker(), maker()
    one.take(claim)
    keys = [(part, key) for part in range(2) for key in range(_KEYS)]
    ended = threading.Event()

    def read() -> int:
        newest = 0
        while not ended.is_set():
            [found] = {value or 0 for value in reader.current(keys)}
            assert found >= newest
            newest = found
        return newest

    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(read)
        try:
            for snapshot_id in range(1, 31):
                one.write(claim, snapshot_id, [(key, snapshot_id) for key in keys[:_KEYS]])
                other.write(claim, snapshot_id, [(key, snapshot_id) for key in keys[_KEYS:]])
                other.commit(claim, snapshot_id)
        finally:
            ended.set()
        reading.result(_SECONDS_MAX)
    assert set(reader.current(keys)) == {30}
    for store in (one, other, reader):
        store.close()
