"""Frames: every kind is read back as it was made, and cut to any range of numbers."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from cutline.snapshot.channel.control_frames import StreamEnd, control_frame
from cutline.snapshot.channel.frame import Frame, PayloadKind
from cutline.snapshot.channel.frame_codec import cut_frame, messages_of
from cutline.snapshot.channel.record_batches import OpenBatches
from cutline.snapshot.channel.serialization import Codec
from tests.snapshot.sample import batch, flat, tuples, values

CODEC = Codec()


def listed(frame: Frame) -> list[Any]:
    """The messages of a frame."""
    messages = messages_of(frame, CODEC)
    return messages.to_pylist() if isinstance(messages, pa.RecordBatch) else messages


def make(kind: PayloadKind, first: int, count: int) -> Frame:
    """A frame of `count` messages that hold their own numbers."""
    numbers = range(first, first + count)
    if kind is PayloadKind.VALUES:
        return values(first, *({"n": [n]} for n in numbers))
    if kind is PayloadKind.BATCH:
        return batch(first, count)
    return (tuples if kind is PayloadKind.TUPLES else flat)(first, *((n, "t") for n in numbers))


@pytest.mark.parametrize("kind", [kind for kind in PayloadKind if kind is not PayloadKind.CONTROL])
@given(st.integers(1, 100), st.integers(1, 8), st.data())
def test_a_frame_is_cut_to_any_range(kind: PayloadKind, first: int, count: int, data: st.DataObject) -> None:
    """(after, through] of a frame has those numbers and those messages; the whole frame is not copied."""
    frame = make(kind, first, count)
    after = data.draw(st.integers(first - 2, frame.last - 1))
    through = data.draw(st.integers(max(after + 1, first), frame.last + 2))
    cut = cut_frame(frame, after, through)
    start, stop = max(after + 1, first), min(through, frame.last)
    assert (cut.first, cut.last, cut.kind) == (start, stop, kind)
    assert listed(cut) == listed(frame)[start - first : stop - first + 1]
    assert (cut is frame) == ((start, stop) == (first, frame.last))


def test_tuples_stay_tuples() -> None:
    """A frame of tuples gives tuples, also what is nested in them."""
    assert listed(tuples(1, (1, (2, 3)), ())) == [(1, (2, 3)), ()]
    assert listed(flat(1, (1, "a"), ())) == [(1, "a"), ()]


def test_the_end_is_one_message_without_a_value() -> None:
    """PROTOCOL 5.1: it has a number, and nothing to decode."""
    frame = control_frame(7, StreamEnd())
    assert (frame.first, frame.last, listed(frame)) == (7, 7, [])
    assert cut_frame(frame, 6, 7) is frame


def read(frame: Frame) -> pa.RecordBatch:
    """The record batch of a frame."""
    messages = messages_of(frame, CODEC)
    assert isinstance(messages, pa.RecordBatch)
    return messages


def joined() -> Frame:
    """Messages 5 to 9, in batches of 2, 2 and 1 rows that share a frame."""
    batches = [pa.record_batch({"x": [1, 2], "w": ["a", None]}), pa.record_batch({"x": [3, 4], "w": ["b", "a"]})]
    batches.append(batches[0].slice(1))
    frame = OpenBatches(batches[0].schema)
    for each in batches:
        frame.add(each)
    return frame.frame(5)


def test_batches_that_share_a_frame_are_one_batch() -> None:
    """Rows in order, in one piece; cut like any other."""
    frame = joined()
    rows = [{"x": x, "w": w} for x, w in ((1, "a"), (2, None), (3, "b"), (4, "a"), (2, None))]
    assert (frame.first, frame.last, listed(frame)) == (5, 9, rows)
    cut = cut_frame(frame, 6, 8)
    assert (cut.first, cut.last, listed(cut)) == (7, 8, rows[2:4])


def test_dictionaries_of_batches_that_share_a_frame_are_joined() -> None:
    """Each batch may bring its own."""
    words = [pa.array(words).dictionary_encode() for words in (["a", None], ["b", "a"])]
    frame = OpenBatches(pa.schema({"w": words[0].type}))
    for each in words:
        frame.add(pa.record_batch({"w": each}))
    assert listed(frame.frame(1)) == [{"w": word} for word in ("a", None, "b", "a")]


def test_a_batch_is_read_where_it_lies() -> None:
    """Columns refer to the payload, as it came, without a copy."""
    frame = batch(1, 1_000)
    payload = pa.py_buffer(frame.payload)
    column = read(frame).column("x").buffers()[1]
    assert payload.address <= column.address < payload.address + payload.size
    assert read(replace(frame, payload=bytes(frame.payload))).equals(read(frame))


@pytest.mark.parametrize("offset", [1, 4, 8])
def test_a_batch_may_lie_anywhere_in_a_stored_part(offset: int) -> None:
    """What computes on its columns finds them aligned."""
    frame = batch(1, 1_000)
    stored = memoryview(bytes(offset) + bytes(frame.payload))[offset:]
    found = read(replace(frame, payload=stored))
    assert found.equals(read(frame))
    assert found.column("x").to_numpy().flags.aligned
