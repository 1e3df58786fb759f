"""The coordinator's shell: what cannot happen, and happens, ends the run with a text instead of leaving it to wait."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from cutline import MemoryBackend
from cutline.barrier_runtime.control_codec import decode_message, encode_message
from cutline.barrier_runtime.coordinator import endpoint
from cutline.barrier_runtime.coordinator.coordinator_service import CoordinatorService
from cutline.barrier_runtime.coordinator.coordinator_store import CoordinatorStore
from cutline.barrier_runtime.worker.control_link import COORDINATOR, line_identity
from cutline.channels.control import ControlConnection
from cutline.channels.dialer import connect
from cutline.channels.identity import Purpose
from cutline.channels.sockets import Address
from cutline.snapshot.assembly import completion_of, cut_start_of
from cutline.snapshot.channel.frame import Buffer
from cutline.snapshot.coordinator.control import Quit, Welcome, WorkerRegistered
from cutline.snapshot.coordinator.events import RemovalRequested, SnapshotRequested, StageLaunched
from cutline.snapshot.coordinator.fence import Fence
from cutline.snapshot.coordinator.machine import CoordinatorMachine
from cutline.snapshot.coordinator.pending_snapshot import SnapshotRequest
from cutline.snapshot.coordinator.retention import RemovalRequest
from cutline.snapshot.errors import RunFailed
from cutline.snapshot.stored.history import Base, Claim
from cutline.snapshot.stored.run_store import RunStore
from tests.leaks import LeakCheck
from tests.snapshot import sample
from tests.snapshot.led import SETTINGS

#: Milliseconds are enough; a test that passes does not wait for this.
_DEADLINE_S = 20.0
_SECRET = bytes(32)


class OddBackend(MemoryBackend):
    """Raises on a write what no backend should."""

    def _put_if_absent(self, path: str, chunks: Sequence[Buffer]) -> bool:
        raise KeyError(path)


def _service(
    backend: MemoryBackend, host: str = "127.0.0.1", port: int = 0, *, waits: bool = False
) -> CoordinatorService:
    coordinator = CoordinatorMachine(
        SETTINGS, Fence("owner", "life", "latest"), cut_start_of, completion_of, launch="", epoch_offset=0.0
    )
    store = CoordinatorStore(backend, SETTINGS.run)
    return CoordinatorService(coordinator, store, _SECRET, host, port, waits=waits, on_superseded=lambda: None)


def _await_break(service: CoordinatorService, what: str) -> None:
    def asked() -> bool:
        service.status()
        return False

    with pytest.raises(RunFailed, match=f"(?s)its coordinator broke, which is a bug of Cutline: Traceback.*{what}"):
        _wait_until(asked)
    service.close()


def _wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + _DEADLINE_S
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        threading.Event().wait(0.005)  # the run needs the interpreter, which a busy loop takes from it


def test_error_in_the_loop(leak_check: LeakCheck) -> None:
    """An event that the coordinator cannot take breaks the loop; whoever asks is told."""
    service = _service(MemoryBackend())
    no_event: Any = "no event"
    service.post(no_event)
    _await_break(service, "no event")


def test_error_on_a_storage_thread(leak_check: LeakCheck) -> None:
    """What a thread of a pool raises is not lost in its future."""
    _await_break(_service(OddBackend()), "KeyError")


@contextmanager
def _registered(service: CoordinatorService, launch: str, pid: int) -> Iterator[ControlConnection]:
    """Worker 0 of a stage, which has sent its registration."""
    _wait_until(lambda: service.status()["port"] is not None)
    own, address = line_identity(SETTINGS.run, 0), Address("127.0.0.1", service.status()["port"], "", "")
    dial = (address, own, COORDINATOR, Purpose.CONTROL, _SECRET)
    sock, peer = connect(*dial, timeout=_DEADLINE_S, waits=False)
    connection = ControlConnection(sock, own, peer)
    connection.send(encode_message(WorkerRegistered(0, launch, 0, b"", pid)))
    yield connection
    connection.close()


def test_a_coordinator_that_waits_takes_no_claim(leak_check: LeakCheck) -> None:
    """Workers register with it meanwhile, and it begins once, however often that is asked."""
    backend = MemoryBackend()
    service = _service(backend, waits=True)
    service.post(StageLaunched("000001"))
    with _registered(service, "000001", pid=11) as worker:
        _wait_until(lambda: service.status()["workers"] == {0: 11})
        assert not service.status()["has_begun"] and backend.files() == []
        for _ in range(3):
            service.begin()
        _wait_until(lambda: any(isinstance(decode_message(data), Welcome) for data in worker.receive()))
    assert service.status()["has_begun"]
    assert len([path for path in backend.files() if "/claims/" in path]) == 1
    service.close()


def test_worker_of_a_stage_before_the_newest(leak_check: LeakCheck) -> None:
    """PROTOCOL 6.4: once a stage is launched, who comes from one before is told to quit; its namesake stays."""
    service = _service(MemoryBackend())
    service.post(StageLaunched("000002"))
    with _registered(service, "000002", pid=22):
        _wait_until(lambda: service.status()["workers"] == {0: 22})
        with _registered(service, "000001", pid=11) as stale:
            _wait_until(lambda: any(isinstance(decode_message(data), Quit) for data in stale.receive()))
        assert service.status()["workers"] == {0: 22}
    _wait_until(lambda: service.status()["workers"] == {})
    service.close()


def test_who_orders_waits_for_what_comes_of_it(leak_check: LeakCheck) -> None:
    """An order is answered when it is closed, in the same call; one that stays open is answered that it does."""
    service = _service(MemoryBackend())
    expired = SnapshotRequest(1, pinned=False, initiators=None, deadline=time.monotonic())
    closed = service.request(SnapshotRequested(expired))
    assert closed is not None
    assert closed.snapshot_id is None
    assert service.request(SnapshotRequested(replace(expired, request_id=2, deadline=None))) is None
    service.close()


class SlowRemoval(MemoryBackend):
    """Ends a removal only when the test says so, and records when entries of pin logs are written."""

    def __init__(self) -> None:
        super().__init__()
        self.may_end = threading.Event()
        self.is_removing = threading.Event()
        self.pinned_early: list[bool] = []

    def _put_if_absent(self, path: str, chunks: Sequence[Buffer]) -> bool:
        if "/pins/" in path:
            self.pinned_early.append(not self.may_end.is_set())
        return super()._put_if_absent(path, [memoryview(chunk) for chunk in chunks])

    def _delete(self, paths: Sequence[str]) -> None:
        self.is_removing.set()
        assert self.may_end.wait(_DEADLINE_S)
        super()._delete(paths)


def test_a_pin_waits_for_the_removal_before_it(leak_check: LeakCheck) -> None:
    """Else the removal, which has read the pin before, takes a snapshot away that was just pinned."""
    backend = SlowRemoval()
    store = RunStore(backend, SETTINGS.run)
    first, second = sample.SNAPSHOT_ID, sample.SNAPSHOT_ID + 1
    for number in range(1, sample.INCARNATION + 1):
        store.take_claim(Claim(number, "owner", "life"))
    store.write_base(Base(sample.INCARNATION, None))
    for snapshot_id in (first, second):
        store.write_manifest(replace(sample.manifest(snapshot_id=snapshot_id), pinned=False))
    service = _service(backend)
    _wait_until(lambda: service.status()["snapshots"] == [first, second])
    assert service.status()["pending"] == []
    assert service.request(RemovalRequested(RemovalRequest(1, first))) is None
    assert backend.is_removing.wait(_DEADLINE_S)
    with ThreadPoolExecutor(2) as pool:
        pins = [pool.submit(service.set_pinned, each, True) for each in (first, second)]
        assert service.request(RemovalRequested(RemovalRequest(1, first))) is None
        backend.may_end.set()
        with pytest.raises(FileNotFoundError, match=f"has no snapshot {first}"):
            pins[0].result(_DEADLINE_S)
        pins[1].result(_DEADLINE_S)
    closed = service.request(RemovalRequested(RemovalRequest(1, first)))
    assert closed is not None and closed.snapshot_id == first and service.status()["snapshots"] == [second]
    assert backend.pinned_early == [True, False], "the removal is decided first, then the second is pinned"
    assert store.read_snapshot(second, sample.CODEC).pinned
    service.close()


@contextmanager
def _taken_port() -> Iterator[int]:
    """A port of loopback that another program listens on."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


def test_a_taken_port_is_awaited(leak_check: LeakCheck) -> None:
    """The instance starts, answers, and takes its port as soon as the other program is gone."""
    with _taken_port() as port:
        service = _service(MemoryBackend(), port=port)
        assert service.status()["port"] is None
    _wait_until(lambda: service.status()["port"] is not None)
    assert service.status()["port"] == port
    with _registered(service, "000001", pid=11):
        _wait_until(lambda: service.status()["workers"] == {0: 11})
    service.close()


def test_a_port_that_stays_taken_is_replaced(leak_check: LeakCheck, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while the instance listens elsewhere; its status says where."""
    monkeypatch.setattr(endpoint, "PORT_SECONDS_MAX", 0.1)
    with _taken_port() as port:
        service = _service(MemoryBackend(), port=port)
        _wait_until(lambda: service.status()["port"] is not None)
        assert service.status()["port"] != port
        with _registered(service, "000001", pid=11):
            _wait_until(lambda: service.status()["workers"] == {0: 11})
        service.close()


def test_an_address_without_ports_ends_the_run(leak_check: LeakCheck, monkeypatch: pytest.MonkeyPatch) -> None:
    """No machine has this address: the run fails by name, the instance is not broken."""
    monkeypatch.setattr(endpoint, "PORT_SECONDS_MAX", 0.1)
    monkeypatch.setattr(endpoint, "LISTEN_SECONDS_MAX", 0.2)
    service = _service(MemoryBackend(), host="203.0.113.7")
    _wait_until(lambda: service.status()["outcome"] == "failed")
    assert service.status()["reason"].startswith("the coordinator cannot listen on 203.0.113.7: ")
    service.close()
