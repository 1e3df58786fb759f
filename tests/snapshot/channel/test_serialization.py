"""The codec: what comes back is equal and of the same type, and what cannot is refused by name."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from enum import IntEnum
from typing import Any

import msgpack
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline.snapshot.channel.out_of_band_buffers import LARGE_BYTES
from cutline.snapshot.channel.pickles import NotSerialisable
from cutline.snapshot.channel.serialization import Codec, array_header


@dataclass(frozen=True)
class Point:
    """A user's class."""

    x: int


class Colour(IntEnum):
    """A subclass of int must not come back as one."""

    RED = 1


class Hostile:
    """Fails when it is pickled."""

    def __reduce__(self) -> Any:
        raise RuntimeError("no")


class Bomb:
    """Fails when it is unpickled."""

    def __reduce__(self) -> Any:
        return (int, ("no number",))


LARGE_BATCH = pa.record_batch({"x": range(LARGE_BYTES)})
INTEGERS = st.integers(-(2**63), 2**64 - 1)
SCALARS = st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False) | st.text() | st.binary()
PLAIN = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text() | st.integers(0, 9), inner),
    max_leaves=12,
)


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same types all the way down."""
    if type(one) is not type(other) or one != other:
        return False
    if isinstance(one, list | tuple):
        return all(map(same, one, other))
    return all(same(one[key], other[key]) for key in one) if isinstance(one, dict) else True


@given(PLAIN)
def test_plain_values_come_back_as_they_were(value: Any) -> None:
    """Also without pickle."""
    safe = Codec(safe=True)
    assert same(value, safe.decode(safe.encode(value)))


@pytest.mark.parametrize(
    "value",
    [Point(1), [Point(1), (Point(2),)], Colour.RED, Decimal("1.5"), 1j, msgpack.ExtType(2, b"x"), {1, Point(1)}],
)
def test_other_values_are_pickled(value: Any) -> None:
    """Classes, and containers that hold objects of them."""
    assert same(value, Codec().decode(Codec().encode(value)))


def test_batches_travel_inside_values() -> None:
    """As Arrow, not as pickle."""
    batch = pa.record_batch({"x": [1, 2]})
    found = Codec(safe=True).decode(Codec(safe=True).encode({"rows": [batch]}))
    assert found["rows"][0].equals(batch)


def test_a_slice_of_a_batch_travels_without_the_rest() -> None:
    """Inside a value that is pickled, too."""
    rows = LARGE_BATCH.slice(1, 2)
    data = Codec().encode({"shared": Point(1), "rows": rows})
    assert len(data) < LARGE_BYTES
    assert Codec().decode(data)["rows"].equals(rows)


def test_functions_travel_by_name() -> None:
    """A value holds no code, so closures and lambdas are refused."""
    offset = 2
    add: Callable[[int], int] = lambda number: number + offset  # noqa: E731
    assert Codec().decode(Codec().encode([same]))[0] is same
    with pytest.raises(NotSerialisable, match="because it is a lambda"):
        Codec().encode([add])


def endless() -> Iterator[int]:
    """What nothing can pickle."""
    yield 1


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (endless(), "generator"),
        (Hostile(), "Hostile cannot be pickled: RuntimeError: no"),
        ([endless()], "generator"),
        (Bomb(), "Bomb can be pickled, and not unpickled again: ValueError"),
    ],
)
def test_what_cannot_be_encoded_is_named(value: Any, says: str) -> None:
    """By type; and the codec is as good as before."""
    codec = Codec()
    with pytest.raises(NotSerialisable, match=says):
        codec.encode(value)
    assert codec.decode(codec.encode(("still", 1))) == ("still", 1)


def test_cycles_come_back() -> None:
    """A list that holds itself is one list again."""
    loop: list[Any] = []
    loop.append(loop)
    safe = Codec(safe=True)
    found = safe.decode(safe.encode(loop))
    assert found[0] is found


@pytest.mark.parametrize(
    "value", [2**80, "\ud800", {1, 2}, {(1, 2): frozenset({3})}, bytearray(b"x"), [bytearray(b"x")]]
)
def test_what_needs_no_class_is_safe(value: Any) -> None:
    """Big numbers, lone surrogates, sets, tuples as keys and bytearrays are pickled, and need no class."""
    safe = Codec(safe=True)
    assert same(value, safe.decode(safe.encode(value)))


@pytest.mark.parametrize("value", [Point(1), Colour.RED, [Decimal(1)], {1, Point(2)}])
def test_safe_refuses_pickle_on_both_ends(value: Any) -> None:
    """When encoding, by type; when decoding, before anything is unpickled."""
    with pytest.raises(NotSerialisable, match="safe=True refuses"):
        Codec(safe=True).encode(value)
    with pytest.raises(NotSerialisable, match="safe=True refuses"):
        Codec(safe=True).decode(Codec().encode(value))


def test_damaged_bytes_are_refused() -> None:
    """Every cut of a value, strange extensions, and classes that fail to load are NotSerialisable."""
    data = Codec().encode(["value", (1, 2), Point(1)])
    for length in range(len(data)):
        with pytest.raises(NotSerialisable):
            Codec().decode(data[:length])
    for code in (1, 9):
        with pytest.raises(NotSerialisable, match=f"unknown MessagePack extension {code}"):
            Codec().decode(msgpack.packb(msgpack.ExtType(code, b"\x90")))
    with pytest.raises(NotSerialisable, match="cannot be unpickled here: ValueError"):
        Codec().decode(msgpack.packb(msgpack.ExtType(2, pickle.dumps(Bomb()))))


@given(st.lists(st.lists(SCALARS, max_size=4).map(tuple), max_size=20))
def test_flat_tuples_are_encoded_as_any_but_read_without_lists(messages: list[tuple[Any, ...]]) -> None:
    """One call for all of them gives the bytes that one call for each gives, and what is read is the same."""
    codec = Codec()
    flat = codec.pack_flat(messages)
    assert flat == codec.pack_tuples(messages) == b"".join(map(codec.encode_tuple, messages))
    assert same(codec.decode_flat(array_header(len(messages)) + flat), messages)


@pytest.mark.parametrize("odd", [[1], (1,), {"x": 1}, 2**64, "\udc80", Colour.RED, np.float64(1.0), Point(1)], ids=repr)
def test_what_is_not_flat_is_found(odd: Any) -> None:
    """A list among tuples would come back as a tuple; others need an extension, or would lose their type."""
    assert Codec().pack_flat([(1, "a"), (1, odd)]) is None


@pytest.mark.parametrize("data", [b"", b"\xc0", b"\x91", b"\x91\xd4\x02\x00", b"\x91\xa1\xff\x00"], ids=repr)
def test_damaged_flat_tuples_are_refused(data: bytes) -> None:
    """A cut, extensions, and what is no array are NotSerialisable."""
    with pytest.raises(NotSerialisable, match="no flat tuples"):
        Codec().decode_flat(data)


@pytest.mark.parametrize("count", [0, 1, 15, 16, 65_535, 65_536])
def test_an_array_header_and_its_elements_are_a_list(count: int) -> None:
    """Messages are encoded one by one and joined to a frame."""
    codec = Codec()
    assert codec.decode(array_header(count) + codec.encode("x") * count) == ["x"] * count


@pytest.mark.parametrize("count", [1, LARGE_BYTES // 8, LARGE_BYTES], ids=["small", "at the limit", "large"])
def test_states_come_back_as_they_were(count: int) -> None:
    """Arrays, batches and bytes of any size, and what holds them; what is large lies beside the rest."""
    numbers = np.arange(count, dtype=np.int64)
    state = {
        "array": numbers,
        "nested": (numbers[::2], [numbers, "text"]),
        "bytes": bytes(count),
        "list": [bytes(count), 1],
        "batch": pa.record_batch({"x": numbers}),
        "table": pa.table({"x": numbers}),
        "text": "x" * count,
    }
    pieces = Codec().encode_state(state)
    found = Codec().decode_state(b"".join(pieces))
    assert all(np.array_equal(a, b) for a, b in ((found["array"], numbers), (found["nested"][0], numbers[::2])))
    assert type(found["nested"]) is tuple and np.array_equal(found["nested"][1][0], numbers)
    assert (found["bytes"], found["list"], found["text"]) == (bytes(count), [bytes(count), 1], "x" * count)
    assert found["batch"].equals(state["batch"]) and found["table"].equals(state["table"])
    assert (len(pieces) > 1) is (count * 8 >= LARGE_BYTES)


def test_a_state_is_captured_at_once_and_copied_once() -> None:
    """What may change is copied when it is encoded, bytes are not; what comes back may be changed."""
    array, data = np.zeros(LARGE_BYTES, np.uint8), bytes(LARGE_BYTES)
    pieces = Codec().encode_state({"array": array, "data": data})
    assert any(piece is data for piece in pieces)
    array[0] = 1
    found = Codec().decode_state(b"".join(pieces))
    assert not found["array"].any()
    found["array"][0] = 2


def test_a_state_is_given_back_without_the_collector() -> None:
    """Nothing that encodes or decodes refers to itself: a gigabyte must not wait for 100,000 new objects."""
    state = {"array": np.zeros(LARGE_BYTES), "tuple": (1, (Point(1), bytes(LARGE_BYTES))), "batch": LARGE_BATCH}
    gc.collect()
    gc.disable()
    try:
        codec = Codec()
        found = codec.decode_state(b"".join(codec.encode_state(state)))
        assert codec.decode(codec.encode(state["tuple"])) == state["tuple"]
        del codec, found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        left = {type(each).__name__ for each in gc.garbage}
        assert not left & {"Codec", "Packer", "ExtensionDecoder", "OutOfBandBuffers", "Encoder"}, left
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def test_large_bytes_in_nested_lists_lie_beside_the_rest() -> None:
    """They are no part of the encoded value, whichever list holds them."""
    state = {"lists": [[bytes(LARGE_BYTES)], [[bytes(LARGE_BYTES)]]]}
    pieces = Codec().encode_state(state)
    assert [len(piece) for piece in pieces].count(LARGE_BYTES) == 2
    assert Codec().decode_state(b"".join(pieces)) == state


def test_a_field_that_is_pickled_after_all_leaves_the_buffers_of_others() -> None:
    """Its integer is too large for MessagePack, which shows only behind its first large buffer."""
    state = {"first": bytes(LARGE_BYTES), "second": [b"x" * LARGE_BYTES, 2**70]}
    assert Codec().decode_state(b"".join(Codec().encode_state(state))) == state


def test_a_state_whose_table_is_wrong_is_refused() -> None:
    """Damage is found by checksums before; a table that does not fit is still no reason to read beside it."""
    whole = b"".join(Codec().encode_state({"array": np.zeros(LARGE_BYTES, np.uint8)}))
    for broken in (whole[:-1], whole + b"x", whole[:6]):
        with pytest.raises(NotSerialisable, match="not a state"):
            Codec().decode_state(broken)


def test_a_safe_state_takes_no_pickle() -> None:
    """Large bytes and batches are no pickles; arrays are."""
    safe = Codec(safe=True)
    state = {"bytes": bytes(LARGE_BYTES), "batch": LARGE_BATCH}
    assert safe.decode_state(b"".join(safe.encode_state(state))) == state
    with pytest.raises(NotSerialisable, match="safe=True"):
        safe.encode_state({"array": np.zeros(LARGE_BYTES, np.uint8)})
    with pytest.raises(NotSerialisable, match="safe=True"):
        safe.decode_state(b"".join(Codec().encode_state({"array": np.zeros(LARGE_BYTES, np.uint8)})))
