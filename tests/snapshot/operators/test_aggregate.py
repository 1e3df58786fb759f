"""The keyed aggregate: what SQL would say of the same rows, through any batches and restores."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline import GraphError, KeyedAggregate, NodeError, RestoreRefused
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.graph import Graph
from cutline.snapshot.keyed.decoding import rows_of
from cutline.snapshot.node import END, Context, End, Node, Source
from cutline.snapshot.stored.contribution import Contribution
from cutline.snapshot.subtask.events import SnapshotRequested
from cutline.snapshot.subtask.strand import RowsCaptured
from tests.snapshot.hosted import Hosted, changes_of, only, state_of
from tests.snapshot.keyed.keyed_subtask import encoded

INT_MAX, INT_MIN = 2**63 - 1, -(2**63)
FUNCTIONS = ("count", "sum", "min", "max", "mean")
KEYED = pa.schema([("word", pa.string()), ("code", pa.int16()), ("n", pa.int64()), ("x", pa.float32())])
ROWS = st.lists(
    st.fixed_dictionaries({
        "word": st.sampled_from(["a", "b", None]),
        "code": st.none() | st.integers(-2, 2),
        "n": st.none() | st.integers(-(2**50), 2**50) | st.sampled_from([2**60, -(2**60)]),
        "x": st.none() | st.integers(-100, 100).map(float),
    }),
    max_size=30,
)  # fmt: skip


class Feed(Source):
    """Sends all at once."""

    def __init__(self, *messages: Any) -> None:
        self.messages = messages

    def poll(self, context: Context) -> float | End | None:
        for message in self.messages:
            context.send(message)
        return END


class Keep(Node):
    """Keeps what comes."""

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []

    def onMessage(self, message: Any, context: Context) -> None:
        raise AssertionError("only batches are sent")

    def onBatch(self, batch: pa.RecordBatch, context: Context) -> None:
        self.batches.append(batch)


def fed(aggregate: KeyedAggregate, schema: pa.Schema, *messages: Any) -> Hosted:
    """feed -> aggregate -> keep; all that is fed is in front of the aggregate."""
    graph = Graph("g").add("feed", Feed(*messages)).add("aggregate", aggregate).add("keep", Keep())
    host = Hosted(graph.connect("feed", "aggregate", schema=schema).connect("aggregate", "keep"))
    host["feed"].run(0.0, 10)
    host.seal_and_carry("feed", "aggregate")
    return host


def results(host: Hosted) -> list[pa.RecordBatch]:
    """What the aggregate has sent when it has taken all."""
    host["aggregate"].run(0.0, 10**6)
    host.seal_and_carry("aggregate", "keep")
    host["keep"].run(0.0, 10**6)
    batches: list[pa.RecordBatch] = host.node("keep").batches
    return batches


def aggregated(aggregate: KeyedAggregate, *batches: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of the result."""
    return [row for batch in results(fed(aggregate, batches[0].schema, *batches)) for row in batch.to_pylist()]


def of(column: str) -> dict[str, tuple[str, str]]:
    """All functions of a column."""
    return {f"{column} {function}": (column, function) for function in FUNCTIONS}


def expected(rows: list[dict[str, Any]], keys: list[str], columns: list[str]) -> list[dict[str, Any]]:
    """What SQL says, in plain Python."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    order = sorted(groups, key=lambda key: [(value is None, value) for value in key])
    found = []
    for key in order:
        row = dict(zip(keys, key, strict=True))
        for column in columns:
            values = [each[column] for each in groups[key] if each[column] is not None]
            described = (
                (len(values), sum(values), min(values), max(values), sum(values) / len(values)) if values else ()
            )
            row |= dict(zip(of(column), described or (0, None, None, None, None), strict=True))
        found.append(row)
    return found


def approximately(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Means of integers are rounded once more than Python's."""
    return [
        {name: pytest.approx(v) if name.endswith("mean") and v is not None else v for name, v in r.items()}
        for r in rows
    ]


@pytest.mark.parametrize("keys", [["word"], ["code"], ["word", "code"]], ids=str)
@given(rows=ROWS, data=st.data())
def test_it_says_what_sql_says(keys: list[str], rows: list[dict[str, Any]], data: st.DataObject) -> None:
    """Nulls are a group, and are not counted; whatever the batches, and however often it is restored between them."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    node = KeyedAggregate(keys, aggregates=of("n") | of("x"))
    host = fed(KeyedAggregate("unused", aggregates={"n": ("n", "count")}), KEYED)
    context = host["aggregate"].context
    context.inputs = ()
    codec = Codec(safe=True)
    for start, stop in pairwise([0, *cuts, len(rows)]):
        node.onBatch(pa.RecordBatch.from_pylist(rows[start:stop], KEYED), context)
        if data.draw(st.booleans()):
            state = codec.encode(node.snapshotState(1, 0.0))
            node = KeyedAggregate(keys, aggregates=of("n") | of("x"))
            node.restoreState(codec.decode(state))
    node.onEnd(context)
    found = [row for batch in results(host) for row in batch.to_pylist()]
    assert found == approximately(expected(rows, keys, ["n", "x"]))


def test_messages_and_batches_come_to_the_same() -> None:
    """Messages are gathered by the edge's schema; the result comes once, at the end, with exact types."""
    rows = [{"word": "b", "code": 1, "n": 2, "x": 0.5}, {"word": "a", "code": None, "n": None, "x": 1.5}]
    batch = pa.RecordBatch.from_pylist(rows, KEYED)
    host = fed(
        KeyedAggregate("word", aggregates=of("n") | {"low": ("x", "min"), "of": ("code", "max")}), KEYED, *rows, batch
    )
    (result,) = results(host)
    assert result.to_pylist() == [
        {
            "word": "a",
            "n count": 0,
            "n sum": None,
            "n min": None,
            "n max": None,
            "n mean": None,
            "low": 1.5,
            "of": None,
        },
        {"word": "b", "n count": 2, "n sum": 4, "n min": 2, "n max": 2, "n mean": 2.0, "low": 0.5, "of": 1},
    ]
    types = ["string", "int64", "int64", "int64", "int64", "double", "float", "int16"]
    assert [str(kind) for kind in result.schema.types] == types


def test_the_state_without_rows_is_one_row_a_group_and_its_own() -> None:
    """Where `open` was not called. What the node does after the snapshot is not seen in it."""
    host = fed(KeyedAggregate("k", aggregates={"n": ("v", "sum")}), pa.schema({"k": pa.int64(), "v": pa.int64()}))
    context = host["aggregate"].context
    node = KeyedAggregate("k", aggregates={"n": ("v", "sum")})
    batch = pa.record_batch({"k": [1, 2, 1], "v": [1, None, 3]})
    assert node.snapshotState(1, 0.0) is None
    node.onBatch(batch, context)
    state = node.snapshotState(2, 0.0)
    node.onBatch(batch, context)
    assert state.to_pylist() == [{"k": 1, "count(v)": 2, "sum(v)": 4}, {"k": 2, "count(v)": 0, "sum(v)": None}]


def test_groups_that_are_no_rows_cannot_be_divided() -> None:
    """As in a subclass whose `open` does not call that of the aggregate. Each taker would have all groups."""
    aggregates = {"n": ("v", "sum")}
    batch = pa.record_batch({"k": [1, 2, 1], "v": [1, None, 3]})
    context = fed(KeyedAggregate("k", aggregates=aggregates), batch.schema)["aggregate"].context
    node = KeyedAggregate("k", aggregates=aggregates)
    node.onBatch(batch, context)
    whole, taker = node.snapshotState(1, 0.0), KeyedAggregate("k", aggregates=aggregates)
    assert taker.united_state([whole.slice(0, 0)] * 2).num_rows == 0
    for states in ([whole], [whole.slice(0, 0), whole], [7]):
        with pytest.raises(RestoreRefused, match=r"did not call KeyedAggregate\.open: go on with the parallelism"):
            taker.united_state(states)
    other = pa.RecordBatch.from_pylist([], pa.schema({"k": pa.string()}))
    with pytest.raises(RestoreRefused, match="the snapshot holds groups of"):
        taker.united_state([whole.slice(0, 0), other])


def test_a_cut_between_two_batches() -> None:
    """In a run: the state holds what was processed, the channel what was not."""
    schema = pa.schema({"k": pa.int64()})
    large = pa.record_batch({"k": np.zeros(20_000, dtype=np.int64)})
    host = fed(KeyedAggregate("k", aggregates={"n": ("k", "count")}), schema, large, large)
    host["aggregate"].run(0.0, 1)
    host["aggregate"].step(SnapshotRequested(1, (), 1), 0.0)
    host["feed"].step(SnapshotRequested(1, (), 1), 0.0)
    host.carry("feed", "aggregate")
    reports = host["aggregate"].take_reports()
    snapshot = only(reports, Contribution)
    (captured,) = changes_of(reports, RowsCaptured)
    assert state_of(snapshot).state.to_pylist() == []
    ((keys, _, totals, _),) = rows_of(encoded(captured.rows), "groups")
    assert (keys, totals) == ([0], [b"\x91\xd3" + (20_000).to_bytes(8)])
    (cut,) = snapshot.received.values()
    assert sum(frame.count for frame in cut.frames) == 20_001  # the last is the end of the stream


@pytest.mark.parametrize("sign", [1, -1])
def test_integer_sums_are_exact_up_to_the_last_one(sign: int) -> None:
    """Sums that touch the limit, or leave it and come back within a batch, are right."""
    n = pa.array([sign * 2**62, sign * (2**62 - 1), 5, -5, sign * 2**62, -sign * 2**62, 7])
    batch = pa.record_batch({"k": [1, 1, 2, 2, 1, 1, 3], "n": n})
    rows = aggregated(KeyedAggregate("k", aggregates={"s": ("n", "sum")}), batch, batch.slice(2))
    assert [row["s"] for row in rows] == [sign * (2**63 - 1), 0, 14]


def test_a_sum_beyond_64_bits_is_an_error_that_names_it() -> None:
    """Never a wrong number; also right after a restore."""
    node = KeyedAggregate(["k", "w"], aggregates={"s": ("n", "sum")})
    batch = pa.record_batch({"k": [1, 2], "w": ["a", "b"], "n": [INT_MAX, INT_MIN]})
    context = fed(node, batch.schema)["aggregate"].context
    node.onBatch(batch, context)
    again = KeyedAggregate(["k", "w"], aggregates={"s": ("n", "sum")})
    again.restoreState(node.snapshotState(1, 0.0))
    for each in (node, again):
        with pytest.raises(NodeError, match=r"the sum of column 'n' for the key \(2, 'b'\) does not fit 64 bits"):
            each.onBatch(pa.record_batch({"k": [2], "w": ["b"], "n": [-1]}), context)


def test_extremes_reach_the_limits() -> None:
    """The smallest and the greatest integers are values like others; beyond 63 bits there are no totals."""
    batch = pa.record_batch({"k": [1, 1, 2, 3], "n": [INT_MIN, INT_MAX, INT_MAX, INT_MIN]})
    node = KeyedAggregate("k", aggregates={"low": ("n", "min"), "high": ("n", "max")})
    assert [(row["low"], row["high"]) for row in aggregated(node, batch)] == [
        (INT_MIN, INT_MAX), (INT_MAX, INT_MAX), (INT_MIN, INT_MIN),
    ]  # fmt: skip
    wide = pa.record_batch({"k": [1], "n": pa.array([2**63], pa.uint64())})
    with pytest.raises(NodeError, match=r"column 'n'.*beyond 63 bits"):
        aggregated(KeyedAggregate("k", aggregates={"low": ("n", "min")}), wide)


def test_nan_is_greater_than_every_number() -> None:
    """As Spark and PostgreSQL order it."""
    batch = pa.record_batch({"k": [1, 1, 1, 2, 3], "x": [2.0, math.nan, -math.inf, math.nan, 1.0]})
    rows = aggregated(KeyedAggregate("k", aggregates={"low": ("x", "min"), "high": ("x", "max")}), batch)
    assert repr([(row["low"], row["high"]) for row in rows]) == "[(-inf, nan), (nan, nan), (1.0, 1.0)]"


def test_many_groups_leave_in_parts() -> None:
    """Sorted over the parts."""
    batch = pa.record_batch({"k": np.random.default_rng(1).permutation(100_000)})
    batches = results(fed(KeyedAggregate("k", aggregates={"n": ("k", "count")}), batch.schema, batch))
    assert [part.num_rows for part in batches] == [65_536, 34_464]
    assert [k for part in batches for k in part.column("k").to_pylist()] == list(range(100_000))


def test_text_in_dictionaries_is_text() -> None:
    """Layout makes no other group and no other schema."""
    plain = pa.record_batch({"k": ["a", "b", "a"]})
    encoded = pa.record_batch({"k": pa.array(["b", "c"]).dictionary_encode()})
    node = KeyedAggregate("k", aggregates={"n": ("k", "count")})
    host = fed(node, plain.schema, plain)
    node, context = host.node("aggregate"), host["aggregate"].context
    node.onBatch(encoded, context)
    assert [row["n"] for row in results(host)[0].to_pylist()] == [2, 2, 1]


def test_nulls_are_not_counted_wherever_they_are() -> None:
    """A null may stand in a dictionary, or in a run, where the column itself knows of none."""
    values = pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), pa.array(["a", None]))
    batch = pa.record_batch({"k": [1, 1, 1], "v": values})
    assert values.null_count == 0
    assert aggregated(KeyedAggregate("k", aggregates={"n": ("v", "count")}), batch) == [{"k": 1, "n": 2}]
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array([5, None]))
    node = KeyedAggregate("k", aggregates={"n": ("v", "count")})
    host = fed(node, pa.schema([("k", pa.int64()), ("v", runs.type)]))
    host.node("aggregate").onBatch(pa.record_batch({"k": [1, 1, 1], "v": runs}), host["aggregate"].context)
    assert results(host)[0].to_pylist() == [{"k": 1, "n": 2}]


def test_nothing_comes_of_nothing() -> None:
    """Without a row there is no group; empty batches are fine."""
    empty = pa.record_batch({"k": pa.array([], pa.string())})
    host = fed(KeyedAggregate("k", aggregates={"n": ("k", "count")}), empty.schema, empty)
    assert results(host) == []
    host.node("aggregate").onBatch(empty, host["aggregate"].context)
    assert host.node("aggregate").snapshotState(1, 0.0).num_rows == 0


def test_other_columns_are_refused_by_name() -> None:
    """A missing column, a type without such totals or keys, and a type that changes."""
    host = fed(KeyedAggregate("k", aggregates={"n": ("v", "sum")}), pa.schema({"k": pa.int64()}))
    node, context = host.node("aggregate"), host["aggregate"].context
    for batch, said in (
        (pa.record_batch({"k": [1]}), r"there is no one column 'v' in \['k'\]"),
        (pa.record_batch({"k": [1], "v": ["x"]}), "a column of string has no sum"),
        (pa.record_batch({"k": [1.5], "v": [1]}), "double cannot be a key"),
    ):
        with pytest.raises(NodeError, match=f"cannot be aggregated: {said}"):
            node.onBatch(batch, context)
    node.onBatch(pa.record_batch({"k": [1], "v": [1]}), context)
    with pytest.raises(NodeError, match=r"(?s)v: double.*makes groups of.*sum\(v\): double.*have.*sum\(v\): int64"):
        node.onBatch(pa.record_batch({"k": [1], "v": [1.5]}), context)


def test_the_state_of_other_aggregates_is_refused() -> None:
    """Both are named."""
    node = KeyedAggregate("k", aggregates={"n": ("v", "sum")})
    for state, said in ((pa.record_batch({"k": [1], "count(v)": [1]}), r"\['k', 'count\(v\)'\]"), ({"a": 1}, "dict")):
        with pytest.raises(RestoreRefused, match=rf"holds {said}, but this KeyedAggregate keeps \['k', .*'sum\(v\)'\]"):
            node.restoreState(state)


@pytest.mark.parametrize(
    ("keys", "aggregates", "said"),
    [
        ("k", {"n": ("v", "median")}, r"'n': \('v', 'median'\): write \(column, function\), of count, sum"),
        ("k", {"n": "v"}, "write"),
        ([], {"n": ("v", "sum")}, "one of each at least"),
        ("k", {}, "one of each at least"),
        (["k", "k"], {"n": ("v", "sum")}, "two have one name"),
        ("k", {"k": ("v", "sum")}, "two have one name"),
    ],
)
def test_what_cannot_be_meant_is_refused(keys: Any, aggregates: Any, said: str) -> None:
    """When the node is made, not when the first batch comes."""
    with pytest.raises(GraphError, match=said):
        KeyedAggregate(keys, aggregates=aggregates)
