"""Equal messages have equal hashes, whatever frames they are in; different ones have different hashes, with a place."""

from __future__ import annotations

import datetime
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutline.snapshot.channel.message_hash import (
    BLOCK_MESSAGES,
    ChannelHash,
    NamedHash,
    content_hash,
    content_hashes,
    packed,
)
from cutline.snapshot.channel.serialization import Codec
from tests.run_size import scaled

OLD, NEW, NEWER = (datetime.datetime(2026, 1, day, tzinfo=datetime.UTC) for day in (1, 2, 3))
ATOMS = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=9)
VALUES = st.recursive(
    ATOMS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.tuples(inner) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=6,
)


def hashes(*parts: Any) -> tuple[bytes, ...]:
    """The hashes of messages that came in these parts."""
    channel = ChannelHash()
    for part in parts:
        channel.add(part)
    return channel.take()


def cut(messages: Any, places: Sequence[int]) -> list[Any]:
    """Messages, cut at these places."""
    ends = sorted({min(place, len(messages)) for place in places} | {len(messages)})
    return [messages[start:stop] for start, stop in zip([0, *ends], ends, strict=False) if stop > start]


@settings(max_examples=scaled(200), deadline=None)
@given(messages=st.lists(VALUES, max_size=12), places=st.lists(st.integers(0, 12)))
def test_frames_do_not_count(messages: list[Any], places: list[int]) -> None:
    """The same messages in other frames."""
    assert hashes(messages) == hashes(*cut(messages, places))


@pytest.mark.parametrize("count", [15, 16, 65_535, 65_536])
def test_packed_lists_join_whatever_their_lengths(count: int) -> None:
    """MessagePack writes a length in one, three or five bytes, which differ with the frame."""
    messages = [300 + number for number in range(count)]
    assert packed(messages) == packed(messages[:10]) + packed(messages[10:]) == b"".join(packed([m]) for m in messages)


@settings(max_examples=scaled(100), deadline=None)
@given(
    messages=st.lists(VALUES, max_size=12),
    places=st.lists(st.integers(0, 12)),
    room=st.integers(1, 5),
    close_at=st.integers(0, 12),
)
def test_messages_that_change_later(messages: list[Any], places: list[int], room: int, close_at: int) -> None:
    """Messages that were packed ahead count as they were, in whatever parts they are taken, also behind a cut."""

    def filled() -> ChannelHash:
        channel = ChannelHash()
        channel.add([0] * (BLOCK_MESSAGES - room))
        return channel

    ahead, whole = filled(), filled()
    changed = [[message] for message in messages]
    packed_ahead = ahead.pack(changed, len(changed))
    for each in changed:
        each.append("changed")
    found: list[tuple[bytes, ...]] = []
    done = 0
    for part in cut(messages, places):
        ahead.add_packed(packed_ahead, len(part))
        whole.add([[message] for message in part])
        done += len(part)
        assert len(packed_ahead) == len(messages) - done
        if done == close_at:
            found += [ahead.take(), whole.take()]
            assert found[0] == found[1]
    assert ahead.take() == whole.take()


def test_long_streams_are_hashed_by_the_block() -> None:
    """A block ends where it ends, whatever the frames are; a difference is in its block only."""
    messages = [(number, f"word {number}") for number in range(3 * BLOCK_MESSAGES + 7)]
    found = hashes(messages)
    assert len(found) == 4
    assert found == hashes(*cut(messages, range(0, len(messages), 100)))
    other = [*messages]
    other[BLOCK_MESSAGES + 5] = (0, "")
    assert [one == another for one, another in zip(found, hashes(other), strict=True)] == [True, False, True, True]


def test_taking_begins_a_block() -> None:
    """The blocks of a step do not depend on the step before."""
    channel = ChannelHash()
    channel.add([1, 2, 3])
    assert channel.take() == hashes([1, 2, 3])
    channel.add([4])
    assert (channel.take(), channel.take()) == (hashes([4]), ())


BATCH = pa.record_batch(
    {
        "int": pa.array([1, None, 3, -4], pa.int32()),
        "float": [1.5, None, float("nan"), -0.0],
        "half": pa.array([np.float16(1), None, np.float16(2), np.float16(3)], pa.float16()),
        "text": ["a", None, "", "ü"],
        "view": pa.array(["a", None, "", "ü"], pa.string_view()),
        "bool": [True, None, False, True],
        "time": pa.array([NEW, None, None, OLD], pa.timestamp("us")),
        "day": pa.array([datetime.date(2026, 1, 1), None, None, datetime.date(2000, 1, 1)], pa.date32()),
        "list": [[1], None, [], [2, 3]],
        "decimal": [Decimal(1), None, Decimal(2), Decimal(3)],
        "words": pa.array(["p", None, "q", "p"]).dictionary_encode(),
        "nothing": pa.nulls(4),
    }
)


@pytest.mark.parametrize("places", [[1], [2], [1, 2, 3]])
def test_batches_are_hashed_by_the_row(places: list[int]) -> None:
    """Slices, with their offsets, buffers and dictionaries, are the same rows."""
    assert hashes(BATCH) == hashes(*(part for part in cut_batch(places)))


def cut_batch(places: list[int]) -> list[pa.RecordBatch]:
    """The batch in parts, each with buffers of its own."""
    ends = [*places, BATCH.num_rows]
    parts = [BATCH.slice(start, stop - start) for start, stop in zip([0, *ends], ends, strict=False)]
    return [pa.RecordBatch.from_pylist(part.to_pylist(), BATCH.schema) for part in parts]


@pytest.mark.parametrize("column", BATCH.schema.names)
def test_each_column_counts(column: str) -> None:
    """A value or a null in the place of another one is another row."""
    place = BATCH.schema.get_field_index(column)
    if column == "nothing":
        return
    values = BATCH.column(place).to_pylist()
    moved = pa.array([values[1], values[0], *values[2:]], BATCH.column(place).type)
    other = BATCH.set_column(place, BATCH.schema.field(place), moved)
    assert hashes(BATCH) != hashes(other)


DIFFERENT: list[tuple[Any, Any]] = [
    (1, 2), (1, "1"), ("a", b"a"), ([1, 2], [2, 1]), ({"a": 1}, {"a": 2}), (None, 0), (2**70, 2**70 + 1),
    ({1, 2}, {1, 3}), (np.array([1, 2]), np.array([2, 1])), (np.array([1, 2]), np.array([1.0, 2.0])),
    (NEW, NEWER), (NEW.date(), NEWER.date()), (datetime.time(1), datetime.time(2)), (NEW - OLD, NEWER - OLD),
    (Decimal(1), Decimal(2)), (1j, 2j), (UUID(int=1), UUID(int=2)), (Fraction(1, 2), Fraction(1, 3)),
    ("\ud800", "\ud801"), ({"a": 2**70}, {"b": 2**70}), (1.0, 2.0),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(DIFFERENT)))
def test_different_messages_have_different_hashes(number: int) -> None:
    """By value and by type."""
    one, other = DIFFERENT[number]
    assert hashes([one]) != hashes([other])
    assert hashes([one, other]) != hashes([other, one])


class Opaque:
    """A class of the user's."""


SELF: list[Any] = []
SELF.append(SELF)

ALIKE: list[Callable[[], Any]] = [
    lambda: {"b", "a", "c"},
    lambda: frozenset({("x", 1), ("y", 2)}),
    Opaque,
    lambda: [Opaque(), {1}],
    lambda: SELF,
    lambda: (1, [2**80, {"x": b"y"}]),
]


@pytest.mark.parametrize("number", range(len(ALIKE)))
def test_equal_messages_have_equal_hashes_in_every_process(number: int) -> None:
    """Sets in any order; objects of the user's by their type."""
    code = f"from tests.snapshot.channel.test_message_hash import *; print(packed([ALIKE[{number}]()]).hex())"
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            check=True, stdout=subprocess.PIPE, text=True, timeout=60,
        ).stdout.strip()
        for seed in ("1", "2")
    ]  # fmt: skip
    assert runs == [packed([ALIKE[number]()]).hex()] * 2


@dataclass(frozen=True)
class Frozen:
    """An object of the user's that a set may hold."""

    value: int


class Valued:
    """An object of the user's with a value."""

    def __init__(self, value: Any) -> None:
        self.value = value


def test_the_content_of_one_message_is_hashed() -> None:
    """Of objects too, also within plain values. A row of a batch counts by its values, whatever its batch."""
    codec = Codec()
    messages = [1, 2, "1", (1, 2), (1, 3), Valued(1), Valued(2), [Valued(1)], [Valued(2)], {"a": Valued(1)}, {1, 2}]
    messages += [{Frozen(1)}, {Frozen(2)}, [frozenset({(1, Frozen(1))})], [frozenset({(1, Frozen(2))})]]
    messages += ["\ud800", "\ud801", ["\ud800", Valued(1)], ["\ud800", Valued(2)], None]
    found = [content_hash(message, codec) for message in messages]
    assert len(set(found)) == len(messages) and {len(each) for each in found} == {8}
    assert found == [content_hash(codec.decode(codec.encode(message)), codec) for message in messages]
    rows = pa.RecordBatch.from_pydict({"n": [1, 2, 2, None], "t": ["x", "x", "x", "x"]})
    of_rows = [*content_hashes(rows, codec)]
    assert of_rows[1] == of_rows[2] and len(set(of_rows)) == 3
    assert of_rows == [next(content_hashes(rows.slice(row, 1), codec)) for row in range(4)]
    assert [*content_hashes([1, "1"], codec)] == [content_hash(1, codec), content_hash("1", codec)]
    without_columns = pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))
    assert len([*content_hashes(without_columns, codec)]) == 2


def test_keys_of_a_block_are_named() -> None:
    """The first keys of each block, or the messages themselves."""
    named = NamedHash(lambda message: message[0])
    named.add([(f"key {number // 200}", number) for number in range(2 * BLOCK_MESSAGES)])
    assert len(named.take()) == 2
    assert [named.near(block) for block in range(3)] == ["'key 0'", "'key 1'", ""]
    named = NamedHash(lambda row: row["a"])
    named.add([{"a": 6}])
    assert named.take() == hashes([{"a": 6}])
    named.forget()
    assert named.near(0) == ""
    named.add(pa.record_batch({"a": [7]}))
    assert (len(named.take()), named.near(0)) == (1, "7")
    plain = NamedHash(None)
    plain.add([1, 2, 2, 3, 4])
    assert (len(plain.take()), plain.near(0)) == (1, "1, 2, 3")
