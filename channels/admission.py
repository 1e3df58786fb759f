"""Admission: decides which authenticated peers may connect. Knows names and incarnations, and no sockets."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from cutline.channels.identity import Identity, Purpose, Refusal


class Admission(Protocol):
    """Rule that a listener applies at the end of a handshake."""

    @property
    def identity(self) -> Identity:
        """Current identity of this side."""

    def judge(self, peer: Identity, purpose: Purpose) -> Refusal | None:
        """Decide on a peer that proved its claims and named this side. None accepts the peer."""


class PeerAdmission:
    """A worker's rule: known workers of this very incarnation, one connection of each purpose from each.

    A peer that lost its connection is refused too, because a lost connection means rollback (PROTOCOL 6.1), never
    repair. So there is one connection of each purpose in an incarnation.

    Parameters
    ----------
    identity : Identity
        The worker's identity.
    peers : collection of str
        Names of the workers that may connect.
    """

    def __init__(self, identity: Identity, peers: Collection[str]) -> None:
        self._identity = identity
        self._peers = tuple(peers)
        self._admitted: dict[tuple[str, Purpose], None] = {}

    @property
    def identity(self) -> Identity:
        """Current identity of this worker."""
        return self._identity

    def advance(self, incarnation: int, peers: Collection[str]) -> None:
        """Begin an incarnation after a rollback. All peers must connect again, with the new incarnation."""
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
    """The coordinator's rule: every holder of the run's secret may register or send heartbeats.

    Names, launch tokens and incarnations are checked in control messages. A connecting worker has no place in the run
    yet, and a reconnecting worker is welcome.
    """

    def __init__(self, identity: Identity) -> None:
        self.identity = identity

    def judge(self, peer: Identity, purpose: Purpose) -> Refusal | None:
        """Accept control and heartbeat connections."""
        return Refusal.WRONG_PURPOSE if purpose is Purpose.DATA else None
