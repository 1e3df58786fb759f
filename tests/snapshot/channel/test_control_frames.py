"""Control frames: the bytes of each statement, and that an unknown one is refused by name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline.snapshot.channel.control_frames import StreamEnd, control_frame, statement_of, stored_problem
from cutline.snapshot.channel.frame import Frame, PayloadKind
from cutline.snapshot.channel.object_frame import ObjectFrame
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.errors import ChannelError
from cutline.snapshot.ids import ChannelId, Subtask

CHANNEL = ChannelId(Subtask("a"), Subtask("b", 3))


def test_the_end_of_a_stream_has_its_stored_bytes() -> None:
    """Kind 3, one number, no payload. Snapshots and sockets have held these bytes from the start."""
    frame = control_frame(7, StreamEnd())
    assert frame == Frame(7, 1, PayloadKind(3), b"")
    assert statement_of(frame, CHANNEL) == StreamEnd()
    assert stored_problem(frame) is None


def test_a_control_frame_is_known_by_its_kind() -> None:
    """Frames of messages are none, nor are frames of messages by reference."""
    for kind in PayloadKind:
        assert Frame(1, 1, kind, b"").is_control == (kind is PayloadKind.CONTROL)
    assert not ObjectFrame(1, 1, [1], None, 1, Codec()).is_control


@given(st.binary(min_size=1, max_size=40), st.booleans())
def test_an_unknown_payload_is_refused_by_name(payload: bytes, is_view: bool) -> None:
    """The error names channel, number and payload, and says what to do. A long payload is shown in part."""
    frame = Frame(9, 1, PayloadKind.CONTROL, memoryview(payload) if is_view else payload)
    what = f"message 9 is a control frame with an unknown payload of {len(payload)} bytes, {payload[:16].hex()}"
    with pytest.raises(ChannelError) as caught:
        statement_of(frame, CHANNEL)
    assert str(caught.value) == f"a[0]->b[3]: {what}. Install the sender's version of Cutline on all workers"
    problem = stored_problem(frame)
    assert problem is not None
    assert problem.startswith(what)
    assert problem.endswith("restore an earlier snapshot")
