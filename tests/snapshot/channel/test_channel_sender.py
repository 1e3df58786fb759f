"""The sender's end of a channel: numbers, frames, markers that overtake, what they save."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cutline.channels.in_process import InProcessConnection
from cutline.snapshot.channel.channel_cuts import SentCut
from cutline.snapshot.channel.channel_sender import FRAME_BYTES_TARGET, ChannelSender
from cutline.snapshot.channel.control_frames import StreamEnd, control_frame
from cutline.snapshot.channel.frame import Frame, Marker, PayloadKind
from cutline.snapshot.channel.frame_codec import encoded_frame
from cutline.snapshot.channel.output_buffer import BUFFER_BYTES_MAX, BackpressureFlag, OutputBuffer
from cutline.snapshot.channel.pickles import NotSerialisable
from cutline.snapshot.channel.record_batches import JOINED_BYTES_MAX, JOINED_ROWS_MAX
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.errors import ChannelError, NodeError
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.testing.simulation.host import MemorySpill
from tests.snapshot.hosted import values

CHANNEL = ChannelId(Subtask("a"), Subtask("b"))


def sender(
    backpressure: BackpressureFlag | None = None, spill: MemorySpill | None = None, *, sent: int = 0
) -> ChannelSender:
    """A sending end."""
    return ChannelSender(CHANNEL, Codec(), backpressure or BackpressureFlag(), sent=sent, spill=spill)


def send(end: ChannelSender, *messages: Any) -> None:
    """Send messages, each in a frame of its own."""
    for message in messages:
        end.send(message)
        end.seal()


def settled(end: ChannelSender, snapshot_id: int) -> SentCut:
    """The cut, which must be settled."""
    cut = end.buffer.settled(snapshot_id)
    assert cut is not None
    assert end.buffer.settled(snapshot_id) is None  # it is handed out once
    return cut


def taken(end: ChannelSender) -> list[Any]:
    """All that can be taken: messages, and markers as they are."""
    found: list[Any] = []
    while (item := end.buffer.take()) is not None:
        found += [item] if isinstance(item, Marker) else values((encoded_frame(item),))
        end.validate()
    return found


def test_messages_are_numbered_and_framed() -> None:
    """Numbers go on over frames; tuples and others don't share one."""
    end = sender(sent=5)
    for message in ["a", "b", ("c", 1), {"d": 2}]:
        end.send(message)
    assert (end.sent, end.buffer.written, end.buffer.has_data, end.has_open_frame) == (9, 5, True, True)
    end.seal()
    frames = [end.buffer.take(), end.buffer.take(), end.buffer.take()]
    assert [(f.first, f.count, f.kind) for f in frames if isinstance(f, Frame)] == [
        (6, 2, PayloadKind.VALUES), (8, 1, PayloadKind.TUPLES), (9, 1, PayloadKind.VALUES),
    ]  # fmt: skip
    assert (end.buffer.written, end.buffer.has_data, end.buffer.take()) == (9, False, None)


def test_messages_sent_together_are_framed_by_kind() -> None:
    """Flat tuples are read without lists; they join tuples that wait, and no others do join them."""
    end = sender()
    end.send_all([("a", 1), ("b", 2)], are_tuples=True)
    end.send(("c", 3))
    end.send_all([("d", 4)], are_tuples=True)
    end.send_all([("e", [5])], are_tuples=True)
    end.send_all([6, {"f": 7}], are_tuples=False)
    assert (end.sent, end.has_open_frame) == (7, True)
    end.validate()
    end.seal()
    frames = tuple(frame for frame in iter(end.buffer.take, None) if isinstance(frame, Frame))
    assert [(frame.first, frame.count, frame.kind) for frame in frames] == [
        (1, 2, PayloadKind.FLAT), (3, 3, PayloadKind.TUPLES), (6, 2, PayloadKind.VALUES),
    ]  # fmt: skip
    assert values(frames) == [("a", 1), ("b", 2), ("c", 3), ("d", 4), ("e", [5]), 6, {"f": 7}]


@pytest.mark.parametrize("width", [1, 100, 20_000, 40_000])
def test_messages_sent_together_fill_frames_as_single_ones_do(width: int) -> None:
    """Whatever their size, frames are full and not much more, also the first one after it changed."""
    end = sender()
    end.send_all([("x", number) for number in range(10_000)], are_tuples=True)
    end.seal()
    while end.buffer.take() is not None:
        pass
    end.send_all([("x" * width, 0)] * (600 + 1_000_000 // width), are_tuples=True)
    sizes = [len(frame.payload) for frame in iter(end.buffer.take, None) if isinstance(frame, Frame)]
    assert len(sizes) > 20
    assert FRAME_BYTES_TARGET <= min(sizes[:-1]) <= max(sizes) < 1.3 * FRAME_BYTES_TARGET + width


def test_what_cannot_be_sent_is_refused_among_others_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit holds for each message, not for their sum; those ahead of what is refused are sent."""
    monkeypatch.setattr(sys.modules[ChannelSender.__module__], "MESSAGE_BYTES_MAX", 100)
    end = sender()
    end.send_all([("x" * 50,)] * 16, are_tuples=True)
    with pytest.raises(ChannelError, match="at most 100"):
        end.send_all([("y",), ("x" * 1000,), ("z",)], are_tuples=True)
    assert end.sent == 17
    end.forbid("not now")
    with pytest.raises(NodeError, match="not now"):
        end.send_all([("y",)], are_tuples=True)
    end.forbid("")
    end.send_end()
    with pytest.raises(ChannelError, match="after the end"):
        end.send_all([("y",)], are_tuples=True)
    assert (end.sent, len(taken(end))) == (18, 17)


def test_rows_of_a_batch_are_messages() -> None:
    """A row has a number; an empty batch is nothing."""
    end = sender()
    end.send_batch(pa.record_batch({"x": [1, 2, 3]}))
    end.send_batch(pa.record_batch({"x": pa.array([], pa.int64())}))
    assert (end.sent, end.has_open_frame, end.buffer.has_data) == (3, True, False)
    end.validate()
    end.seal()
    assert taken(end) == [{"x": 1}, {"x": 2}, {"x": 3}]


def test_rows_without_columns_are_refused() -> None:
    """Nothing of them would come back."""
    end = sender()
    with pytest.raises(ChannelError, match="a batch of 2 rows without columns"):
        end.send_batch(pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([]))))
    assert end.sent == 0


def test_small_batches_share_a_frame_and_large_ones_have_their_own() -> None:
    """A frame holds batches of one schema, between them nothing else, and leaves by itself when it is full."""
    end = sender()
    small, other = pa.record_batch({"x": [1, 2]}), pa.record_batch({"y": [1]})
    large = pa.record_batch({"x": range(JOINED_ROWS_MAX)})
    wide = pa.record_batch({"x": [b"x" * JOINED_BYTES_MAX]})
    for batch in (small, small, other, small, large, wide):
        end.send_batch(batch)
    end.send("message")
    end.send_batch(small)
    assert end.has_open_frame
    end.validate()
    end.send_end()
    frames = [end.buffer.take() for _ in range(8)]
    assert [frame.count for frame in frames if isinstance(frame, Frame)] == [4, 1, 2, JOINED_ROWS_MAX, 1, 1, 2, 1]
    assert end.buffer.take() is None


def test_waiting_bytes_are_those_of_memory_disk_and_the_open_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    """A marker that overtakes them saves them all, so each counts once. What the link took is not saved."""
    monkeypatch.setattr(sys.modules[OutputBuffer.__module__], "BUFFER_BYTES_MAX", 1)
    end = sender(spill=MemorySpill())
    sizes = [len(Codec().encode(["x" * length])) for length in (10, 20)]  # a frame is a list
    sizes.append(len(Codec().encode("x" * 40)))
    assert end.waiting_bytes == 0
    send(end, "x" * 10)
    assert (end.waiting_bytes, end.buffer.spilling) == (sizes[0], False)
    send(end, "x" * 20)
    assert (end.waiting_bytes, end.buffer.spilling) == (sum(sizes[:2]), True)
    end.send("x" * 40)
    assert end.waiting_bytes == sum(sizes)
    end.buffer.take()
    assert end.waiting_bytes == sum(sizes[1:])
    assert len(taken(end)) == 1
    assert end.waiting_bytes == sizes[2]


def test_what_the_sender_does_to_its_memory_later_is_not_seen() -> None:
    """Rows are copied when they are sent, also those that wait for company."""
    end = sender()
    memory = np.array([1, 2, 3])
    end.send_batch(pa.record_batch({"x": pa.array(memory)}))
    memory[:] = 0
    end.seal()
    assert taken(end) == [{"x": 1}, {"x": 2}, {"x": 3}]


def test_a_marker_saves_the_small_batches_that_wait() -> None:
    """A cut closes the open frame: rows that have a number are in it."""
    end = sender()
    end.send_batch(pa.record_batch({"x": [1]}))
    end.send_batch(pa.record_batch({"x": [2]}))
    assert end.waiting_bytes > 0
    end.put_marker(1, 1, aligned=False)
    cut = settled(end, 1)
    assert (cut.sent, cut.written, values(cut.frames)) == (2, 0, [{"x": 1}, {"x": 2}])
    end.validate()


@pytest.mark.parametrize("index", [pa.int8(), pa.int32()], ids=str)
def test_dictionaries_never_outgrow_their_index(index: pa.DataType) -> None:
    """Batches whose dictionaries together need a wider index are not joined."""
    end = sender()
    for start in (0, 100):
        words = pa.array([str(n) for n in range(start, start + 100)])
        end.send_batch(pa.record_batch({"x": words.dictionary_encode().cast(pa.dictionary(index, pa.string()))}))
    end.seal()
    assert taken(end) == [{"x": str(n)} for n in range(200)]


def test_a_marker_overtakes_what_waits_and_saves_it() -> None:
    """PROTOCOL 1.1: behind what was written, ahead of all else; the sender saves (w, S]."""
    end = sender()
    send(end, "a", "b")
    end.buffer.take()
    end.send("c")
    end.put_marker(1, 1, aligned=False)
    end.send("d")
    assert end.buffer.has_marker
    cut = settled(end, 1)
    assert (cut.sent, cut.written, values(cut)) == (3, 1, ["b", "c"])
    end.seal()
    assert taken(end) == [Marker(1, 1, 1, False), "b", "c", "d"]


def test_markers_keep_their_order() -> None:
    """PROTOCOL 1.5: a later marker comes behind an earlier one, wherever both are."""
    end = sender()
    send(end, "a")
    end.put_marker(1, 1, aligned=True)
    send(end, "b")
    end.put_marker(2, 1, aligned=False)
    assert (values(settled(end, 1)), values(settled(end, 2))) == (["a"], ["a", "b"])
    assert taken(end) == [Marker(1, 1, 0, False), Marker(2, 1, 0, False), "a", "b"]


def test_an_aligned_marker_waits_its_turn() -> None:
    """PROTOCOL 4.1: nothing is saved, and the cut is settled when the marker leaves."""
    end = sender()
    send(end, "a")
    end.put_marker(1, 1, aligned=True)
    send(end, "b")
    assert (end.buffer.has_marker, end.buffer.settled(1)) == (False, None)
    assert taken(end) == ["a", Marker(1, 1, 1, True), "b"]
    assert settled(end, 1) == SentCut(1, 1, ())


def test_a_timeout_moves_lower_markers_and_saves_no_more_than_was_sent() -> None:
    """PROTOCOL 4.3: the marker and all lower ones go to the head; later ones stay; only messages up to S are saved."""
    end = sender()
    for number, message in enumerate("abc", 1):
        send(end, message)
        end.put_marker(number, 1, aligned=True)
    send(end, "d")
    end.buffer.take()  # a is written
    end.buffer.overtake(2)
    end.buffer.overtake(2)  # it left already: nothing happens
    assert (settled(end, 1), values(settled(end, 2))) == (SentCut(1, 1, ()), ["b"])
    assert end.buffer.settled(3) is None
    assert taken(end) == [Marker(1, 1, 1, False), Marker(2, 1, 1, False), "b", "c", Marker(3, 1, 3, True), "d"]


def test_a_discarded_snapshot_leaves_nothing_behind() -> None:
    """An aborted snapshot's waiting marker goes too, so that nothing is saved for it later."""
    end = sender()
    send(end, "a")
    end.put_marker(1, 1, aligned=True)
    end.put_marker(2, 1, aligned=True)
    end.buffer.discard(1)
    end.buffer.overtake(2)
    assert taken(end) == [Marker(2, 1, 0, False), "a"]
    assert end.buffer.settled(1) is None


def test_the_end_is_numbered_and_last() -> None:
    """PROTOCOL 5.1: the end of a stream is a message, overtaken and saved like others."""
    end = sender()
    send(end, "a")
    end.send_end()
    end.put_marker(1, 1, aligned=False)
    cut = settled(end, 1)
    assert (cut.sent, [frame.kind for frame in cut.frames]) == (2, [PayloadKind.VALUES, PayloadKind.CONTROL])
    assert cut.frames[-1] == control_frame(2, StreamEnd())
    with pytest.raises(ChannelError, match="after the end"):
        end.send("b")
    with pytest.raises(ChannelError, match="after the end"):
        end.send_batch(pa.record_batch({"x": [1]}))


def test_a_full_buffer_closes_the_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL 9.1: one reason per full channel, gone when it empties; markers don't count."""
    monkeypatch.setattr(sys.modules[OutputBuffer.__module__], "BUFFER_BYTES_MAX", 10)
    monkeypatch.setattr(sys.modules[OutputBuffer.__module__], "BUFFER_FRAMES_MIN", 1)
    backpressure = BackpressureFlag()
    first, second = sender(backpressure), sender(backpressure)
    send(first, "x" * 20, "y")
    send(second, "x" * 20)
    assert backpressure.closed == 2
    first.put_marker(1, 1, aligned=False)
    first.buffer.take()
    assert backpressure.closed == 2
    first.buffer.take()
    second.buffer.take()
    assert backpressure.closed == 0


@pytest.mark.parametrize("is_local", [False, True])
def test_large_frames_have_room(is_local: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond its bytes an out-buffer is full with three of its largest frames, else two workers would work in turn.

    Within a worker both sides do, and it is full with one.
    """
    monkeypatch.setattr(sys.modules[OutputBuffer.__module__], "BUFFER_BYTES_MAX", 10)
    backpressure = BackpressureFlag()
    end = sender(backpressure)
    if is_local:
        InProcessConnection().attach_sending(0, end)
    for closed in (1,) if is_local else (0, 0, 1):
        send(end, "x" * 20)
        assert backpressure.closed == closed
    end.buffer.take()
    assert backpressure.closed == 0


@pytest.mark.parametrize(("siblings", "divisor"), [(1, 1), (2, 1), (8, 4), (32, 16), (1000, 16)])
def test_many_siblings_have_less_room_each(siblings: int, divisor: int) -> None:
    """All that waits is in an unaligned snapshot: frames and buffers shrink as a subtask's channels grow in number."""
    backpressure = BackpressureFlag()
    end = ChannelSender(CHANNEL, Codec(), backpressure, siblings=siblings)
    while not backpressure.closed:
        end.send("x" * 99)
    frame = end.buffer.take()
    assert isinstance(frame, Frame)
    assert FRAME_BYTES_TARGET // divisor <= len(frame.payload) < FRAME_BYTES_TARGET // divisor + 200
    assert end.buffer.buffered_bytes < BUFFER_BYTES_MAX // divisor


def test_inside_a_cycle_a_full_buffer_spills(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL 9.2: the gate stays open, order is kept, and a marker saves what is on disk too."""
    monkeypatch.setattr(sys.modules[OutputBuffer.__module__], "BUFFER_BYTES_MAX", 10)
    backpressure, spill = BackpressureFlag(), MemorySpill()
    end = sender(backpressure, spill)
    send(end, "x" * 20, "b", "c")
    assert (backpressure.closed, len(spill), end.buffer.spilling) == (0, 2, True)
    end.put_marker(1, 1, aligned=False)
    assert values(settled(end, 1)) == ["x" * 20, "b", "c"]
    end.buffer.take()
    end.buffer.take()  # memory is empty now, but what is on disk is older
    send(end, "d")
    assert (len(spill), taken(end)) == (3, ["b", "c", "d"])


def test_what_cannot_be_sent_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too large or not serialisable: an error, and no number is used."""
    monkeypatch.setattr(sys.modules[ChannelSender.__module__], "MESSAGE_BYTES_MAX", 100)
    end = sender()
    with pytest.raises(ChannelError, match=r"a\[0\]->b\[0\]: a message of 1,002 bytes; at most 100|1,003 bytes"):
        end.send("x" * 1000)
    with pytest.raises(ChannelError, match="at most 100"):
        end.send_batch(pa.record_batch({"x": list(range(1000))}))
    with pytest.raises(NotSerialisable, match="generator"):
        end.send(x for x in [1])
    assert end.sent == 0
    end.send_batch(pa.record_batch({"x": list(range(1000))}).slice(10, 5))
    assert end.sent == 5
