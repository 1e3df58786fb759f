"""Identity and purpose of a peer: claimed in its handshake, and believed once its proof holds."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class Purpose(IntEnum):
    """Purpose of a connection. Sent on sockets, so never renumber."""

    DATA = 1  #: frames, markers and credits between two workers
    HEARTBEAT = 2  #: signs of life only
    CONTROL = 3  #: control messages between a worker and the coordinator


class Identity(NamedTuple):
    """One end of a connection. Every frame it sends on it carries this incarnation."""

    run: str
    name: str
    incarnation: int

    def __str__(self) -> str:
        return f"{self.name} (run {self.run}, incarnation {self.incarnation})"


class Refusal(IntEnum):
    """Why a connection was refused. Sent on sockets: never renumber.

    ::

        to an authenticated peer, with the code      never answered, only counted
        WRONG_RUN, WRONG_NAME, STALE_INCARNATION,    UNAUTHENTICATED, MALFORMED,
        NOT_YET, UNKNOWN_PEER, WRONG_PURPOSE,        TOO_SLOW, CROWDED_OUT
        DUPLICATE
    """

    WRONG_RUN = 1  #: it belongs to another run
    WRONG_NAME = 2  #: it looked for somebody else
    STALE_INCARNATION = 3  #: it is from before the last rollback, and must end
    NOT_YET = 4  #: it is ahead of this side, and may try again
    UNKNOWN_PEER = 5  #: nobody of that name is in the run
    WRONG_PURPOSE = 6  #: connections of that purpose are not taken here
    DUPLICATE = 7  #: it has, or had, such a connection in this incarnation
    UNAUTHENTICATED = 8  #: it does not hold the run's secret
    MALFORMED = 9  #: it does not speak the protocol
    TOO_SLOW = 10  #: it did not finish the handshake in time
    CROWDED_OUT = 11  #: it was the oldest when too many were under way
