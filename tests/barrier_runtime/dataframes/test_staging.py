"""The Parquet sink's two phases, against a model of crashes. Readers are pyarrow's, which see what Spark sees."""

from __future__ import annotations

import os
import resource
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline.barrier_runtime.dataframes.nodes import ParquetSink
from cutline.barrier_runtime.dataframes.row_file import WAITING_ROWS_MAX
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.errors import GraphError, SnapshotCorrupt
from cutline.snapshot.ids import Subtask
from cutline.snapshot.node import defines, guarantee_of
from tests.barrier_runtime.hand_context import HandContext
from tests.leaks import LeakCheck

SINK = Subtask("out", 0)


def opened(path: str | Path, incarnation: int = 1, subtask: Subtask = SINK, run: str = "run") -> ParquetSink:
    """A sink at the start of an incarnation, with the codec's copy of nothing: it has no state of its own."""
    sink = ParquetSink(str(path), "id LONG")
    sink.open(context(incarnation, subtask, run))
    return sink


def context(incarnation: int = 1, subtask: Subtask = SINK, run: str = "run", parallelism: int = 1) -> HandContext:
    return HandContext(subtask, run=run, incarnation=incarnation, parallelism=parallelism)


def put(sink: ParquetSink, *ids: int) -> None:
    for each in ids:
        sink.onMessage({"id": each}, context())


def rows_of(path: str | Path) -> list[int]:
    found = ds.dataset(str(path), format="parquet").to_table()["id"].to_pylist()
    return sorted(found)


def staged_files(path: Path) -> list[str]:
    return sorted(str(each.relative_to(path)) for each in (path / "_staging").rglob("*.parquet"))


class SinkInstance:
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
        instance = SinkInstance(path)
        for step, count in steps:
            match step:
                case "receive":
                    instance.receive(count)
                case "aborted" | "published":
                    instance.take_snapshot(published=step == "published")
                case "commit":
                    instance.commit(count)
                case "crash":
                    instance.restore()
                case "close":
                    instance.sink.close()
                    instance.restore()
            visible = rows_of(path)
            assert visible == list(range(len(visible))), "a row is doubled, or missing before a later one"
            assert len(visible) <= instance.covered, "a row is visible whose snapshot is not published"
        instance.receive(1)
        instance.take_snapshot(published=True)
        instance.restore()
        for zombie in instance.zombies:
            zombie.close()
        assert rows_of(path) == list(range(instance.covered))
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
    opened(tmp_path, 2).discardUncommitted(context(2, parallelism=2))
    gone = set(before) - set(staged_files(tmp_path))
    assert len(before) == 12
    assert [name.rpartition("-")[0] for name in gone] == ["_staging/run/out/0/00000001"]


@pytest.mark.parametrize("parallelism", [1, 2, 3, 4, 7])
def test_discard_covers_the_subtasks_that_are_gone(tmp_path: Path, parallelism: int) -> None:
    """After a restore with another parallelism, each file of the old subtasks is removed by exactly one new subtask."""
    for index in range(5):
        sink = opened(tmp_path, 1, Subtask("out", index))
        put(sink, index)
        sink.prepareCommit(1)
    (tmp_path / "_staging/run/out/strange").mkdir()
    left = staged_files(tmp_path)
    for index in range(parallelism):
        opened(tmp_path, 2, Subtask("out", index)).discardUncommitted(
            context(2, Subtask("out", index), parallelism=parallelism)
        )
        left = [name for name in left if int(name.split("/")[3]) % parallelism != index]
        assert staged_files(tmp_path) == left
    assert left == []


@pytest.mark.parametrize("is_moved", [False, True])
def test_an_heir_commits_the_output_of_a_subtask_that_is_gone(tmp_path: Path, is_moved: bool) -> None:
    """The record of what an old subtask prepared is published by any other one, also when the output was moved."""
    path, prepared = tmp_path / "output", []
    for index in range(3):
        sink = opened(path, 1, Subtask("out", index))
        put(sink, index)
        prepared.append(Codec(safe=True).encode(sink.prepareCommit(7)))
    if is_moved:
        path = path.rename(tmp_path / "moved")
    heir = opened(path, 2)
    for record in prepared:
        heir.commit(7, Codec(safe=True).decode(record))
    heir.discardUncommitted(context(2))
    assert rows_of(path) == [0, 1, 2]
    assert staged_files(path) == []


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
