"""Identities, purposes and refusals: claims of a peer in its handshake, believed once its proof holds."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Purpose(IntEnum):
    """Purpose of a connection. Sent on sockets: never renumber."""

    DATA = 1  #: frames, markers and credits between two workers
    HEARTBEAT = 2  #: heartbeats only
    CONTROL = 3  #: control messages between a worker and the coordinator


class Identity(NamedTuple):
    """Identity of an end of a connection. Every frame that this end sends carries this incarnation."""

    run: str
    name: str
    incarnation: int

    def __str__(self) -> str:
        return f"{self.name} (run {self.run}, incarnation {self.incarnation})"


class Refusal(IntEnum):
    """Reason why a connection was refused. Sent on sockets: never renumber.

    ::

        to an authenticated peer, with the code      never answered, only counted
        WRONG_RUN, WRONG_NAME, STALE_INCARNATION,    UNAUTHENTICATED, MALFORMED,
        NOT_YET, UNKNOWN_PEER, WRONG_PURPOSE,        TOO_SLOW, CROWDED_OUT
        DUPLICATE
    """

    WRONG_RUN = 1  #: the peer belongs to another run
    WRONG_NAME = 2  #: the peer wanted a server of another name
    STALE_INCARNATION = 3  #: the peer is from before the last rollback, and must end
    NOT_YET = 4  #: the peer is ahead of this side, and may try again
    UNKNOWN_PEER = 5  #: the run has no peer of that name
    WRONG_PURPOSE = 6  #: this side takes no connections of that purpose
    DUPLICATE = 7  #: the peer has, or had, such a connection in this incarnation
    UNAUTHENTICATED = 8  #: the peer does not hold the run's secret
    MALFORMED = 9  #: the peer does not speak the protocol
    TOO_SLOW = 10  #: the peer did not finish the handshake in time
    CROWDED_OUT = 11  #: the peer's handshake was the oldest when too many were under way
