"""Frames of messages by reference: whatever a cut, a spill file or a recording needs of them is encoded and right."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from sys import getsizeof
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline.channels.limits import LOCAL_FRAMES
from cutline.snapshot.channel.channel_receiver import ChannelReceiver
from cutline.snapshot.channel.channel_sender import ChannelSender
from cutline.snapshot.channel.frame import Frame, Marker, PayloadKind
from cutline.snapshot.channel.frame_codec import cut_frame, encoded_frame, messages_of
from cutline.snapshot.channel.object_frame import AnyFrame, ObjectFrame
from cutline.snapshot.channel.open_objects import OBJECT_FRAME_BYTES_TARGET, UNWEIGHED_MAX, OpenObjects, memory_of
from cutline.snapshot.channel.output_buffer import BUFFER_BYTES_MAX, BackpressureFlag
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.channel.shapes import TEXT_MAX, VALUES_MAX, Shapes, function
from cutline.snapshot.ids import ChannelId, Subtask
from tests.snapshot.hosted import values

CHANNEL = ChannelId(Subtask("a"), Subtask("b"))
SAFE = Codec(safe=True)

ATOMS = st.one_of(
    st.integers(), st.floats(allow_nan=False), st.booleans(), st.none(), st.text(max_size=5), st.binary(max_size=5),
    st.sampled_from(["\ud800", "x" * TEXT_MAX, 2**64, -(2**63) - 1, b"y" * TEXT_MAX]),
)  # fmt: skip
MESSAGES = st.recursive(ATOMS, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=6)


def sender(*, spill: Any = None, sent: int = 0) -> ChannelSender:
    """A sender whose receiver is in the same worker."""
    end = ChannelSender(CHANNEL, SAFE, BackpressureFlag(), sent=sent, spill=spill)
    end.take_objects()
    return end


def frame_of(messages: list[Any], first: int = 1) -> ObjectFrame:
    """The frame of these messages."""
    end = sender(sent=first - 1)
    for message in messages:
        end.send(message)
    end.seal()
    frame = end.buffer.take()
    assert isinstance(frame, ObjectFrame)
    return frame


def taken(end: ChannelSender) -> list[AnyFrame]:
    """The frames that wait."""
    frames: list[AnyFrame] = []
    while (item := end.buffer.take()) is not None:
        assert not isinstance(item, Marker)
        frames.append(item)
    return frames


def typed(value: Any) -> Any:
    """A value with the types of all that it holds."""
    return (tuple, [typed(each) for each in value]) if type(value) is tuple else (type(value), value)


@given(st.lists(MESSAGES, min_size=1, max_size=12), st.data())
def test_every_part_is_encoded_as_it_is(messages: list[Any], data: st.DataObject) -> None:
    """Whatever goes by reference can be encoded later, also by a safe codec, whole or in part, and comes back equal."""
    frame = frame_of(messages, first=5)
    after = data.draw(st.integers(0, 3 + len(messages)))
    through = data.draw(st.integers(max(5, after + 1), 9 + len(messages)))
    cut = cut_frame(frame, after, through)
    expected = messages[max(0, after - 4) : max(0, through - 4)]
    assert (cut.first, cut.count) == (max(5, after + 1), len(expected))
    assert isinstance(cut, Frame)
    assert [typed(each) for each in messages_of(cut, SAFE)] == [typed(each) for each in expected]
    assert isinstance(encoded_frame(frame), Frame) and encoded_frame(frame).count == len(messages)


@given(st.lists(st.tuples(st.text(max_size=3), st.integers(0, 9)), min_size=1, max_size=9))
def test_late_is_as_early(messages: list[tuple[str, int]]) -> None:
    """The bytes of a stored frame do not show that its messages went by reference."""
    early = ChannelSender(CHANNEL, SAFE, BackpressureFlag())
    early.send_all(messages, are_tuples=True)
    early.seal()
    assert encoded_frame(frame_of(messages)) == early.buffer.take()


class _Named(NamedTuple):
    x: int


class _Word(str):
    pass


class _Number(int):
    pass


@pytest.mark.parametrize(
    "message",
    [
        [1], {"a": 1}, bytearray(b"x"), {1}, _Named(1), _Word("x"), _Number(1), 1j, object, (1, [2]), (1, (2, [3])),
        (_Word("x"), 1), (1, _Number(2)), (1, {"a": 1}), "x" * (TEXT_MAX + 1), (b"x" * (TEXT_MAX + 1), 1),
        ((bytearray(),),),
        tuple(range(VALUES_MAX)), (1, tuple(range(VALUES_MAX - 1))), (1, _Named(2)),
    ],
    ids=repr,
)  # fmt: skip
def test_what_can_change_or_is_large_is_encoded(message: Any) -> None:
    """Alone, after its likes were learnt, and in a list."""
    shapes = Shapes()
    for like in (1, "x", b"x", ("x", 1), (b"x", 1), (1, 2), (1, (2, 3)), (1, (2,))):
        assert shapes.fits(like) and shapes.fits(like) and shapes.all_fit([like, like])
    for _ in range(2):
        assert not shapes.fits(message) and not shapes.all_fit([("x", 1), message])
    end = ChannelSender(CHANNEL, Codec(), BackpressureFlag())
    end.take_objects()
    end.send(message)
    end.seal()
    assert isinstance(end.buffer.take(), Frame)


def test_the_written_check_has_every_shape() -> None:
    """The check finds messages of each shape that was learnt, of tuples of any width, and leaves all others."""
    shapes = Shapes()
    learnt = [1, "x", (), (1,), ("x", 1), (1, "x"), (1, (2, 3)), (1, 2, 3)]
    for message in learnt:
        shapes.fits(message)
    lines = shapes.lines(lambda has_shape, may_go: [f"if {has_shape} and {may_go}:", " return True"])
    is_found = function("is_found", "m", [*lines, "return False"], shapes.names())
    assert [message for message in learnt if not is_found(message)] == []
    others = [1.5, (1.5,), ("x", "x"), (1, (2,)), (1, 2, 3, 4), "x" * (TEXT_MAX + 1), ("x" * (TEXT_MAX + 1), 1)]
    assert [message for message in others if is_found(message)] == []


def test_order_is_kept_between_objects_and_bytes() -> None:
    """What must be encoded neither overtakes what was sent before, nor falls behind."""
    end = sender()
    messages = [(1, 2), (1, [2]), (3, 4), "x", {"y": 1}, 7, (5, 6)]
    for message in messages:
        end.send(message)
    end.send_all([(8, 9)], are_tuples=True)
    end.seal()
    frames = taken(end)
    assert all(one.last + 1 == two.first for one, two in pairwise(frames))
    assert values(tuple(map(encoded_frame, frames))) == [*messages, (8, 9)]
    assert isinstance(frames[0], ObjectFrame) and end.sent == 8


def test_a_frame_of_bytes_takes_the_messages_that_follow() -> None:
    """Mixed messages make no frame of each: after one that is encoded, all are, until the frame is sealed."""
    end = sender()
    for number in range(100):
        end.send((number, [number]) if number % 2 else (number, number))
    end.seal()
    end.send((1, 1))
    end.send((1, [1]))
    end.seal()
    frames = taken(end)
    assert [(type(frame), frame.count) for frame in frames] == [
        (ObjectFrame, 1),
        (Frame, 99),
        (ObjectFrame, 1),
        (Frame, 1),
    ]
    assert all(one.last + 1 == two.first for one, two in pairwise(frames))


@given(st.lists(st.integers(1, 400), min_size=1, max_size=20), st.booleans())
def test_memory_is_counted_and_bounded(sizes: list[int], together: bool) -> None:
    """A frame is sealed at its target, plus what is sent between two estimates; the buffer says when it is full."""
    end = sender()
    end.buffer.frames_min = LOCAL_FRAMES
    for size in sizes:
        messages = [("x" * (size % TEXT_MAX), number) for number in range(size)]
        if together:
            end.send_all(messages, are_tuples=True)
        else:
            for message in messages:
                end.send(message)
    end.validate()
    assert end.waiting_bytes > 0
    end.seal()
    waiting, is_full = end.waiting_bytes, bool(end.buffer._backpressure.closed)
    frames = taken(end)
    assert sum(frame.size for frame in frames) == waiting and not end.waiting_bytes
    assert all(isinstance(frame, ObjectFrame) for frame in frames)
    largest = max(frame.size for frame in frames)
    assert largest < OBJECT_FRAME_BYTES_TARGET + UNWEIGHED_MAX * memory_of(("x" * TEXT_MAX, 1))
    assert is_full == (waiting >= max(BUFFER_BYTES_MAX, largest))


@pytest.mark.parametrize("divisor", [1, 3])
def test_the_next_estimate_comes_when_a_frame_may_be_full(divisor: int) -> None:
    """Of messages of one size, exactly as many are awaited as fill a frame, in whole bytes of its share."""
    objects = OpenObjects(Shapes(), Codec(), divisor)
    frame_bytes = OBJECT_FRAME_BYTES_TARGET // divisor
    size = frame_bytes // 10
    objects.messages += [bytes(size - getsizeof(b""))] * 2
    assert not objects.are_full
    assert objects.limit == 10
    objects.messages += [bytes(size - getsizeof(b""))] * 7
    assert not objects.are_full
    objects.messages.append(bytes(frame_bytes - 9 * size - getsizeof(b"")))
    assert objects.are_full


def test_memory_is_that_of_the_values() -> None:
    """With the tuples themselves."""
    assert memory_of(5) == getsizeof(5)
    assert memory_of(("ab", 1.5)) == getsizeof((1, 2)) + getsizeof("ab") + getsizeof(1.5)
    assert memory_of((1, ("ab",))) == getsizeof((1, 2)) + getsizeof(1) + getsizeof(("ab",)) + getsizeof("ab")


def test_a_marker_that_overtakes_saves_bytes() -> None:
    """The sender's part of a cut is encoded: sealed frames, and the open one."""
    end = sender()
    for number in range(5):
        end.send((number, "x"))
        if number == 2:
            end.seal()
    end.put_marker(1, 1, aligned=False)
    marker = end.buffer.take()
    assert isinstance(marker, Marker) and marker.written == 0
    cut = end.buffer.settled(1)
    assert cut is not None and all(isinstance(frame, Frame) for frame in cut.frames)
    assert values(cut) == [(number, "x") for number in range(5)]
    assert [type(frame) for frame in taken(end)] == [ObjectFrame, ObjectFrame]


def test_a_recording_is_encoded_when_it_stops() -> None:
    """The receiver's part, cut inside a frame; the node's own list is another than the recording's."""
    frame = frame_of([(number, "x") for number in range(6)])
    receiver = ChannelReceiver(CHANNEL)
    receiver.deliver(frame)
    receiver.advance(2)
    receiver.start_recording(1)
    assert receiver.recorded_bytes == frame.size
    receiver.advance(4)
    assert receiver.take_freed_bytes() == frame.size
    cut = receiver.stop_recording(1, 5)
    assert all(isinstance(frame, Frame) for frame in cut.frames)
    assert values(cut) == [(2, "x"), (3, "x"), (4, "x")] and not receiver.recorded_bytes


class _SpillFile(deque[AnyFrame]):
    waiting_bytes = 0


def test_what_is_spilled_is_encoded() -> None:
    """A file holds bytes only; what comes back is a frame as any."""
    spill = _SpillFile()
    end = sender(spill=spill)
    while not spill:
        end.send_all([("x" * 200, 1)] * 256, are_tuples=True)
        end.seal()
    assert all(isinstance(frame, Frame) and frame.kind is PayloadKind.FLAT for frame in spill)


def test_keys_come_with_all_messages_or_with_none() -> None:
    """A frame of which some messages came without their keys has none, because lists of unequal length say nothing."""
    end = sender()
    end.send_all([(1, 2), (3, 4)], are_tuples=True, keys=[1, 3])
    end.seal()
    end.send_all([(1, 2)], are_tuples=True, keys=[1])
    end.send((5, 6))
    end.seal()
    first, second = end.buffer.take(), end.buffer.take()
    assert isinstance(first, ObjectFrame) and isinstance(second, ObjectFrame)
    assert (first.keys, second.keys) == ([1, 3], None)
    assert (first.messages, second.messages) == ([(1, 2), (3, 4)], [(1, 2), (5, 6)])


def test_a_frame_ends_near_its_target() -> None:
    """After the first estimate, as many messages are sent as have room by their size, and not a fixed number."""
    end = sender()
    for number in range(2000):
        end.send(("x" * 200, number))
    sizes = [frame.size for frame in taken(end)]
    assert len(sizes) > 2 and max(sizes) <= OBJECT_FRAME_BYTES_TARGET + 2 * memory_of(("x" * 200, 1))
