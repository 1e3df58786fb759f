"""The Parquet sink's two phases, against a model of crashes. Readers are pyarrow's, which see what Spark sees."""

from __future__ import annotations

import datetime
import os
import resource
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barrier_runtime.dataframes import ParquetSink
from barrier_runtime.row_file import WAITING_ROWS_MAX
from snapshot.errors import GraphError, NodeError, SnapshotCorrupt
from snapshot.ids import Subtask
from snapshot.node import defines, guarantee_of
from snapshot.serialization import Codec
from tests.barrier_runtime.hand_context import HandContext
from tests.leaks import LeakCheck

SINK = Subtask("out", 0)


def opened(path: str | Path, incarnation: int = 1, subtask: Subtask = SINK, run: str = "run") -> ParquetSink:
    """A sink at the start of an incarnation, with the codec's copy of nothing: it has no state of its own."""
    sink = ParquetSink(str(path), "id LONG")
    sink.open(context(incarnation, subtask, run))
    return sink


def context(incarnation: int = 1, subtask: Subtask = SINK, run: str = "run") -> HandContext:
    return HandContext(subtask, run=run, incarnation=incarnation)


def put(sink: ParquetSink, *ids: int) -> None:
    for each in ids:
        sink.onMessage({"id": each}, context())


def rows_of(path: str | Path) -> list[int]:
    found = ds.dataset(str(path), format="parquet").to_table()["id"].to_pylist()
    return sorted(found)


def staged_files(path: Path) -> list[str]:
    return sorted(str(each.relative_to(path)) for each in (path / "_staging").rglob("*.parquet"))


class Life:
    """One subtask under a framework that keeps PROTOCOL 8: what is prepared is kept in the snapshot, and committed
    in order once that or a later snapshot is published."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.incarnation = 0
        self.next_row = 0
        self.next_snapshot = 0
        #: instances of earlier incarnations, which do not know that they are declared dead
        self.zombies: list[ParquetSink] = []
        #: what the newest published snapshot holds: rows that it covers, and what was prepared and not committed
        self.covered = 0
        self.stored = Codec().encode({})
        self.restore()

    def restore(self) -> None:
        self.incarnation += 1
        self.sink = opened(self.path, self.incarnation)
        self.zombies.append(self.sink)
        self.pending: dict[int, Any] = Codec().decode(self.stored)
        self.commit(len(self.pending))
        self.sink.discardUncommitted(context(self.incarnation))
        self.next_row = self.covered

    def receive(self, count: int) -> None:
        put(self.sink, *range(self.next_row, self.next_row + count))
        self.next_row += count

    def take_snapshot(self, *, published: bool) -> None:
        self.next_snapshot += 1
        prepared = self.sink.prepareCommit(self.next_snapshot)
        assert self.sink.snapshotState(self.next_snapshot, 0.0) is None
        if prepared is not None:
            self.pending[self.next_snapshot] = prepared
        if published:
            self.covered, self.stored = self.next_row, Codec(safe=True).encode(self.pending)

    def commit(self, count: int) -> None:
        """Commit the first `count` of what may be committed: a crash may come in between."""
        published: dict[int, Any] = Codec().decode(self.stored)
        for snapshot_id in sorted(self.pending)[:count]:
            if snapshot_id in published:
                self.sink.commit(snapshot_id, self.pending.pop(snapshot_id))


steps = st.lists(
    st.one_of(
        st.tuples(st.just("receive"), st.integers(1, 4)),
        st.tuples(st.just("aborted"), st.just(0)),
        st.tuples(st.just("published"), st.just(0)),
        st.tuples(st.just("commit"), st.integers(0, 3)),
        st.tuples(st.just("crash"), st.just(0)),
        st.tuples(st.just("close"), st.just(0)),
    ),
    max_size=20,
)


@given(steps=steps)
def test_committed_rows_are_exactly_once(steps: list[tuple[str, int]]) -> None:
    """However preparing, publishing, committing and crashing alternate, no row is lost, doubled or shown too early."""
    with tempfile.TemporaryDirectory() as path:
        life = Life(path)
        for step, count in steps:
            match step:
                case "receive":
                    life.receive(count)
                case "aborted" | "published":
                    life.take_snapshot(published=step == "published")
                case "commit":
                    life.commit(count)
                case "crash":
                    life.restore()
                case "close":
                    life.sink.close()
                    life.restore()
            visible = rows_of(path)
            assert visible == list(range(len(visible))), "a row is doubled, or missing before a later one"
            assert len(visible) <= life.covered, "a row is visible whose snapshot is not published"
        life.receive(1)
        life.take_snapshot(published=True)
        life.restore()
        for zombie in life.zombies:
            zombie.close()
        assert rows_of(path) == list(range(life.covered))
        assert staged_files(Path(path)) == []


def test_nothing_is_visible_before_commit(tmp_path: Path) -> None:
    """Staged rows cannot be read; committed ones can; the schema is there from the start."""
    sink = opened(tmp_path)
    assert ds.dataset(str(tmp_path), format="parquet").schema.names == ["id"]
    put(sink, 1, 2)
    prepared = sink.prepareCommit(7)
    assert rows_of(tmp_path) == []
    sink.commit(7, prepared)
    assert rows_of(tmp_path) == [1, 2]


def test_nothing_received_is_nothing_to_commit(tmp_path: Path) -> None:
    """A snapshot without new rows makes no file."""
    sink = opened(tmp_path)
    assert sink.prepareCommit(1) is None
    put(sink, 1)
    assert sink.prepareCommit(2) is not None
    assert sink.prepareCommit(3) is None


def test_commit_can_be_repeated_by_others(tmp_path: Path) -> None:
    """The same commit by the same, a later and even an earlier instance changes nothing."""
    first = opened(tmp_path, 1)
    put(first, 1, 2)
    prepared = first.prepareCommit(7)
    for sink in (opened(tmp_path, 2), first, opened(tmp_path, 3, Subtask("out", 5), run="fork")):
        sink.commit(7, prepared)
        assert rows_of(tmp_path) == [1, 2]


def test_same_ids_of_other_runs_do_not_collide(tmp_path: Path) -> None:
    """Two runs, two nodes, or a run whose snapshots were deleted, may write below one path."""
    for row, (run, node) in enumerate([("a", "out"), ("b", "out"), ("a", "more"), ("a", "out")]):
        sink = opened(tmp_path, 1, Subtask(node), run)
        put(sink, row)
        sink.commit(7, sink.prepareCommit(7))
    assert rows_of(tmp_path) == [0, 1, 2, 3]


def test_discard_takes_only_what_lower_incarnations_of_this_subtask_left(tmp_path: Path) -> None:
    """Others', this incarnation's and higher ones' staged files stay."""
    owners = [(SINK, "run"), (Subtask("out", 1), "run"), (Subtask("more"), "run"), (SINK, "other")]
    for incarnation in (1, 2, 3):
        for subtask, run in owners:
            sink = opened(tmp_path, incarnation, subtask, run)
            put(sink, 1)
            sink.prepareCommit(1)
    before = staged_files(tmp_path)
    opened(tmp_path, 2).discardUncommitted(context(2))
    gone = set(before) - set(staged_files(tmp_path))
    assert len(before) == 12
    assert [name.rpartition("-")[0] for name in gone] == ["_staging/run/out/0/00000001"]


def test_lost_output_is_an_error(tmp_path: Path) -> None:
    """A file that is neither staged nor published is named."""
    sink = opened(tmp_path)
    put(sink, 1)
    prepared = sink.prepareCommit(7)
    os.unlink(tmp_path / staged_files(tmp_path)[0])
    with pytest.raises(SnapshotCorrupt, match=r"part-00000-.* with 1 committed rows is missing"):
        sink.commit(7, prepared)


def test_torn_output_is_never_published(tmp_path: Path) -> None:
    """A staged file of another size is found before it can be seen."""
    sink = opened(tmp_path)
    put(sink, 1)
    prepared = sink.prepareCommit(7)
    os.truncate(tmp_path / staged_files(tmp_path)[0], 10)
    with pytest.raises(SnapshotCorrupt, match="has 10 bytes instead of"):
        sink.commit(7, prepared)
    assert rows_of(tmp_path) == []


def test_close_leaves_nothing(tmp_path: Path) -> None:
    """Rows that were not prepared, their file and its descriptor are gone; closing twice, or unopened, is fine."""
    check = LeakCheck()
    sink = opened(tmp_path)
    put(sink, *range(2 * WAITING_ROWS_MAX))
    sink.close()
    sink.close()
    ParquetSink(str(tmp_path), "id LONG").close()
    del sink
    assert check.wait() == []
    assert staged_files(tmp_path) == []


def test_a_full_disk_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    """Here the file hits its size limit. Nothing is prepared, and closing removes what was written."""
    check = LeakCheck()
    sink = opened(tmp_path)
    put(sink, *range(100_000))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(OSError, match="too large"):
            sink.prepareCommit(1)
        with pytest.raises(OSError, match="too large"):
            sink.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    del sink
    assert check.wait() == []
    assert staged_files(tmp_path) == []
    assert rows_of(tmp_path) == []


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
    sink = ParquetSink(f"file://{tmp_path}", TYPES)
    sink.open(context())
    dicts = [dict(zip(TYPES.names, row, strict=True)) for row in (ROW, EMPTY_ROW)]
    batch = pa.RecordBatch.from_pylist(dicts, schema=TYPES)
    for row in (ROW, dicts[1]):
        sink.onMessage(row, context())
    sink.onBatch(batch.select(["s", "n", "t", "m", "a"]), context())
    narrow = batch.set_column(0, "n", batch["n"].cast(pa.int8()))
    sink.onBatch(narrow, context())
    sink.commit(1, sink.prepareCommit(1))
    assert ds.dataset(str(tmp_path)).to_table().to_pylist() == dicts * 3


def test_many_rows_make_blocks(tmp_path: Path) -> None:
    """Rows beyond a block, in one file, keep their order and number."""
    sink = opened(tmp_path)
    put(sink, *range(3 * WAITING_ROWS_MAX + 1))
    sink.commit(1, sink.prepareCommit(1))
    assert rows_of(tmp_path) == list(range(3 * WAITING_ROWS_MAX + 1))


@pytest.mark.parametrize(
    "row",
    [{}, {"n": 1}, {"n": 1, "s": "x", "other": 2}, (1,), (1, "x", 2), "1x", ["1", "x"], 5, None],
    ids=repr,
)
def test_what_is_no_row_is_refused_at_once(tmp_path: Path, row: Any) -> None:
    """A missing column is not taken for null, an additional one is not dropped."""
    sink = ParquetSink(str(tmp_path), "n INT, s STRING")
    sink.open(context())
    with pytest.raises(NodeError, match=r"no row of this sink.*\['n', 's'\]"):
        sink.onMessage(row, context())


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
    sink = ParquetSink(str(tmp_path), "n INT NOT NULL, s STRING")
    sink.open(context())
    sink.onMessage(row, context())
    with pytest.raises(NodeError, match=said):
        sink.prepareCommit(1)
    sink.close()


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        (pa.record_batch({"n": [1]}), "has the columns"),
        (pa.record_batch({"n": [1], "s": ["x"], "z": [1]}), "has the columns"),
        (pa.record_batch({"n": [2**40], "s": ["x"]}), "does not fit"),
        (pa.record_batch({"n": pa.nulls(1, pa.int32()), "s": ["x"]}), "(null|NULL)"),
    ],
    ids=["missing", "additional", "too large", "null"],
)
def test_a_batch_that_does_not_fit_is_refused(tmp_path: Path, batch: pa.RecordBatch, said: str) -> None:
    """Nothing is cut, dropped or filled in."""
    sink = ParquetSink(str(tmp_path), "n INT NOT NULL, s STRING")
    sink.open(context())
    with pytest.raises(NodeError, match=said):
        sink.onBatch(batch, context())
    sink.close()


@pytest.mark.parametrize(
    ("path", "schema"),
    [
        ("relative", "id LONG"),
        ("s3://bucket/out", "id LONG"),
        ("/out", "id LONGER"),
        ("/out", pa.schema([("u", pa.dense_union([pa.field("x", pa.int8())]))])),
        ("/out", pa.schema([("d", pa.duration("us"))])),
        ("/out", pa.schema([("a", pa.int8()), ("A", pa.int8())])),
    ],
    ids=["relative", "store", "type", "union", "duration", "letters"],
)
def test_what_cannot_be_written_is_refused_in_the_driver(path: str, schema: Any) -> None:
    """Paths that are no shared folder, and schemas that Spark or Parquet cannot hold."""
    with pytest.raises(GraphError, match="ParquetSink"):
        ParquetSink(path, schema)


def test_it_says_what_it_is() -> None:
    """Two phases, exactly once, and the pair of state hooks that the graph's validation asks for."""
    sink = ParquetSink("/out", "id LONG")
    assert guarantee_of(sink) == "exactly_once"
    assert all(
        defines(sink, hook)
        for hook in ("prepareCommit", "commit", "discardUncommitted", "snapshotState", "restoreState")
    )
