"""The partial aggregate: with a `KeyedAggregate` behind it, what that one would say of the rows alone."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline import GraphError, KeyedAggregate, NodeError, PartialAggregate, RestoreRefused
from cutline.snapshot.channel.channel_sender import ChannelSender
from cutline.snapshot.channel.frame import Frame
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.graph import Graph
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.operators.aggregate import _encode_unsent
from cutline.snapshot.operators.groups import TOTALS
from cutline.snapshot.subtask.acts import Status
from cutline.snapshot.subtask.events import SnapshotRequested, Started
from cutline.snapshot.subtask.restored import Restored, RestoredChannels
from tests.snapshot.hosted import Hosted, state_of, taken, values
from tests.snapshot.operators.test_aggregate import (
    INT_MAX,
    KEYED,
    ROWS,
    Feed,
    Keep,
    approximately,
    expected,
    of,
    results,
)

FORTH = ChannelId(Subtask("partial"), Subtask("aggregate"))
NUMBERS = pa.schema({"k": pa.int64(), "v": pa.int64()})
COUNT_AND_SUM = {"n": ("v", "count"), "s": ("v", "sum")}


def chained(partial: PartialAggregate, total: KeyedAggregate, schema: pa.Schema) -> Hosted:
    """feed -> partial -> aggregate -> keep; nothing was fed yet, and when `feed` runs it ends."""
    graph = Graph("g").add("feed", Feed()).add("partial", partial).add("aggregate", total).add("keep", Keep())
    graph.connect("feed", "partial", schema=schema).connect("aggregate", "keep")
    return Hosted(graph.connect("partial", "aggregate", schema=partial.schemaOf(schema)))


def numbers(*rows: tuple[int, int | None]) -> pa.RecordBatch:
    """A batch of keys and values."""
    return pa.record_batch([pa.array([r[0] for r in rows]), pa.array([r[1] for r in rows], pa.int64())], schema=NUMBERS)


def sent(host: Hosted, now: float) -> list[dict[str, Any]]:
    """What the partial aggregate sends in a turn at `now`, which the other one takes."""
    host["partial"].run(now, 10**6)
    frames = tuple(item for item in host.seal_and_carry("partial", "aggregate") if isinstance(item, Frame))
    host["aggregate"].run(now, 10**6)
    return values(frames)


@pytest.mark.parametrize("keys", [["word"], ["word", "code"]], ids=str)
@given(rows=ROWS, rows_max=st.integers(1, 12), data=st.data())
def test_in_two_steps_it_says_what_sql_says(
    keys: list[str], rows: list[dict[str, Any]], rows_max: int, data: st.DataObject
) -> None:
    """Whenever groups are sent, by rows or by time, and however often it is restored between two batches."""
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=4)))

    def made() -> PartialAggregate:
        return PartialAggregate(keys, aggregates=of("n") | of("x"), rows=rows_max)

    node = made()
    host = chained(node, KeyedAggregate(keys, aggregates=of("n") | of("x")), KEYED)
    context, codec = host["partial"].context, Codec(safe=True)
    for start, stop in pairwise([0, *cuts, len(rows)]):
        if stop > start:
            node.onBatch(pa.RecordBatch.from_pylist(rows[start:stop], KEYED), context)
        match data.draw(st.sampled_from(["go on", "restore", "timer"])):
            case "restore":
                state = codec.encode(node.snapshotState(1, 0.0))
                node = made()
                node.restoreState(codec.decode(state))
            case "timer":
                node.onTimer(context.now, context)
    context.inputs = ()
    node.onEnd(context)
    host["aggregate"].context.inputs = ()
    host.seal_and_carry("partial", "aggregate")
    host["aggregate"].run(0.0, 10**6)
    host.node("aggregate").onEnd(host["aggregate"].context)
    found = [row for batch in results(host) for row in batch.to_pylist()]
    assert found == approximately(expected(rows, keys, ["n", "x"]))


def test_groups_are_sent_after_so_many_rows_or_seconds_or_at_the_end() -> None:
    """Only those that changed; and no timer keeps the run from ending."""
    partial = PartialAggregate("k", aggregates=COUNT_AND_SUM, rows=4, seconds=2.0)
    host = chained(partial, KeyedAggregate("k", aggregates=COUNT_AND_SUM), NUMBERS)
    node, context = host.node("partial"), host["partial"].context
    node.onBatch(numbers((1, 10), (2, 20), (3, None)), context)
    assert sent(host, 1.9) == []
    assert sent(host, 2.0) == [
        {"k": 1, "count(v)": 1, "sum(v)": 10},
        {"k": 2, "count(v)": 1, "sum(v)": 20},
        {"k": 3, "count(v)": 0, "sum(v)": None},
    ]
    node.onBatch(numbers((2, 1), (2, 1), (3, None)), context)
    assert sent(host, 3.0) == []
    node.onBatch(numbers((4, 1)), context)
    assert sent(host, 3.0) == [{"k": 2, "count(v)": 2, "sum(v)": 2}, {"k": 4, "count(v)": 1, "sum(v)": 1}]
    node.onBatch(numbers((1, 5)), context)
    host["feed"].run(3.0, 1)
    host.seal_and_carry("feed", "partial")
    assert sent(host, 3.1) == [{"k": 1, "count(v)": 1, "sum(v)": 5}]
    assert (host["partial"].status, host["aggregate"].status) == (Status.ENDED, Status.ENDED)
    (result,) = results(host)
    assert [tuple(row.values()) for row in result.to_pylist()] == [(1, 2, 15), (2, 3, 22), (3, 0, None), (4, 1, 1)]


def test_groups_wait_for_a_second_by_default() -> None:
    """The timer of a first row is due then, as the docstring promises."""
    host = chained(
        PartialAggregate("k", aggregates=COUNT_AND_SUM), KeyedAggregate("k", aggregates=COUNT_AND_SUM), NUMBERS
    )
    host.node("partial").onBatch(numbers((1, 10)), host["partial"].context)
    assert sent(host, 0.9) == []
    assert sent(host, 1.0) == [{"k": 1, "count(v)": 1, "sum(v)": 10}]


def groups_of(node: KeyedAggregate) -> list[dict[str, Any]]:
    """The groups that a node keeps."""
    assert node._groups is not None
    return node._groups.state().to_pylist()  # type: ignore[no-any-return]


def test_rows_and_totals_may_come_together() -> None:
    """A `KeyedAggregate` takes both, and knows totals by what their schema says of them."""
    batch = numbers((1, 10), (2, None))
    columns = {"k": [2, 1], "count(v)": [3, 0], "sum(v)": pa.array([7, None], pa.int64())}
    totals = pa.record_batch(columns, metadata=TOTALS)
    host = chained(
        PartialAggregate("k", aggregates=COUNT_AND_SUM), KeyedAggregate("k", aggregates=COUNT_AND_SUM), NUMBERS
    )
    node, context = host.node("aggregate"), host["aggregate"].context
    for each in (totals, batch, totals):
        node.onBatch(each, context)
    assert groups_of(node) == [
        {"k": 1, "count(v)": 1, "sum(v)": 10},
        {"k": 2, "count(v)": 6, "sum(v)": 14},
    ]
    with pytest.raises(NodeError, match=r"cannot be aggregated: there is no one column 'v' in \['k', 'count\(v\)'"):
        node.onBatch(totals.replace_schema_metadata(None), context)  # rows, in spite of the same columns
    with pytest.raises(NodeError, match=r"'count\(v\)' is a column of string, which are no counts"):
        node.onBatch(pa.record_batch({"k": [1], "count(v)": ["x"], "sum(v)": [1]}, metadata=TOTALS), context)
    with pytest.raises(NodeError, match=r"they are totals \['k', 'count\(w\)'\], where \['k', 'count\(v\)', 'sum"):
        node.onBatch(pa.record_batch({"k": [1], "count(w)": [1]}, metadata=TOTALS), context)
    with pytest.raises(NodeError, match="sum of column 'v' for the key 2 does not fit 64 bits"):
        node.onBatch(pa.record_batch({"k": [2], "count(v)": [1], "sum(v)": [INT_MAX]}, metadata=TOTALS), context)


def test_rows_may_have_the_names_of_totals() -> None:
    """A key that is counted, and a column with the name that SQL gives its count."""
    node = KeyedAggregate("k", aggregates={"n": ("k", "count")})
    host = chained(PartialAggregate("k", aggregates=COUNT_AND_SUM), node, NUMBERS)
    node = host.node("aggregate")
    node.onBatch(pa.record_batch({"k": [1, 1, 2], "count(k)": [10, 20, 30]}), host["aggregate"].context)
    assert groups_of(node) == [{"k": 1, "count(k)": 2}, {"k": 2, "count(k)": 1}]


def test_what_was_not_sent_is_in_the_snapshot_with_its_timer() -> None:
    """A restored subtask sends the groups that changed when they were due, once; those that were sent it forgets."""
    partial = PartialAggregate("k", aggregates=COUNT_AND_SUM, rows=3, seconds=2.0)
    host = chained(partial, KeyedAggregate("k", aggregates=COUNT_AND_SUM), NUMBERS)
    node, context = host.node("partial"), host["partial"].context
    node.onBatch(numbers((1, 1), (2, 1), (3, 1)), context)
    assert len(sent(host, 0.0)) == 3
    node.onBatch(numbers((2, 5)), context)
    host["partial"].step(SnapshotRequested(1, (), 1), 0.0)
    host["feed"].step(SnapshotRequested(1, (), 1), 0.0)
    host.carry("feed", "partial")
    (snapshot,) = taken(host["partial"])
    ((partition, part),) = state_of(snapshot).state
    assert partition == context.keyGroups.start
    assert pa.ipc.open_stream(part).read_all().to_pylist() == [{"k": 2, "count(v)": 1, "sum(v)": 5}]
    assert sent(host, 2.0) == [{"k": 2, "count(v)": 1, "sum(v)": 5}]
    restored = RestoredChannels(sent={FORTH: snapshot.sent[FORTH].sent})
    host.machines[Subtask("partial")] = host.machine(Subtask("partial"), restored)
    host["partial"].restore(Restored(b"".join(snapshot.state)), 1.0)
    host["partial"].step(Started(), 1.0)
    (end,) = host["partial"].outputs.values()
    assert [_sent_by(host, end, now) for now in (1.9, 2.0, 9.0)] == [[], [{"k": 2, "count(v)": 1, "sum(v)": 5}], []]


def unsent(groups: pa.RecordBatch) -> list[tuple[int, bytes]]:
    """A state of one row that is not sent."""
    return [(0, _encode_unsent(groups, 1, 0.0))]


def test_the_states_of_several_subtasks_are_united() -> None:
    """A subtask sends what several have not sent, at the earliest of their times."""
    parts: list[Any] = []
    for seconds, rows in ((9.0, [(1, 1), (2, 1)]), (5.0, [(2, 5)]), (7.0, [])):
        host = chained(PartialAggregate("k", aggregates=COUNT_AND_SUM, seconds=seconds), _total(), NUMBERS)
        if rows:
            host.node("partial").onBatch(numbers(*rows), host["partial"].context)
        parts += host.node("partial").snapshotState(1, 0.0)
    assert len(parts) == 2
    host = chained(PartialAggregate("k", aggregates=COUNT_AND_SUM), _total(), NUMBERS)
    node = host.node("partial")
    node.restoreState(parts)
    assert (node._rows, node._due_at) == (3, 5.0)
    node.onTimer(5.0, host["partial"].context)
    assert sent(host, 5.0) == [{"k": 1, "count(v)": 1, "sum(v)": 1}, {"k": 2, "count(v)": 2, "sum(v)": 6}]
    other = PartialAggregate("k", aggregates=COUNT_AND_SUM)
    other.restoreState(parts)
    with pytest.raises(RestoreRefused, match="the snapshot holds groups of"):
        other.restoreState(unsent(pa.record_batch({"k": ["x"], "count(v)": [1], "sum(v)": [1]})))


def _total() -> KeyedAggregate:
    return KeyedAggregate("k", aggregates=COUNT_AND_SUM)


def _sent_by(host: Hosted, end: ChannelSender, now: float) -> list[dict[str, Any]]:
    host["partial"].run(now, 10**6)
    end.seal()
    return values(tuple(item for item in iter(end.buffer.take, None) if isinstance(item, Frame)))


def test_a_great_many_groups_are_forgotten_when_they_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what a partial aggregate keeps would grow with all keys there ever were."""
    monkeypatch.setattr("cutline.snapshot.operators.aggregate._KNOWN_GROUPS_MAX", 100)
    partial = PartialAggregate("k", aggregates=COUNT_AND_SUM, rows=1)
    host = chained(partial, KeyedAggregate("k", aggregates=COUNT_AND_SUM), NUMBERS)
    node, context = host.node("partial"), host["partial"].context
    for count in (100, 101, 50):
        node.onBatch(pa.record_batch({"k": np.arange(count), "v": np.ones(count, np.int64)}), context)
        assert len(sent(host, 0.0)) == count
        assert (node._groups is None) == (count == 101)
    assert [row["sum(v)"] for row in groups_of(host.node("aggregate"))] == [3] * 50 + [2] * 50 + [1]


def test_what_cannot_be_meant_is_refused() -> None:
    """When it is made or asked, and by the restored one: both are named."""
    for wrong in ({"rows": 0}, {"seconds": 0.0}, {"seconds": float("nan")}):
        with pytest.raises(GraphError, match="at least 1 row, more than 0 seconds"):
            PartialAggregate("k", aggregates=COUNT_AND_SUM, **wrong)
    with pytest.raises(GraphError, match="PartialAggregate: keys"):
        PartialAggregate([], aggregates=COUNT_AND_SUM)
    partial = PartialAggregate("k", aggregates=COUNT_AND_SUM)
    assert partial.schemaOf("k long, v int").names == ["k", "count(v)", "sum(v)"]
    with pytest.raises(GraphError, match="PartialAggregate: there is no one column 'v'"):
        partial.schemaOf("k long")
    with pytest.raises(RestoreRefused, match="but this PartialAggregate keeps"):
        partial.restoreState(unsent(pa.record_batch({"k": [1]})))
    for state in (None, (None, 0, 0.0), pa.record_batch({"k": [1], "count(v)": [1], "sum(v)": [1]})):
        with pytest.raises(RestoreRefused, match="which no PartialAggregate keeps"):
            partial.restoreState(state)
