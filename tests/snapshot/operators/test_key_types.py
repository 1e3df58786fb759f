"""Every type that may be a key is one in a whole run: split, grouped, restored and sorted."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from cutline import KeyedAggregate, PartialAggregate
from cutline.snapshot.coordinator.run_state import Outcome
from cutline.snapshot.graph import Graph
from cutline.testing import Failure, ListSink, ListSource, Pause, Simulator
from tests.snapshot.columns.test_group_keys import VALUES

_SUMS = {"s": ("v", "sum")}


def _key(kind: pa.DataType, number: int) -> Any:
    """One of two values of a type."""
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    if pa.types.is_boolean(value):
        return bool(number)
    if pa.types.is_integer(value):
        return number
    text = "ab"[number] * 2
    return text if value in (pa.string(), pa.large_string(), pa.string_view()) else text.encode()


@pytest.mark.parametrize("is_partial", [False, True])
@pytest.mark.parametrize("kind", VALUES, ids=str)
def test_a_key_of_each_type_is_summed(kind: pa.DataType, is_partial: bool) -> None:
    """Also with nulls, over two subtasks, and after a failure."""
    keys = [_key(kind, 1), _key(kind, 0), None, _key(kind, 1)]
    batch = pa.record_batch({"k": pa.array(keys, kind), "v": pa.array([1, 2, 3, 4])})
    graph = Graph("g").add("rows", ListSource(batch, Pause(5.0), Failure(), batch)).add("out", ListSink())
    graph.add("sum", KeyedAggregate("k", aggregates=_SUMS), parallelism=2).connect("sum", "out")
    if is_partial:
        first = PartialAggregate("k", aggregates=_SUMS)
        graph.add("first", first).connect("rows", "first", schema=batch.schema)
        graph.connect("first", "sum", key="k", schema=first.schemaOf(batch.schema))
    else:
        graph.connect("rows", "sum", key="k", schema=batch.schema)
    history = Simulator(graph, 0, snapshotInterval=1.0).run()
    assert history.outcome is Outcome.FINISHED, history.reason
    found = {row["k"]: row["s"] for row in history.output("out")}
    assert found == {_key(kind, 0): 4, _key(kind, 1): 10, None: 6}
