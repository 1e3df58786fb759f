"""Messages of old channels on new ones: the receiver of each, whatever frames they came in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutline.snapshot.channel.control_frames import StreamEnd, control_frame
from cutline.snapshot.channel.frame import Frame, PayloadKind
from cutline.snapshot.channel.frame_codec import frame_of_batch, frame_of_pieces, messages_of
from cutline.snapshot.channel.partitioning import donors_of, key_group, subtask_of_group
from cutline.snapshot.channel.rerouting import (
    ChannelEnd,
    NewChannel,
    OldChannel,
    Rerouted,
    ReroutedCount,
    ReshapedEdge,
    Route,
    reroute,
)
from cutline.snapshot.errors import RestoreRefused
from cutline.snapshot.plan.declarations import Key
from tests.run_size import scaled
from tests.snapshot.in_flight import CODEC, channel
from tests.snapshot.sample import flat, tuples, values

ONE, OTHER = channel(0, 0), channel(0, 1)


def first(message: Any) -> Any:
    """The key of a message."""
    return message[0]


def edge_of(
    route: Route,
    old: Sequence[OldChannel],
    *,
    index: int = 0,
    before: int = 2,
    now: int = 1,
    sent: int = 100,
    end: ChannelEnd = ChannelEnd.OPEN,
    wave: int = 3,
) -> ReshapedEdge:
    """An edge with one new sender, of which the receiver `index` reads some old channels."""
    new = (NewChannel(channel(0, index), sent, end),)
    return ReshapedEdge("A", "B", index, route, before, now, wave, tuple(old), new)


def contents(found: Rerouted, index: int = 0) -> list[Any]:
    """The messages of the only new channel."""
    rows: list[Any] = []
    for frame in found.frames[channel(0, index)]:
        messages = messages_of(frame, CODEC)
        rows += messages.to_pylist() if isinstance(messages, pa.RecordBatch) else messages
    return rows


# ---------------------------------------------------------------- numbers, waves, ends


def test_messages_end_with_the_number_of_the_sender() -> None:
    """R messages have the numbers (B - R, B]; frames are numbered anew, and their payloads are not copied."""
    frames = [flat(7, (1, "a"), (2, "b")), values(9, "c")]
    found = reroute(edge_of(Route.WHOLE, [OldChannel(ONE, 0)]), {ONE: frames}, None, CODEC)
    assert [(each.first, each.last) for each in found.frames[ONE]] == [(98, 99), (100, 100)]
    assert [each.payload for each in found.frames[ONE]] == [each.payload for each in frames]
    assert found.processed == {ONE: 97}
    assert found.waves == {ONE: ((100, 3),)}
    assert found.counts == (ReroutedCount(ONE, 0, 3, 0, 3),)


def test_a_channel_without_messages_has_nothing_in_flight() -> None:
    """All that was sent is processed, and there is no wave."""
    found = reroute(edge_of(Route.WHOLE, [OldChannel(ONE, 0)]), {}, None, CODEC)
    assert (found.frames, found.processed, found.waves) == ({ONE: ()}, {ONE: 100}, {ONE: ()})
    assert found.counts == (ReroutedCount(ONE, 0, 0, 0, 0),)


@pytest.mark.parametrize("end", ChannelEnd)
def test_ends_are_taken_out_and_put_last(end: ChannelEnd) -> None:
    """Only an ending channel has one. It is a message of the last wave, and B counts it."""
    edge = edge_of(Route.WHOLE, [OldChannel(ONE, 0), OldChannel(OTHER, 0)], end=end)
    found = reroute(edge, {ONE: [control_frame(5, StreamEnd())], OTHER: [control_frame(9, StreamEnd())]}, None, CODEC)
    if end is ChannelEnd.ENDING:
        assert found.frames[ONE] == (control_frame(100, StreamEnd()),)
        assert (found.processed[ONE], found.waves[ONE]) == (99, ((100, 3),))
    else:
        assert (found.frames[ONE], found.processed[ONE], found.waves[ONE]) == ((), 100, ())
    assert [(count.messages, count.ends, count.taken) for count in found.counts] == [(0, 1, 0)] * 2


def test_an_end_stands_behind_messages_of_all_channels() -> None:
    """Also behind those of a channel whose sender had not ended, because they are of the same new sender."""
    edge = edge_of(Route.WHOLE, [OldChannel(ONE, 0), OldChannel(OTHER, 0)], end=ChannelEnd.ENDING)
    found = reroute(
        edge, {ONE: [flat(4, ("a",)), control_frame(5, StreamEnd())], OTHER: [flat(9, ("b",))]}, None, CODEC
    )
    assert contents(found) == [("a",), ("b",)]
    assert found.frames[ONE][-1] == control_frame(100, StreamEnd())


def test_messages_are_in_the_order_of_waves_then_of_channels() -> None:
    """A wave may end inside a frame, which is cut there. Messages behind the last wave have that of the edge."""
    old = [OldChannel(ONE, 0, ((11, 1), (12, 2))), OldChannel(OTHER, 0, ((5, 2),))]
    frames = {ONE: [flat(10, ("a1",), ("a1'",), ("a2",), ("a3",))], OTHER: [flat(5, ("b2",), ("b3",))]}
    found = reroute(edge_of(Route.WHOLE, old), frames, None, CODEC)
    assert contents(found) == [("a1",), ("a1'",), ("a2",), ("b2",), ("a3",), ("b3",)]
    assert found.waves == {ONE: ((96, 1), (98, 2), (100, 3))}


def test_the_receivers_part_comes_before_the_senders_part() -> None:
    """As they were on the channel: the numbers of both parts go on."""
    found = reroute(edge_of(Route.WHOLE, [OldChannel(ONE, 0)]), {ONE: [flat(1, ("r",)), flat(2, ("s",))]}, None, CODEC)
    assert contents(found) == [("r",), ("s",)]


def test_each_sender_has_its_channel() -> None:
    """Messages go to the heir of their sender."""
    new = tuple(NewChannel(channel(m, 0), 10 * (m + 1), ChannelEnd.OPEN) for m in range(3))
    edge = replace(edge_of(Route.WHOLE, [OldChannel(ONE, 2), OldChannel(channel(1, 0), 0)]), new=new)
    found = reroute(edge, {ONE: [flat(1, ("a",))], channel(1, 0): [flat(1, ("b",), ("c",))]}, None, CODEC)
    assert found.processed == {channel(0, 0): 8, channel(1, 0): 20, channel(2, 0): 29}


def test_a_message_on_a_closed_channel_is_refused() -> None:
    """Its receiver has processed the end of all its senders, so nothing may come any more."""
    edge = edge_of(Route.WHOLE, [OldChannel(ONE, 0)], end=ChannelEnd.CLOSED)
    with pytest.raises(RestoreRefused) as refused:
        reroute(edge, {ONE: [flat(1, ("a",), ("b",))]}, None, CODEC)
    assert str(refused.value).startswith("A[0]->B[0]: 2 messages in flight, but B[0] has processed the end of A: ")
    assert "Restore with the parallelism of the snapshot" in str(refused.value)


# ---------------------------------------------------------------- by key


def by_key(frames: Sequence[Frame], before: int, now: int, key: Key, route: Route = Route.BY_KEY) -> list[Rerouted]:
    """What all new receivers make of frames of the channel (0, 0), which each may read."""
    return [
        reroute(edge_of(route, [OldChannel(ONE, 0)], index=k, before=before, now=now), {ONE: frames}, key, CODEC)
        for k in range(now)
    ]


def owned(count: int, index: int, parallelism: int) -> list[int]:
    """Some ints that a subtask owns."""
    return [key for key in range(count) if subtask_of_group(key_group(key), parallelism) == index]


def _flat(keys: Sequence[int]) -> Frame:
    return flat(1, *((key, place) for place, key in enumerate(keys)))


def _tuples(keys: Sequence[int]) -> Frame:
    return tuples(1, *((key, [place]) for place, key in enumerate(keys)))


def _values(keys: Sequence[int]) -> Frame:
    return values(1, *([key, {"place": place}] for place, key in enumerate(keys)))


def _batch(keys: Sequence[int]) -> Frame:
    return frame_of_batch(1, pa.record_batch({"key": list(keys), "place": list(range(len(keys)))}))


FRAMES: dict[str, tuple[Callable[[Sequence[int]], Frame], Key]] = {
    "flat": (_flat, first),
    "tuples": (_tuples, first),
    "values": (_values, first),
    "batch": (_batch, "key"),
    "batch by columns": (_batch, ("key",)),
    "batch by a function": (_batch, lambda row: row["key"]),
}


@pytest.mark.parametrize("name", FRAMES)
@settings(max_examples=scaled(30), deadline=None)
@given(data=st.data(), before=st.integers(1, 5), now=st.integers(2, 6))
def test_every_message_goes_to_the_owner_of_its_key_once(name: str, data: st.DataObject, before: int, now: int) -> None:
    """In every kind of frame, over all receivers, in the sequence of the channel."""
    make, key = FRAMES[name]
    keys = data.draw(st.lists(st.sampled_from(owned(60, 0, before)), min_size=1, max_size=12))
    frame = make(keys)
    function = key if callable(key) else lambda row: row["key"]
    if name == "batch by columns" and any(subtask_of_group(key_group((each,)), before) for each in keys):
        return  # a tuple of one column is another key than the column: these go to subtasks that the sender named
    everything = [row for index in range(now) for row in _rows(by_key([frame], before, now, key)[index], index)]
    assert sorted(map(repr, everything)) == sorted(map(repr, _messages([frame])))
    for index, found in enumerate(by_key([frame], before, now, key)):
        rows = _rows(found, index)
        wrap = (lambda each: (each,)) if name == "batch by columns" else (lambda each: each)
        assert rows == [
            each for each in _messages([frame]) if subtask_of_group(key_group(wrap(function(each))), now) == index
        ]
        kinds = {each.kind for each in found.frames[channel(0, index)]}
        assert kinds <= {frame.kind}
        assert found.counts == (ReroutedCount(ONE, index, len(keys), 0, len(rows)),)


def _rows(found: Rerouted, index: int) -> list[Any]:
    frames = found.frames[channel(0, index)]
    assert sum(frame.count for frame in frames) == 100 - found.processed[channel(0, index)]
    return _messages(frames)


def _messages(frames: Sequence[Frame]) -> list[Any]:
    rows: list[Any] = []
    for frame in frames:
        messages = messages_of(frame, CODEC)
        rows += messages.to_pylist() if isinstance(messages, pa.RecordBatch) else messages
    return rows


NOW = datetime(2024, 2, 29, 12, 30, 15, 123456, UTC)
COLUMNS: dict[str, pa.Array] = {
    "null": pa.nulls(4),
    "bool": pa.array([True, None, False, True]),
    **{f"int{bits}": pa.array([1, None, -3, 4], getattr(pa, f"int{bits}")()) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": pa.array([1, None, 3, 4], getattr(pa, f"uint{bits}")()) for bits in (8, 16, 32, 64)},
    **{f"float{bits}": pa.array([1.5, None, -3, 4]).cast(getattr(pa, f"float{bits}")()) for bits in (32, 64)},
    "nan": pa.array([float("nan"), None, 1.0, -0.0]),
    "text": pa.array(["a", None, "", "ä" * 50]),
    "large text": pa.array(["a", None, "", "b"], pa.large_string()),
    "text view": pa.array(["a", None, "", "b" * 30], pa.string_view()),
    "bytes": pa.array([b"a", None, b"", b"\x00"]),
    "large bytes": pa.array([b"a", None, b"", b"b"], pa.large_binary()),
    "fixed bytes": pa.array([b"ab", None, b"cd", b"ef"], pa.binary(2)),
    "decimal": pa.array([Decimal("1.50"), None, Decimal("-3.25"), Decimal("0.01")], pa.decimal128(10, 2)),
    "date": pa.array([date(2024, 2, 29), None, date(1970, 1, 1), date(1, 1, 1)]),
    "time": pa.array([1, None, 3, 4], pa.time64("us")),
    "timestamp": pa.array([1_700_000_000_123_456, None, 0, -1], pa.timestamp("us")),
    "zoned": pa.array([NOW, None, NOW, None], pa.timestamp("ns", "Europe/Rome")),
    "duration": pa.array([timedelta(1), None, timedelta(0), timedelta(-1)]),
    "list": pa.array([[1, 2], None, [], [None]]),
    "large list": pa.array([[1, 2], None, [], [None]], pa.large_list(pa.int64())),
    "fixed list": pa.array([[1, 2], None, [3, 4], [5, None]], pa.list_(pa.int64(), 2)),
    "map": pa.array([[("a", 1)], None, [], [("b", None)]], pa.map_(pa.string(), pa.int64())),
    "struct": pa.array([{"x": 1, "y": ["a"]}, None, {"x": None, "y": []}, {"x": 2, "y": None}]),
    "dictionary": pa.array(["a", None, "b", "a"]).dictionary_encode(),
    "list of dictionaries": pa.array([["a"], None, [], ["b", "a"]], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
    "runs": pa.RunEndEncodedArray.from_arrays(pa.array([1, 4], pa.int32()), pa.array(["a", None])),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_rows_of_every_type_are_divided_and_counted(name: str) -> None:
    """A column beside the key keeps its type and its values, in rows of several receivers and frames that are cut."""
    batch = pa.record_batch({"key": owned(60, 0, 1)[:4], "column": COLUMNS[name]})
    found = by_key([frame_of_batch(1, batch)], 1, 3, "key")
    rows = [row for index, each in enumerate(found) for row in _rows(each, index)]
    assert len({index for index, each in enumerate(found) if _rows(each, index)}) > 1, (
        "the keys are of several receivers"
    )
    assert Counter(map(repr, rows)) == Counter(map(repr, batch.to_pylist()))
    for index, each in enumerate(found):
        for frame in each.frames[channel(0, index)]:
            decoded = messages_of(frame, CODEC)
            assert isinstance(decoded, pa.RecordBatch)
            assert decoded.schema.equals(batch.schema)
    waved = edge_of(Route.WHOLE, [OldChannel(ONE, 0, ((2, 1),))])
    cut = reroute(waved, {ONE: [frame_of_batch(1, batch)]}, None, CODEC)
    assert [frame.count for frame in cut.frames[ONE]] == [2, 2]
    assert repr(contents(cut)) == repr(batch.to_pylist())


def test_a_named_receiver_keeps_its_message() -> None:
    """The sender named a subtask that did not own the key: the message stays with it, and is nobody else's."""
    mine, foreign = owned(60, 0, 2)[0], owned(60, 1, 2)[0]
    frames = [flat(1, (mine, "by key"), (foreign, "named"), (mine, "by key"))]
    found = by_key(frames, 2, 4, first)
    taken = {index: _rows(each, index) for index, each in enumerate(found) if _rows(each, index)}
    owner = subtask_of_group(key_group(mine), 4)
    expected: dict[int, list[Any]] = {owner: [(mine, "by key")] * 2}
    expected.setdefault(0, []).insert(min(1, len(expected.get(0, []))), (foreign, "named"))
    assert taken == expected


def test_a_named_receiver_that_is_gone_is_refused() -> None:
    """With edge, number and way out."""
    foreign = owned(60, 0, 3)[0]
    old = [OldChannel(channel(0, 2), 0)]
    edge = edge_of(Route.BY_KEY, old, index=1, before=3, now=2)
    with pytest.raises(RestoreRefused) as refused:
        reroute(edge, {channel(0, 2): [flat(1, (foreign, 1), (foreign, 2))]}, first, CODEC)
    assert str(refused.value) == (
        "edge A->B: 2 messages in flight on A[0]->B[2] were sent to a subtask that the sender named, but B now has 2 "
        "subtasks. Restore with the parallelism of the snapshot"
    )


def test_a_new_key_decides_alone() -> None:
    """The old key is unknown, so nobody can say whether a sender named a receiver."""
    foreign = owned(60, 1, 2)
    frames = [flat(1, *((key, key) for key in foreign[:6]))]
    found = by_key(frames, 2, 2, first, Route.BY_NEW_KEY)
    assert [_rows(each, index) for index, each in enumerate(found)] == [[], [(key, key) for key in foreign[:6]]]


@pytest.mark.parametrize(
    ("frame", "key"),
    [
        (flat(1, (1.5, "x")), first),
        (flat(1, ("x",)), lambda message: message[7]),
        (frame_of_batch(1, pa.record_batch({"x": [1]})), "y"),
    ],
)
def test_a_key_that_cannot_be_read_is_refused(frame: Frame, key: Key) -> None:
    """By edge and channel, with what went wrong and the way out."""
    with pytest.raises(RestoreRefused) as refused:
        by_key([frame], 2, 3, key)
    text = str(refused.value)
    assert text.startswith(
        "edge A->B: the key of a message in flight on A[0]->B[0] cannot be read by the graph's key: "
    )
    assert text.endswith("\nRestore with the key and the parallelism of the snapshot")


@settings(max_examples=scaled(60), deadline=None)
@given(data=st.data(), before=st.integers(1, 4), now=st.integers(1, 5), a=st.integers(1, 3))
def test_all_receivers_together_take_each_message_once(data: st.DataObject, before: int, now: int, a: int) -> None:
    """Several senders and receivers, each reader reads the channels of its donors, and of those that may name it."""
    sent: Counter[Any] = Counter()
    contents_of: dict[Any, list[Frame]] = {}
    for i in range(a):
        for j in range(before):
            keys = data.draw(st.lists(st.sampled_from(owned(60, j, before)), max_size=5))
            frames = [flat(place + 1, (key, i, j, place)) for place, key in enumerate(keys)]
            contents_of[channel(i, j)] = frames
            sent.update((key, i, j, place) for place, key in enumerate(keys))
    found: Counter[Any] = Counter()
    for k in range(now):
        readers = sorted({*donors_of(k, before, now), *([k] if k < before else [])})
        old = [OldChannel(channel(i, j), 0) for i in range(a) for j in readers]
        rerouted = reroute(edge_of(Route.BY_KEY, old, index=k, before=before, now=now), contents_of, first, CODEC)
        rows = _rows(rerouted, k)
        assert all(subtask_of_group(key_group(row[0]), now) == k for row in rows)
        found.update(rows)
        of_key: dict[Any, list[Any]] = {}
        for row in rows:
            of_key.setdefault(row[:2], []).append(row[3])
        assert all(places == sorted(places) for places in of_key.values()), "one sender's messages of a key in sequence"
    assert found == sent


# ---------------------------------------------------------------- copies

COPIES = [OldChannel(ONE, 0), OldChannel(OTHER, 0)]


def merged(one: Sequence[Frame], other: Sequence[Frame]) -> Rerouted:
    """What a receiver takes that takes over from two."""
    return reroute(edge_of(Route.COPIES, COPIES), {ONE: one, OTHER: other}, None, CODEC)


def test_one_of_equal_copies_is_taken() -> None:
    """However the messages share frames, and wherever their numbers begin; the count says that each was read."""
    one = [flat(3, ("a", 1), ("b", 2)), values(5, "c"), frame_of_batch(6, pa.record_batch({"x": [1, 2]}))]
    rows = [frame_of_batch(12 + x, pa.record_batch({"x": [1 + x]})) for x in range(2)]
    other = [flat(9, ("a", 1)), tuples(10, ("b", 2)), values(11, "c"), *rows]
    found = merged(one, other)
    assert contents(found) == [("a", 1), ("b", 2), "c", {"x": 1}, {"x": 2}]
    assert [(count.messages, count.taken) for count in found.counts] == [(5, 5), (5, 5)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([flat(1, ("a",))], [flat(1, ("b",))]),
        ([flat(1, ("a",))], [flat(1, ("a",), ("a",))]),
        ([flat(1, ("a",))], []),
        ([values(1, "a", "b")], [values(1, "b", "a")]),
        ([values(1, ["a"])], [flat(1, ("a",))]),
        ([frame_of_batch(1, pa.record_batch({"x": [1]}))], [frame_of_batch(1, pa.record_batch({"x": [2]}))]),
        ([frame_of_batch(1, pa.record_batch({"x": [1]}))], [frame_of_batch(1, pa.record_batch({"y": [1]}))]),
    ],
)
def test_copies_that_differ_are_refused(one: list[Frame], other: list[Frame]) -> None:
    """In a value, in number, in order, in kind. The text names the edge, both channels and the way out."""
    for pair in ((one, other), (other, one)):
        with pytest.raises(RestoreRefused) as refused:
            merged(*pair)
        assert str(refused.value) == (
            "edge A->B: A[0]->B[0] and A[0]->B[1] hold different messages in flight, and B[0] takes over from both "
            "receivers, so neither is right for it. Restore with the parallelism of the snapshot, or restore a "
            'snapshot with alignment="aligned"'
        )


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([flat(1, ("a", 1)), values(2, "x")], [values(1, ("a", 1), "x")]),
        (
            [frame_of_pieces(1, PayloadKind.TUPLES, [CODEC.encode_tuple(("a", (1, 2)))])],
            [values(1, ("a", (1, 2)))],
        ),
        (
            [frame_of_batch(1, pa.record_batch({"x": [float("nan")]}))],
            [frame_of_batch(4, pa.record_batch({"x": [float("nan")]}))],
        ),
    ],
    ids=["tuple among values", "nested tuples", "nan"],
)
def test_equal_messages_in_frames_of_other_kinds_are_equal_copies(one: list[Frame], other: list[Frame]) -> None:
    """A tuple among other values is encoded as a value; a NaN is the same row, though it equals nothing."""
    assert contents(merged(one, other))


def test_other_senders_have_copies_of_their_own() -> None:
    """Copies are compared by sender, and of each sender one is taken."""
    old = [OldChannel(channel(i, j), 0) for i in range(2) for j in range(2)]
    frames = {channel(i, j): [flat(1, ("from", i))] for i in range(2) for j in range(2)}
    assert contents(reroute(edge_of(Route.COPIES, old), frames, None, CODEC)) == [("from", 0), ("from", 1)]


def test_copies_have_their_end_once() -> None:
    """Ends are no messages of the comparison."""
    edge = edge_of(Route.COPIES, COPIES, end=ChannelEnd.ENDING)
    found = reroute(
        edge, {ONE: [flat(1, ("a",)), control_frame(2, StreamEnd())], OTHER: [flat(5, ("a",))]}, None, CODEC
    )
    assert [frame.kind for frame in found.frames[ONE]] == [PayloadKind.FLAT, PayloadKind.CONTROL]


def test_an_encoded_message_is_never_decoded_without_need() -> None:
    """A receiver without the class of a message takes it whole."""
    frame = frame_of_pieces(1, PayloadKind.VALUES, [b"\xc7\x03\x02xyz"])
    assert reroute(edge_of(Route.WHOLE, [OldChannel(ONE, 0)]), {ONE: [frame]}, None, CODEC).processed == {ONE: 99}
