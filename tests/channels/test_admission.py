"""Who is admitted, once it is known who it is."""

from __future__ import annotations

import pytest

from cutline.channels.admission import EndpointAdmission, PeerAdmission
from cutline.channels.identity import Identity, Purpose, Refusal

BOB = Identity("run", "bob", 3)


@pytest.mark.parametrize(
    ("peer", "purpose", "refusal"),
    [
        (Identity("run", "alice", 3), Purpose.DATA, None),
        (Identity("run", "alice", 2), Purpose.DATA, Refusal.STALE_INCARNATION),
        (Identity("run", "alice", 4), Purpose.DATA, Refusal.NOT_YET),
        (Identity("run", "mallory", 3), Purpose.DATA, Refusal.UNKNOWN_PEER),
        (Identity("run", "alice", 3), Purpose.CONTROL, Refusal.WRONG_PURPOSE),
    ],
)
def test_a_worker_admits_its_peers_of_its_incarnation(
    peer: Identity, purpose: Purpose, refusal: Refusal | None
) -> None:
    """Known names, the very incarnation, no control connections."""
    assert PeerAdmission(BOB, ["alice"]).judge(peer, purpose) is refusal


def test_one_connection_of_each_purpose_and_incarnation() -> None:
    """A second one is refused, until a rollback begins a new incarnation (PROTOCOL 6.1, rollback)."""
    admission = PeerAdmission(BOB, ["alice"])
    alice = Identity("run", "alice", 3)
    assert admission.judge(alice, Purpose.DATA) is None
    assert admission.judge(alice, Purpose.HEARTBEAT) is None
    assert admission.judge(alice, Purpose.DATA) is Refusal.DUPLICATE
    admission.advance(4, ["alice"])
    assert admission.judge(alice, Purpose.DATA) is Refusal.STALE_INCARNATION
    assert admission.judge(alice._replace(incarnation=4), Purpose.DATA) is None
    assert admission.identity == Identity("run", "bob", 4)


def test_the_coordinator_admits_who_holds_the_secret() -> None:
    """Any name and incarnation, again and again, but no data."""
    admission = EndpointAdmission(Identity("run", "coordinator", 3))
    for _ in range(2):
        assert admission.judge(Identity("run", "new", 0), Purpose.CONTROL) is None
        assert admission.judge(Identity("run", "new", 0), Purpose.HEARTBEAT) is None
    assert admission.judge(Identity("run", "new", 3), Purpose.DATA) is Refusal.WRONG_PURPOSE
