"""The two accounts of a channel agree, whatever the sizes and the delays."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline.channels.credits import ReceivingCredit, SendingCredit
from cutline.channels.limits import CREDIT_GRANT_DIVISOR, LOCAL_FRAMES, WINDOW_FRAMES
from cutline.snapshot.channel.output_buffer import ROOM_FRAMES, FrameRoom
from cutline.snapshot.errors import ChannelError

WINDOW_BYTES = 100


@given(
    st.lists(st.tuples(st.sampled_from(["send", "receive", "free", "grant"]), st.integers(0, 250)), max_size=200),
    st.sampled_from([LOCAL_FRAMES, WINDOW_FRAMES]),
)
def test_both_sides_agree(steps: list[tuple[str, int]], frames: int) -> None:
    """Neither refuses an honest other, what is held is bounded, and in the end nothing stops the sender."""
    sender, receiver = SendingCredit(WINDOW_BYTES, frames), ReceivingCredit(WINDOW_BYTES, frames)
    on_the_way: deque[int] = deque()
    queued: deque[int] = deque()
    grants: deque[int] = deque()
    largest = 0
    drain = [(name, 0) for name in ("receive", "free", "grant") for _ in range(200)]
    for name, size in steps + drain:
        if name == "send" and sender.balance > 0:
            sender.spend(size)
            largest = max(largest, size)
            on_the_way.append(size)
        elif name == "receive" and on_the_way:
            queued.append(on_the_way.popleft())
            receiver.receive(queued[-1])
        elif name == "free" and queued:
            grants.append(receiver.free(queued.popleft()))
        elif name == "grant" and grants:
            sender.grant(grants.popleft())
        assert sum(queued) < max(WINDOW_BYTES, frames * largest) + max(largest, 1)
    assert sender.balance >= WINDOW_BYTES - WINDOW_BYTES // CREDIT_GRANT_DIVISOR


def test_the_room_of_a_large_frame_goes_with_it() -> None:
    """Behind it small frames get the usual window, however slow the receiver is; no sender is stopped for ever."""
    sender, receiver = SendingCredit(WINDOW_BYTES), ReceivingCredit(WINDOW_BYTES)
    queued: deque[int] = deque()

    def send(size: int) -> None:
        sender.spend(size)
        receiver.receive(size)
        queued.append(size)

    def process() -> None:
        sender.grant(receiver.free(queued.popleft()))

    send(10_000)
    for _ in range(2 * ROOM_FRAMES):
        if sender.balance > 0:
            send(10)
    process()  # the large frame
    for _ in range(5 * ROOM_FRAMES):
        while sender.balance > 0:
            send(10)
        assert sum(queued) <= max(WINDOW_BYTES, 10 * 2 * ROOM_FRAMES)
        process()
    assert sum(queued) <= WINDOW_BYTES


def test_small_grants_wait_for_company() -> None:
    """Below a quarter of the window nothing is given back."""
    credit = ReceivingCredit(WINDOW_BYTES)
    for _ in range(2):
        credit.receive(30)
    assert credit.free(24) == 0
    assert credit.free(1) == 25
    assert credit.free(1) == 0


def test_a_frame_without_credit_is_refused() -> None:
    """A sender that ignores its balance is found out, so memory is bounded whatever it does."""
    credit = ReceivingCredit(WINDOW_BYTES)
    for _ in range(4):
        credit.receive(33)
    with pytest.raises(ChannelError, match="without credit"):
        credit.receive(1)


@pytest.mark.parametrize("frames", [LOCAL_FRAMES, WINDOW_FRAMES])
def test_large_frames_have_room(frames: int) -> None:
    """A frame that fills the window must not have to wait until the one before it is processed, but within a worker."""
    sender, receiver = SendingCredit(WINDOW_BYTES, frames), ReceivingCredit(WINDOW_BYTES, frames)
    for _ in range(frames):
        sender.spend(WINDOW_BYTES)
        receiver.receive(WINDOW_BYTES)
    assert sender.balance == 0
    with pytest.raises(ChannelError, match="without credit"):
        receiver.receive(1)
    sender.grant(receiver.free(WINDOW_BYTES))
    assert sender.balance == WINDOW_BYTES


def test_the_window_grows_by_the_last_byte_too() -> None:
    """Room for exactly so many frames stays, although one byte is missing only."""
    sender = SendingCredit(WINDOW_BYTES - 1, 1)
    sender.spend(WINDOW_BYTES)
    assert sender.balance == 0


def test_credit_that_was_never_spent_is_refused() -> None:
    """A receiver cannot give back more than it got."""
    credit = SendingCredit(WINDOW_BYTES)
    credit.spend(10)
    with pytest.raises(ChannelError, match="only 10 are spent"):
        credit.grant(11)


@given(st.lists(st.integers(0, 9), max_size=5 * ROOM_FRAMES))
def test_the_room_is_that_of_the_newest_frames(sizes: list[int]) -> None:
    """The largest of at least so many frames decides, and of at most twice as many, but for the least room."""
    room = FrameRoom(3)
    for end, size in enumerate(sizes, 1):
        room.add(size)
        newest, most = (sizes[max(0, end - count) : end] for count in (ROOM_FRAMES, 2 * ROOM_FRAMES))
        assert max(3, *newest) <= room.bytes <= max(3, *most)
