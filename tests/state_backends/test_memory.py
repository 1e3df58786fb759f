"""The memory backend."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable

import pytest

from cutline import MemoryBackend, StateBackend
from cutline.snapshot.stored.history import Claim
from cutline.snapshot.stored.run_store import RunStore
from tests.snapshot import sample
from tests.state_backends.conformance import FOR_ALL


@pytest.mark.parametrize("check", FOR_ALL)
def test_conformance(check: Callable[[StateBackend], None]) -> None:
    """It keeps the contract of all backends."""
    check(MemoryBackend())


class Guarded(dict[str, bytes]):
    """Files that may be read and changed only by the holder of a lock."""

    def __init__(self, lock: threading.Lock) -> None:
        super().__init__()
        self._lock = lock

    def __contains__(self, path: object) -> bool:
        assert self._lock.locked()
        return super().__contains__(path)

    def __setitem__(self, path: str, data: bytes) -> None:
        assert self._lock.locked()
        super().__setitem__(path, data)


def test_one_writer_at_a_time_looks_and_writes() -> None:
    """Two threads could otherwise both find no file, and both win. Python switches threads too rarely to show this."""
    backend = MemoryBackend()
    backend._bytes = Guarded(backend._lock)
    assert [backend.put_if_absent("a", [data]) for data in (b"first", b"second")] == [True, False]
    assert not backend._lock.locked()
    assert backend.get("a") == b"first"


def test_a_copy_is_empty() -> None:
    """Pickled into another process it shares nothing: memory is of one process."""
    backend = MemoryBackend()
    RunStore(backend, "r").take_claim(Claim(1, "owner", "life"))
    copy = pickle.loads(pickle.dumps(backend))
    assert (copy.files(), len(backend.files())) == ([], 1)


def test_parts_never_leave_the_worker_by_themselves() -> None:
    """Every part is inline, so a worker's copy of the backend is never written."""
    backend = MemoryBackend()
    assert all(handle.inline is not None for handle in RunStore(backend, sample.RUN).put_parts(sample.parts()))
    assert backend.files() == []
