"""Admission of peers whose handshake has proved their identity. Knows names and incarnations, and no sockets."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from channels.identity import Identity, Purpose, Refusal


class Admission(Protocol):
    """Decides for a listener at the end of a handshake."""

    @property
    def identity(self) -> Identity:
        """Return this side's identity now."""

    def judge(self, peer: Identity, purpose: Purpose) -> Refusal | None:
        """Decide on a peer that has proved its claims. Return None to admit the peer."""


class PeerAdmission:
    """A worker's rule: known workers of this very incarnation, one connection of each purpose from each.

    A connection lives once in an incarnation, so a worker that lost one is refused too: losing it means
    rollback (PROTOCOL 6.1), never repair.

    Parameters
    ----------
    identity : Identity
        This worker's.
    peers : collection of str
        Names of the workers that may connect.
    """

    def __init__(self, identity: Identity, peers: Collection[str]) -> None:
        self._identity = identity
        self._peers = tuple(peers)
        self._admitted: dict[tuple[str, Purpose], None] = {}

    @property
    def identity(self) -> Identity:
        """Return this worker's identity now."""
        return self._identity

    def advance(self, incarnation: int, peers: Collection[str]) -> None:
        """A rollback: everybody connects anew, and only with the new incarnation."""
        self._identity = self._identity._replace(incarnation=incarnation)
        self._peers = tuple(peers)
        self._admitted.clear()

    def judge(self, peer: Identity, purpose: Purpose) -> Refusal | None:
        """Accept (and remember) or refuse a peer that proved its claims."""
        if purpose is Purpose.CONTROL:
            return Refusal.WRONG_PURPOSE
        if peer.name not in self._peers:
            return Refusal.UNKNOWN_PEER
        if peer.incarnation < self._identity.incarnation:
            return Refusal.STALE_INCARNATION
        if peer.incarnation > self._identity.incarnation:
            return Refusal.NOT_YET
        if (peer.name, purpose) in self._admitted:
            return Refusal.DUPLICATE
        self._admitted[peer.name, purpose] = None
        return None


class EndpointAdmission:
    """Admit every holder of the run's secret to the coordinator, to register or to send heartbeats.

    Names, launch tokens and incarnations are judged by what the control messages say: a worker that
    connects has no place in the run yet, and one that reconnects is welcome.
    """

    def __init__(self, identity: Identity) -> None:
        self.identity = identity

    def judge(self, peer: Identity, purpose: Purpose) -> Refusal | None:
        """Accept control and heartbeat connections."""
        return Refusal.WRONG_PURPOSE if purpose is Purpose.DATA else None
