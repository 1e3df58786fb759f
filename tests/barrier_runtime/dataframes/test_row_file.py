"""What the Parquet sink takes as a row or a batch, and what it refuses."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from cutline.barrier_runtime.dataframes.nodes import ParquetSink
from cutline.barrier_runtime.dataframes.row_file import WAITING_BYTES_MAX, WAITING_ROWS_MAX, RowFile
from cutline.snapshot.errors import GraphError, NodeError
from cutline.snapshot.ids import Subtask
from tests.barrier_runtime.hand_context import HandContext

CONTEXT = HandContext(Subtask("out"))


def opened(path: str | Path, schema: str | pa.Schema) -> ParquetSink:
    sink = ParquetSink(str(path), schema)
    sink.open(CONTEXT)
    return sink


TYPES = pa.schema(
    [
        pa.field("n", pa.int32(), nullable=False),
        ("s", pa.string()),
        ("t", pa.timestamp("us", tz="UTC")),
        ("m", pa.decimal128(10, 2)),
        ("a", pa.list_(pa.struct([("x", pa.float64())]))),
    ]
)
ROW = (1, "é", datetime.datetime(1600, 1, 1, tzinfo=datetime.UTC), Decimal("1.20"), [{"x": 0.5}, None])
EMPTY_ROW = (2, None, None, None, None)


def test_rows_come_as_dicts_tuples_and_batches(tmp_path: Path) -> None:
    """Every form of a row becomes the same row; a batch's columns may be in another order and narrower."""
    sink = opened(f"file://{tmp_path}", TYPES)
    dicts = [dict(zip(TYPES.names, row, strict=True)) for row in (ROW, EMPTY_ROW)]
    batch = pa.RecordBatch.from_pylist(dicts, schema=TYPES)
    for row in (ROW, dicts[1]):
        sink.onMessage(row, CONTEXT)
    sink.onBatch(batch.select(["s", "n", "t", "m", "a"]), CONTEXT)
    narrow = batch.set_column(0, "n", batch["n"].cast(pa.int8()))
    sink.onBatch(narrow, CONTEXT)
    sink.commit(1, sink.prepareCommit(1))
    assert ds.dataset(str(tmp_path)).to_table().to_pylist() == dicts * 3


def test_many_rows_make_blocks(tmp_path: Path) -> None:
    """Rows beyond a block, in one file, keep their order and number."""
    sink = opened(tmp_path, "id LONG")
    for each in range(3 * WAITING_ROWS_MAX + 1):
        sink.onMessage((each,), CONTEXT)
    sink.commit(1, sink.prepareCommit(1))
    assert ds.dataset(str(tmp_path)).to_table()["id"].to_pylist() == list(range(3 * WAITING_ROWS_MAX + 1))


@pytest.mark.parametrize(
    "row",
    [{}, {"n": 1}, {"n": 1, "s": "x", "other": 2}, (1,), (1, "x", 2), "1x", ["1", "x"], 5, None],
    ids=repr,
)
def test_what_is_no_row_is_refused_at_once(tmp_path: Path, row: Any) -> None:
    """A missing column is not taken for null, an additional one is not dropped."""
    sink = opened(tmp_path, "n INT, s STRING")
    with pytest.raises(NodeError, match=r"a row of the sink: .*\['n', 's'\]"):
        sink.onMessage(row, CONTEXT)
    sink.close()


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ((2**31, "x"), "column n: 2147483648 .* range of int32"),
        ((2**70, "x"), "column n: .* range of int32"),
        (("one", "x"), "column n: 'one' .* as int32 holds"),
        ((1.5, "x"), "column n: 1.5 .* as int32 holds"),
        ((1, 5), "column s: 5 .* as string holds"),
        ((None, "x"), "column n: None .* NOT NULL"),
    ],
    ids=repr,
)
def test_a_value_of_another_type_is_refused(tmp_path: Path, row: Any, said: str) -> None:
    """At the row itself, by column, value and type. The rows around it are written."""
    sink = opened(tmp_path, "n INT NOT NULL, s STRING")
    sink.onMessage((1, "x"), CONTEXT)
    with pytest.raises(NodeError, match=said):
        sink.onMessage(row, CONTEXT)
    sink.onMessage({"s": "y", "n": 2}, CONTEXT)
    sink.commit(1, sink.prepareCommit(1))
    assert ds.dataset(str(tmp_path)).to_table().to_pylist() == [{"n": 1, "s": "x"}, {"n": 2, "s": "y"}]


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (pa.record_batch({"n": [1]}), r"lacks \['s'\]"),
        (pa.record_batch({"n": [1], "s": ["x"], "z": [1]}), r"has \['z'\]"),
        (
            pa.record_batch({"n": [1, 2**40], "s": ["x", "y"]}),
            "row 1 .* column n: 1099511627776 .* range of int32",
        ),
        (pa.record_batch({"n": pa.nulls(1, pa.int32()), "s": ["x"]}), "row 0 .* column n: null does not fit"),
        (pa.record_batch({"n": [1.0], "s": ["x"]}), "column n: a column of double does not fit int32"),
    ],
    ids=["missing", "additional", "too large", "null", "another kind"],
)
def test_a_batch_that_does_not_fit_is_refused(tmp_path: Path, batch: pa.RecordBatch, said: str) -> None:
    """Nothing is cut, dropped or filled in."""
    sink = opened(tmp_path, "n INT NOT NULL, s STRING")
    with pytest.raises(NodeError, match=said):
        sink.onBatch(batch, CONTEXT)
    sink.close()


def test_rows_wait_by_their_bytes(tmp_path: Path) -> None:
    """Large rows do not wait by the thousand. Values inside of values count too."""
    file = RowFile(str(tmp_path / "rows.parquet"), pa.schema([("b", pa.list_(pa.binary()))]))
    for number in range(100):
        file.add_row(([bytes([number]) * 200_000],))
        assert tracked_bytes(file) < WAITING_BYTES_MAX + 201_000
    file.finish()


def tracked_bytes(file: RowFile) -> int:
    return sum(len(each) for (row,) in file._rows for each in row)


def test_a_column_of_a_dictionary_takes_any_number_of_values(tmp_path: Path) -> None:
    """A dictionary of eight bits counts 128 values, and Parquet has dictionaries of its own."""
    sink = opened(tmp_path, pa.schema([("s", pa.dictionary(pa.int8(), pa.string()))]))
    texts = [str(number) for number in range(300)]
    for text in texts:
        sink.onMessage((text,), CONTEXT)
    sink.onBatch(pa.record_batch({"s": pa.array(texts).dictionary_encode()}), CONTEXT)
    sink.commit(1, sink.prepareCommit(1))
    assert ds.dataset(str(tmp_path)).to_table()["s"].to_pylist() == texts * 2


def test_nanoseconds_are_refused_at_their_row(tmp_path: Path) -> None:
    """Spark reads none. The rows around it are written."""
    kind = pa.timestamp("ns", "UTC")
    sink = opened(tmp_path, pa.schema([("t", kind), ("l", pa.list_(pa.struct([("t", kind)])))]))
    noon = datetime.datetime(2026, 1, 2, 12, tzinfo=datetime.UTC)
    sink.onMessage((noon, [{"t": noon}]), CONTEXT)
    exact = pa.scalar(1, kind).as_py()
    rows: list[Any] = [(exact, []), (noon, [{"t": noon}, {"t": exact}])]
    for row in rows:
        with pytest.raises(NodeError, match=r"column (t|l\[1\]\.t): .* is finer than the unit"):
            sink.onMessage(row, CONTEXT)
    sink.commit(1, sink.prepareCommit(1))
    assert ds.dataset(str(tmp_path)).to_table().to_pylist() == [{"t": noon, "l": [{"t": noon}]}]


def test_a_type_that_takes_no_values_is_refused_at_once(tmp_path: Path) -> None:
    """By column, before any row."""
    twice = pa.struct([("a", pa.int64()), ("a", pa.int64())])
    with pytest.raises(GraphError, match=r"column v: .* two fields have one name"):
        ParquetSink(str(tmp_path), pa.schema([("v", twice)]))
