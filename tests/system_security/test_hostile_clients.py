"""Strangers at the ports of a live run: refused before anything of theirs is parsed, counted, and without effect."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.live import Live
from cutline import Run
from cutline.barrier_runtime.launch import WorkerLaunch
from cutline.barrier_runtime.worker.control_link import COORDINATOR
from cutline.channels.dialer import connect
from cutline.channels.handshake import HandshakeFailed
from cutline.channels.identity import Identity, Purpose, Refusal
from cutline.channels.limits import PENDING_HANDSHAKES_MAX
from cutline.channels.sockets import Address
from cutline.snapshot.errors import ChannelError
from tests.spark.counting import ENDLESS, counting_graph, stop_and_check, wait_for_snapshots, wait_until
from tests.system_security.strangers import bomb_at, crowd, dawdle, listening_port, prove_with_bomb, send_garbage

#: Connections beyond what a listener keeps.
_BEYOND = 100


@pytest.fixture
def run(live: Live, tmp_path: Path) -> Run:
    """A run that processes messages and has published a snapshot."""
    run = live.run(counting_graph("besieged", ENDLESS, str(tmp_path)))
    wait_for_snapshots(run, 1)
    return run


@pytest.mark.spark
@pytest.mark.ray
@pytest.mark.slow
@pytest.mark.parametrize("door", ["coordinator", "worker"])
def test_strangers_are_refused_and_change_nothing(run: Run, door: str, tmp_path: Path) -> None:
    """Random bytes, pickle bombs, lying lengths, wrong secrets, crowds and slow starters, at each kind of port."""
    address, name = _door(run, door)
    bomb = bomb_at(tmp_path / "exploded")
    malformed = send_garbage(address, bomb)
    prove_with_bomb(address, bomb)
    _come_with_wrong_secret(address, name)
    crowd(address, PENDING_HANDSHAKES_MAX + _BEYOND)
    dawdle(address)
    expected = {Refusal.UNAUTHENTICATED: 2, Refusal.TOO_SLOW: 1}
    _await_refusals(run, expected | {Refusal.MALFORMED: malformed, Refusal.CROWDED_OUT: _BEYOND})
    assert not (tmp_path / "exploded").exists(), "something was unpickled"
    _check_unharmed(run)


@pytest.mark.spark
@pytest.mark.ray
def test_misled_peers_are_refused_by_name(run: Run) -> None:
    """Those who hold the secret but come from another run or incarnation, twice, or to the wrong door: told why."""
    coordinator, _ = _door(run, "coordinator")
    worker, _ = _door(run, "worker")
    now = run.status["incarnation"]
    own, data = Identity("besieged", "worker-1", now), Purpose.DATA
    attempts: list[tuple[Refusal, Address, str, Identity, Purpose]] = [
        (Refusal.WRONG_RUN, coordinator, COORDINATOR, own._replace(run="other"), Purpose.CONTROL),
        (Refusal.WRONG_NAME, coordinator, "worker-0", own, Purpose.CONTROL),
        (Refusal.WRONG_PURPOSE, coordinator, COORDINATOR, own, data),
        (Refusal.WRONG_RUN, worker, "worker-0", own._replace(run="other"), data),
        (Refusal.STALE_INCARNATION, worker, "worker-0", own._replace(incarnation=now - 1), data),
        (Refusal.UNKNOWN_PEER, worker, "worker-0", own._replace(name="worker-7"), data),
        (Refusal.DUPLICATE, worker, "worker-0", own, data),
        (Refusal.DUPLICATE, worker, "worker-0", own, Purpose.HEARTBEAT),
    ]
    for refusal, address, server, identity, purpose in attempts:
        with pytest.raises(HandshakeFailed, match=refusal.name):
            connect(address, identity, server, purpose, _launch(run).secret, timeout=20.0, waits=True)
    expected = dict.fromkeys((refusal for refusal, *_ in attempts), 1)
    _await_refusals(run, expected | {Refusal.WRONG_RUN: 2, Refusal.DUPLICATE: 2})
    _check_unharmed(run)


def _launch(run: Run) -> WorkerLaunch:
    return WorkerLaunch.decode(run._supervisor._make_launch("", run.status["port"]))


def _door(run: Run, door: str) -> tuple[Address, str]:
    """Where it is by TCP, and the name of who answers there."""
    if door == "coordinator":
        return _launch(run).coordinator, COORDINATOR
    return Address("127.0.0.1", listening_port(run.status["workers"][0]), "", ""), "worker-0"


def _come_with_wrong_secret(address: Address, name: str) -> None:
    with pytest.raises(ChannelError, match="is the run's secret the same there"):
        connect(
            address, Identity("besieged", "worker-1", 0), name, Purpose.HEARTBEAT, bytes(32), timeout=0.01, waits=True
        )


def _await_refusals(run: Run, expected: dict[Refusal, int]) -> None:
    def missing() -> dict[str, int]:
        refused = run.status["refused"]
        return {refusal.name: count for refusal, count in expected.items() if refused.get(refusal.name, 0) < count}

    wait_until("all refusals counted", lambda: not missing())


def _check_unharmed(run: Run) -> None:
    """Nothing rolled back, snapshots go on, and no message is lost or doubled."""
    wait_for_snapshots(run, 2)
    assert run.status["restarts"] == []
    stop_and_check(run)
