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
from cutline.barrier_runtime.dataframes.row_file import WAITING_ROWS_MAX
from cutline.snapshot.errors import NodeError
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
    with pytest.raises(NodeError, match=r"no row of this sink.*\['n', 's'\]"):
        sink.onMessage(row, CONTEXT)
    sink.close()


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ((2**31, "x"), "column 'n' of the sink is int32"),
        ((2**70, "x"), "column 'n' of the sink is int32"),
        (("one", "x"), "column 'n' of the sink is int32"),
        ((1, 5), "column 's' of the sink is string"),
        ((None, "x"), "column 'n' holds null"),
    ],
    ids=repr,
)
def test_a_value_of_another_type_is_refused(tmp_path: Path, row: Any, said: str) -> None:
    """Before anything of its snapshot is prepared, by column."""
    sink = opened(tmp_path, "n INT NOT NULL, s STRING")
    sink.onMessage(row, CONTEXT)
    with pytest.raises(NodeError, match=said):
        sink.prepareCommit(1)
    sink.close()


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (pa.record_batch({"n": [1]}), "has the columns"),
        (pa.record_batch({"n": [1], "s": ["x"], "z": [1]}), "has the columns"),
        (pa.record_batch({"n": [2**40], "s": ["x"]}), "does not fit"),
        (pa.record_batch({"n": pa.nulls(1, pa.int32()), "s": ["x"]}), "does not fit.*null"),
    ],
    ids=["missing", "additional", "too large", "null"],
)
def test_a_batch_that_does_not_fit_is_refused(tmp_path: Path, batch: pa.RecordBatch, said: str) -> None:
    """Nothing is cut, dropped or filled in."""
    sink = opened(tmp_path, "n INT NOT NULL, s STRING")
    with pytest.raises(NodeError, match=said):
        sink.onBatch(batch, CONTEXT)
    sink.close()
