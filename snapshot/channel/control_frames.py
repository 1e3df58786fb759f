"""Control frames: statements that travel on a channel, in order with its messages.

A control frame has a number and counts as one message. So credit, markers, recordings and logs treat it as they treat
messages. The statements are a closed vocabulary. An unknown payload is refused and never skipped, because a statement
that was skipped is lost.
"""

from __future__ import annotations

from dataclasses import dataclass

from cutline.snapshot.channel.frame import Buffer, Frame, PayloadKind
from cutline.snapshot.errors import ChannelError
from cutline.snapshot.ids import ChannelId

#: Bytes of an unknown payload that an error shows.
_SHOWN_BYTES = 16


@dataclass(frozen=True, slots=True)
class StreamEnd:
    """No message follows on the channel (PROTOCOL 5.1, end of stream)."""


#: Everything that a control frame can state.
Statement = StreamEnd


def control_frame(first: int, statement: Statement) -> Frame:
    """Return the frame of a statement. Its number is `first`."""
    return Frame(first, 1, PayloadKind.CONTROL, _encoded(statement))


def statement_of(frame: Frame, channel: ChannelId) -> Statement:
    """Return what a control frame of `channel` states.

    Raises
    ------
    ChannelError
        if the payload is unknown.
    """
    statement = _decoded(frame.payload)
    if statement is None:
        raise ChannelError(f"{channel}: {_unknown(frame)}. Install the sender's version of Cutline on all workers")
    return statement


def stored_problem(frame: Frame) -> str | None:
    """Return why a control frame of a snapshot cannot be read, or None if it can be read."""
    if _decoded(frame.payload) is not None:
        return None
    return f"{_unknown(frame)}. Use the version of Cutline that sent it, or restore an earlier snapshot"


def _encoded(statement: Statement) -> bytes:
    """Return the payload of a statement. Payloads are stored in snapshots and sent on sockets: never change one."""
    match statement:
        case StreamEnd():
            return b""


def _decoded(payload: Buffer) -> Statement | None:
    return None if len(payload) else StreamEnd()


def _unknown(frame: Frame) -> str:
    shown = bytes(frame.payload[:_SHOWN_BYTES]).hex()
    return f"message {frame.first} is a control frame with an unknown payload of {len(frame.payload)} bytes, {shown}"
