"""The groups of a keyed aggregate as rows of keyed state: changed groups only, of one moment, in the edge's groups."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline import KeyedAggregate
from cutline.snapshot.channel.partitioning import key_group
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.errors import NodeError, RestoreRefused
from cutline.snapshot.keyed.decoding import rows_of
from cutline.snapshot.keyed.heap import HeapTier
from cutline.snapshot.keyed.segment import Segment
from tests.snapshot.keyed.cold_tiers import LateTier
from tests.snapshot.keyed.keyed_subtask import KeyedSubtask, TierMaker, encoded
from tests.snapshot.operators.test_aggregate import KEYED, ROWS, approximately, expected, of

SUM = {"s": ("v", "sum")}


class Opened:
    """A keyed aggregate that is restored and open."""

    def __init__(
        self, node: KeyedAggregate, state: Any = None, segments: Sequence[Segment] = (),
        make_tier: TierMaker = HeapTier, **how: Any,
    ) -> None:  # fmt: skip
        self.node = node
        self.sent: list[pa.RecordBatch] = []
        self.subtask = KeyedSubtask(make_tier, segments, **how)
        states, send = self.subtask.states, self.sent.append
        self.context = cast("Any", SimpleNamespace(states=states, sender=None, inputs=(), send=send))
        if state is not None:
            node.restoreState(state)
        node.open(self.context)
        self.subtask.states.opened()

    def add(self, batch: pa.RecordBatch) -> None:
        """A batch comes."""
        self.node.onBatch(batch, self.context)

    def state(self) -> Any:
        """The state part."""
        codec = Codec(safe=True)
        return codec.decode(codec.encode(self.node.snapshotState(1, 0.0)))

    def result(self) -> list[dict[str, Any]]:
        """What is sent at the end."""
        self.node.onEnd(self.context)
        return [row for batch in self.sent for row in batch.to_pylist()]


def keys_of(segment: Segment | None) -> list[Any]:
    """The keys of the groups in a segment."""
    return [] if segment is None else [key for keys, _, _, _ in rows_of(segment, "groups") for key in keys]


@pytest.mark.parametrize(
    ("make_tier", "keys"),
    [(HeapTier, ["word"]), (HeapTier, ["word", "code"]), (LateTier, ["code"]), (LateTier, ["word", "code"])],
)
@given(rows=ROWS, data=st.data())
def test_restored_rows_are_the_groups(
    make_tier: TierMaker, keys: list[str], rows: list[dict[str, Any]], data: st.DataObject
) -> None:
    """Whatever is captured between batches, and however often all is restored, the result is that of SQL."""

    def made() -> KeyedAggregate:
        return KeyedAggregate(keys, aggregates=of("n") | of("x"))

    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    opened, segments = Opened(made(), make_tier=make_tier), ()  # type: tuple[Opened, tuple[Segment, ...]]
    for start, stop in pairwise([0, *cuts, len(rows)]):
        opened.add(pa.RecordBatch.from_pylist(rows[start:stop], KEYED))
        match data.draw(st.sampled_from(["go on", "capture", "restore"])):
            case "go on":
                continue
            case "restore":
                state = opened.state()
                assert state.num_rows == 0
                captured = opened.subtask.capture_segment()
                segments += () if captured is None else (captured,)
                opened = Opened(made(), state, segments, make_tier)
            case _:
                captured = opened.subtask.capture_segment()
                segments += () if captured is None else (captured,)
    if rows:
        assert opened.result() == approximately(expected(rows, keys, ["n", "x"]))


def test_a_capture_has_the_groups_that_changed_at_its_moment() -> None:
    """Batches behind the capture are not in its rows, which are encoded later."""
    opened = Opened(KeyedAggregate("k", aggregates=SUM))
    assert opened.subtask.capture() is None
    opened.add(pa.record_batch({"k": [1, 2], "v": [1, 2]}))
    first = opened.subtask.capture()
    opened.add(pa.record_batch({"k": [2, 3], "v": [5, 6]}))
    assert first is not None
    old, new = encoded(first), opened.subtask.capture_segment()
    assert new is not None
    assert (sorted(keys_of(old)), sorted(keys_of(new)), opened.subtask.capture()) == ([1, 2], [2, 3], None)
    for segments, sums in (([old], [1, 2]), ([old, new], [1, 7, 6])):
        again = Opened(KeyedAggregate("k", aggregates=SUM), opened.state(), segments)
        assert again.subtask.capture() is None
        assert [row["s"] for row in again.result()] == sums


def test_a_restored_sum_is_checked() -> None:
    """A sum that exceeds 64 bits is an error also right after a restore."""
    opened = Opened(KeyedAggregate("k", aggregates=SUM))
    opened.add(pa.record_batch({"k": [1], "v": [2**63 - 1]}))
    segment = opened.subtask.capture_segment()
    assert segment is not None
    again = Opened(KeyedAggregate("k", aggregates=SUM), opened.state(), [segment])
    with pytest.raises(NodeError, match="the sum of column 'v' for the key 1 does not fit 64 bits"):
        again.add(pa.record_batch({"k": [1], "v": [1]}))


def test_an_old_state_is_restored_and_changed() -> None:
    """A state with all groups becomes rows at the first capture."""
    old = pa.record_batch({"k": [1, 2], "count(v)": [1, 1], "sum(v)": [5, 6]})
    opened = Opened(KeyedAggregate("k", aggregates=SUM), old)
    opened.add(pa.record_batch({"k": [2], "v": [1]}))
    assert sorted(keys_of(opened.subtask.capture_segment())) == [1, 2]
    assert [row["s"] for row in opened.result()] == [5, 7]


def test_keys_and_totals_of_all_types_come_back() -> None:
    """Rows hold canonical keys, and the state has the types; a row holds any number of totals."""
    batch = pa.record_batch(
        {
            "b": pa.array([True, None, False]),
            "u": pa.array([2**64 - 1, 1, None], pa.uint64()),
            "f": pa.array([b"ab", b"cd", None], pa.binary(2)),
            "d": pa.array(["x", None, "y"]).dictionary_encode(),
            "i": pa.array([1, 2, 3], pa.int8()),
            "x": pa.array([0.5, None, float("nan")], pa.float32()),
        }
    )
    functions = ("count", "sum", "min", "max", "mean")
    asked = {f"{column} {function}": (column, function) for column in "ix" for function in functions}
    asked |= {f"{column} count": (column, "count") for column in "bufd"}
    for keys, totals in ((["b"], asked), (["b", "u", "f", "d"], asked), (["d"], {"n": ("d", "count")})):
        whole = Opened(KeyedAggregate(keys, aggregates=totals))
        whole.add(batch)
        segment = whole.subtask.capture_segment()
        assert segment is not None
        again = Opened(KeyedAggregate(keys, aggregates=totals), whole.state(), [segment])
        assert repr(again.result()) == repr(whole.result())
        assert again.sent[0].schema == whole.sent[0].schema


@pytest.mark.parametrize(
    ("edge_keys", "grouped_by"),
    [
        ([("k", "w")], ()),
        (["w"], ("w",)),
        ([("w",)], ("w",)),
        ([("w", "k"), ["w", "k"]], ("w", "k")),
        ([("k", "w"), "w"], ("#function",)),
        ([lambda row: row["w"]], ("#function",)),
        (["other"], ("#function",)),
        ([], ("#function",)),
    ],
)
def test_rows_are_in_the_groups_of_the_edge(edge_keys: Any, grouped_by: tuple[str, ...]) -> None:
    """The header names the edge's columns, where they are others. With a function, rows stay in the subtask."""
    # Words whose groups the first of two subtasks owns, whatever the key of the edge.
    words = [word for word in map(str, range(500)) if _is_first(edge_keys, word)]
    assert words
    opened = Opened(KeyedAggregate(["k", "w"], aggregates=SUM), edge_keys=edge_keys, parallelism=2)
    opened.add(pa.record_batch({"k": [1] * len(words), "w": words, "v": [1] * len(words)}))
    segment = opened.subtask.capture_segment()
    assert segment is not None and segment.grouped_by == grouped_by
    assert sorted(keys_of(segment)) == sorted((1, word) for word in words)
    if grouped_by not in ((), ("#function",)):
        key = edge_keys[0]
        names = {"w": words, "k": [1] * len(words)}
        of_edge = [*zip(*(names[name] for name in key), strict=True)] if isinstance(key, tuple) else words
        assert sorted(segment.rows.column("group").to_pylist()) == sorted(map(key_group, of_edge))


def _is_first(edge_keys: Any, word: str) -> bool:
    key = edge_keys[0] if len(edge_keys) == 1 or edge_keys[:1] == [("w", "k")] else None
    values = {"w": word, "k": 1}
    if isinstance(key, tuple):
        return key_group(tuple(values[name] for name in key)) < 1 << 14
    return key != "w" or key_group(word) < 1 << 14


def test_other_groups_are_refused() -> None:
    """Rows without types, rows of other totals, and a second owner of the state."""
    opened = Opened(KeyedAggregate("k", aggregates=SUM))
    opened.add(pa.record_batch({"k": [1], "v": [1]}))
    state, segment = opened.state(), opened.subtask.capture_segment()
    assert segment is not None
    with pytest.raises(RestoreRefused, match="without the types of their columns"):
        Opened(KeyedAggregate("k", aggregates=SUM), None, [segment])
    other = KeyedAggregate("k", aggregates={"n": ("v", "count")})
    with pytest.raises(RestoreRefused, match="do not hold 1 totals"):
        Opened(other, state.select(["k", "count(v)"]), [segment])
    subtask = KeyedSubtask(is_batched=True)
    subtask.value("groups")
    context: Any = SimpleNamespace(states=subtask.states)
    with pytest.raises(NodeError, match="under a name that no other state has"):
        KeyedAggregate("k", aggregates=SUM).open(context)
    with pytest.raises(NodeError, match="a node gives up its rows once"):
        opened.node.open(opened.context)
