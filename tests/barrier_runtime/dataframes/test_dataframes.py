"""DataFrames in and out, with a real Spark at both ends and the hooks called by hand in between."""

from __future__ import annotations

import datetime
import os
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline import Graph
from cutline.barrier_runtime.dataframes.input_log import find_log, place_of
from cutline.barrier_runtime.dataframes.nodes import DataFrameSource, ParquetSink
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.coordinator.partition_assignment import assign_afresh
from cutline.snapshot.errors import GraphError, RestoreRefused, SnapshotCorrupt
from cutline.snapshot.ids import Subtask
from cutline.snapshot.node import END, guarantee_of
from tests.barrier_runtime.hand_context import HandContext

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

ROWS = 50_000


class Worker:
    """One subtask of a source, from what the driver ships; perhaps restored."""

    def __init__(
        self, shipped: bytes, index: int = 0, parallelism: int = 1, state: Any = None, run: str = "run"
    ) -> None:
        self.source: DataFrameSource = cloudpickle.loads(shipped)
        self.context = HandContext(Subtask("rows", index), run=run, parallelism=parallelism)
        self.context.partitions = assign_afresh(self.source.partitions(), parallelism)[index]
        if state is not None:
            self.source.restoreState(Codec(safe=True).decode(state))
        self.source.open(self.context)

    def poll(self, times: int | None = None) -> list[dict[str, Any]]:
        """The rows of so many polls, or of all until the end."""
        self.context.sent.clear()
        while times is None or times > 0:
            if self.source.poll(self.context) is END:
                break
            times = None if times is None else times - 1
        return [row for batch in self.context.sent for row in batch.to_pylist()]

    def state(self) -> bytes:
        """As it goes into a snapshot."""
        return Codec(safe=True).encode(self.source.snapshotState(1, 0.0))


def ship(df: DataFrame, root: Path | None, run: str = "run", origin: str | None = None, **options: Any) -> bytes:
    """What a submit does: complete the log, then pickle."""
    source = DataFrameSource(df, **options)
    source.prepare(None if root is None else str(root), run, "rows", origin)
    shipped: bytes = cloudpickle.dumps(source)
    return shipped


@pytest.fixture(scope="module")
def shipped(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A source over `ROWS` ids in three files, more than one batch each."""
    return ship(spark.range(0, ROWS, numPartitions=3), tmp_path_factory.mktemp("root"))


@pytest.mark.parametrize("parallelism", [1, 2, 5])
def test_the_shares_are_all_rows_once(shipped: bytes, parallelism: int) -> None:
    """Each row goes to one subtask; with more subtasks than row groups some have none."""
    shares = [Worker(shipped, index, parallelism).poll() for index in range(parallelism)]
    assert Counter(row["id"] for share in shares for row in share) == Counter(range(ROWS))
    assert sum(1 for share in shares if share) == min(parallelism, 3)


@given(crashes=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=4), index=st.integers(0, 1))
def test_replay_is_exact_after_any_crash(shipped: bytes, crashes: list[tuple[int, int]], index: int) -> None:
    """Rows before a snapshot and rows after its restore are together the share; what came between is forgotten."""
    worker = Worker(shipped, index, 2)
    kept: list[dict[str, Any]] = []
    for polls_before_snapshot, polls_lost in crashes:
        kept += worker.poll(polls_before_snapshot)
        state = worker.state()
        worker.poll(polls_lost)
        worker = Worker(shipped, index, 2, state)
    kept += worker.poll()
    assert kept == Worker(shipped, index, 2).poll()
    assert Worker(shipped, index, 2, worker.state()).poll() == []


def test_the_log_is_written_once(spark: SparkSession, tmp_path: Path) -> None:
    """A later submit reads neither the DataFrame nor what it came from, however random, and sends the same rows."""
    spark.range(1000).write.parquet(f"{tmp_path}/origin")
    df = spark.read.parquet(f"{tmp_path}/origin").selectExpr("id", "rand() AS chance")
    first = Worker(ship(df, tmp_path / "root")).poll()
    shutil.rmtree(tmp_path / "origin")
    assert Worker(ship(df, tmp_path / "root")).poll() == first
    assert len(first) == 1000


def test_a_half_written_log_is_not_used(spark: SparkSession, tmp_path: Path) -> None:
    """Without a manifest there is no log: files of a driver that died are neither read nor kept."""
    place = place_of(str(tmp_path), "run", "rows")
    spark.range(5, 9).write.parquet(f"{place}/abandoned")
    assert find_log(place) is None
    assert sorted(row["id"] for row in Worker(ship(spark.range(3), tmp_path)).poll()) == [0, 1, 2]
    log = find_log(place)
    assert log is not None
    assert sorted(os.listdir(str(place))) == sorted([log.name, "manifest"])


def test_drivers_that_write_at_one_time_get_one_log(spark: SparkSession, tmp_path: Path) -> None:
    """The first to complete wins, and the others read its rows, also when it removed what they were writing."""
    frames = [spark.range(start, start + 1000) for start in (0, 1000, 2000)]
    with ThreadPoolExecutor(len(frames)) as drivers:
        shipments = list(drivers.map(lambda df: ship(df, tmp_path), frames))
    found = [sorted(row["id"] for row in Worker(shipped).poll()) for shipped in shipments]
    assert found[0] in [list(range(start, start + 1000)) for start in (0, 1000, 2000)]
    assert found == [found[0]] * 3


def test_types_arrive_as_spark_means_them(spark: SparkSession, tmp_path: Path) -> None:
    """Instants are instants whatever the session's time zone, also those that INT96 cannot hold as nanoseconds."""
    row = {
        "i": 1,
        "s": "é",
        "t": datetime.datetime(1600, 1, 1, 12, tzinfo=datetime.UTC),
        "n": datetime.datetime(2024, 1, 1, 12),  # noqa: DTZ001 - the column has no zone
        "d": datetime.date(2024, 1, 1),
        "m": Decimal("1.20"),
        "b": b"\x00",
        "a": [1, None],
        "k": [("x", 0.5)],
        "r": {"x": 1, "y": None},
        "v": datetime.timedelta(days=1),
    }
    df = spark.range(1).selectExpr(
        "1S AS i",
        "'é' AS s",
        "TIMESTAMP'1600-01-01 12:00:00Z' AS t",
        "TIMESTAMP_NTZ'2024-01-01 12:00:00' AS n",
        "DATE'2024-01-01' AS d",
        "1.20BD AS m",
        "X'00' AS b",
        "array(1, NULL) AS a",
        "map('x', 0.5D) AS k",
        "named_struct('x', 1, 'y', CAST(NULL AS STRING)) AS r",
        "INTERVAL '1' DAY AS v",
    )
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        assert Worker(ship(df, tmp_path)).poll() == [row]
    finally:
        spark.conf.unset("spark.sql.session.timeZone")


#: Settings that change what Spark's Parquet writer writes, or how Spark hands rows to Python.
_SETTINGS = {
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS",
    "spark.sql.parquet.compression.codec": "lz4",
    "spark.sql.execution.arrow.useLargeVarTypes": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "7",
}


def test_no_setting_of_the_session_changes_a_row(spark: SparkSession, tmp_path: Path) -> None:
    """The rows are those that the DataFrame gives to Arrow, old dates, microseconds and variants with them."""
    df = spark.range(0, 40, numPartitions=3).selectExpr(
        "id",
        "date_add(DATE'1500-01-01', CAST(id AS INT)) AS `old.date`",
        "TIMESTAMP'1500-01-01 00:00:00.123456' AS instant",
        "TIMESTAMP_NTZ'1500-01-01 00:00:00.123456' AS local",
        """parse_json('{"amount":' || id || ',"k' || id || '":true}') AS v""",
        "array(named_struct('t', TIMESTAMP'2020-01-01 00:00:00.000001', 's', 'é')) AS nested",
        "NULL AS nothing",
    )
    given = sorted(df.toArrow().to_pylist(), key=lambda row: row["id"])
    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)
    try:
        found = Worker(ship(df, tmp_path)).poll()
    finally:
        for name in _SETTINGS:
            spark.conf.unset(name)
    assert found == given, "in the order of the partitions, too"


def test_columns_without_names_of_their_own_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Before Spark writes anything."""
    for df in (spark.sql("SELECT 1 AS a, 2 AS a"), spark.range(1).drop("id")):
        with pytest.raises(GraphError, match="at least one column, and each another name"):
            ship(df, tmp_path)
    assert not os.listdir(tmp_path)


def test_files_of_tasks_that_failed_are_removed(spark: SparkSession, tmp_path: Path) -> None:
    """Files of tasks that Spark tries again are not read, and go at the next submission."""
    shipped = ship(spark.range(3), tmp_path)
    log = find_log(place_of(str(tmp_path), "run", "rows"))
    assert log is not None
    folder = Path(str(log.place), log.name)
    shutil.copy(folder / log.files[0].name, folder / "part-of-a-task-that-was-killed.parquet")
    assert len(Worker(shipped).poll()) == 3
    ship(spark.range(3), tmp_path)
    assert sorted(os.listdir(folder)) == sorted(file.name for file in log.files)


def test_an_empty_dataframe_ends_at_once(spark: SparkSession, tmp_path: Path) -> None:
    """No rows are no error."""
    assert Worker(ship(spark.createDataFrame([], "id LONG"), tmp_path)).poll() == []


def test_strange_names_make_a_path(spark: SparkSession, tmp_path: Path) -> None:
    """Spark and Python mean the same folder, whatever is in the names of run and root."""
    root = tmp_path / "a b%20ü"
    root.mkdir()
    assert len(Worker(ship(spark.range(3), root, run="läuft.2")).poll()) == 3


def test_other_columns_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    """A run keeps the input that it began with, and says so when it is given another."""
    ship(spark.range(3), tmp_path)
    with pytest.raises(RestoreRefused, match=r"\(id int64\), but the DataFrame \(name string\)"):
        ship(spark.createDataFrame([("x",)], "name STRING"), tmp_path)
    ship(spark.createDataFrame([("x",)], "name STRING"), tmp_path, run="another")


def test_a_backend_without_a_folder_needs_a_path(spark: SparkSession, tmp_path: Path) -> None:
    """The error names the parameter, and the parameter helps; it also wins over the backend's folder."""
    with pytest.raises(GraphError, match=r"node 'rows'.*logPath"):
        ship(spark.range(3), None)
    assert len(Worker(ship(spark.range(3), None, logPath=f"file://{tmp_path}/log")).poll()) == 3
    ship(spark.range(3), tmp_path / "root", logPath=f"{tmp_path}/log")
    assert not (tmp_path / "root").exists()


def test_what_is_no_batch_dataframe_is_refused(spark: SparkSession) -> None:
    """Said when the node is made."""
    with pytest.raises(GraphError, match="not list"):
        DataFrameSource([1, 2])  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="streaming"):
        DataFrameSource(spark.readStream.format("rate").load())


def test_the_dataframe_stays_in_the_driver(spark: SparkSession, tmp_path: Path) -> None:
    """The graph pickles before there is a log, so that it can be checked; but such a source cannot be opened."""
    source = DataFrameSource(spark.range(3))
    Graph("g").add("rows", source).explain()
    copy = cloudpickle.loads(cloudpickle.dumps(source))
    with pytest.raises(GraphError, match="no input log"):
        copy.open(HandContext(Subtask("rows")))
    assert guarantee_of(copy) == "exactly_once"


def test_a_fork_reads_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    """Offsets of one run's log are never used in another's: the fork goes on with the log that it came with."""
    original = ship(spark.range(0, 30_000, numPartitions=1), tmp_path)
    worker = Worker(original)
    before = worker.poll(2)
    fork = ship(spark.range(30_000, 60_000, numPartitions=1), tmp_path, run="fork")
    after = Worker(fork, state=worker.state(), run="fork").poll()
    assert [row["id"] for row in before + after] == list(range(30_000))


def reads_of(worker: Worker) -> list[tuple[str, Any]]:
    """Read all rows, and return what a log of steps has of the reads."""
    found = []
    while worker.poll(1):
        assert worker.source.last_read is not None
        found.append(worker.source.last_read)
    return found


def repeat(worker: Worker, reads: list[tuple[str, Any]]) -> list[int]:
    """Read the slices of a log of steps again."""
    worker.context.sent.clear()
    for partition, stop in reads:
        worker.source.read_again(partition, Codec(safe=True).decode(Codec(safe=True).encode(stop)), worker.context)
    return [row["id"] for batch in worker.context.sent for row in batch.to_pylist()]


def test_slices_are_read_again(shipped: bytes) -> None:
    """A replay sends the same rows, and polls go on behind them. A log has one row group after the other."""
    reads = reads_of(Worker(shipped, 0, 2))
    ids = [row["id"] for row in Worker(shipped, 0, 2).poll()]
    assert len(reads) > len({partition for partition, _ in reads}) == 2
    for count in range(len(reads) + 1):
        worker = Worker(shipped, 0, 2)
        assert repeat(worker, reads[:count]) + [row["id"] for row in worker.poll()] == ids


def test_a_snapshot_ahead_of_the_first_read_has_all_offsets(shipped: bytes) -> None:
    """Because the subtasks of another parallelism would begin elsewhere."""
    workers = [Worker(shipped, index, 2) for index in range(2)]
    ids = [row["id"] for row in workers[0].poll(1)]
    ids += [row["id"] for worker in rescaled(shipped, workers, 3) for row in worker.poll()]
    assert Counter(ids) == Counter(range(ROWS))


def test_a_fork_that_repeats_steps_reads_the_log_of_their_run(spark: SparkSession, tmp_path: Path) -> None:
    """At each of its submissions, and so does its fork. A run whose origin has no log writes its own."""
    original = Worker(ship(spark.range(0, 30_000, numPartitions=2), tmp_path))
    reads = reads_of(original)
    other = spark.range(30_000, 60_000, numPartitions=1)
    fork = ship(other, tmp_path, "fork", "run")
    again = ship(other, tmp_path, "fork")
    of_fork = ship(other, tmp_path, "fork of fork", "fork")
    for shipped in (fork, again, of_fork):
        assert repeat(Worker(shipped), reads) == list(range(30_000))
    assert Worker(ship(other, tmp_path, "another", "nobody")).poll(1)[0] == {"id": 30_000}


def test_a_replay_of_another_log_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """The log was removed, and written again with other rows."""
    reads = reads_of(Worker(ship(spark.range(3), tmp_path)))
    shutil.rmtree(str(place_of(str(tmp_path), "run", "rows")))
    with pytest.raises(RestoreRefused, match="its offsets mean other rows"):
        repeat(Worker(ship(spark.range(3, 6), tmp_path)), reads)


def test_a_log_that_was_replaced_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """Somebody removed the log, and a new one was written in its place: its offsets mean other rows."""
    worker = Worker(ship(spark.range(3), tmp_path))
    place = place_of(str(tmp_path), "run", "rows")
    shutil.rmtree(str(place))
    shipped = ship(spark.range(3), tmp_path)
    with pytest.raises(RestoreRefused, match="its offsets mean other rows"):
        Worker(shipped, state=worker.state())
    shutil.rmtree(str(place))
    with pytest.raises(SnapshotCorrupt, match="manifest of the input log is missing"):
        Worker(shipped, state=worker.state())


def test_a_flipped_bit_never_changes_a_row(spark: SparkSession, tmp_path: Path) -> None:
    """Pages carry checksums, and the rest is looked at: a flip is found, or was in what nobody reads."""
    df = spark.range(0, 40, numPartitions=1).selectExpr("id", "concat('w', id % 7) AS word")
    shipped = ship(df, tmp_path)
    rows = Worker(shipped).poll()
    log = find_log(place_of(str(tmp_path), "run", "rows"))
    assert log is not None
    path = Path(str(log.place), log.name, log.files[0].name)
    data = path.read_bytes()
    found = 0
    for offset in range(len(data)):
        path.write_bytes(data[:offset] + bytes([data[offset] ^ 1 << offset % 8]) + data[offset + 1 :])
        try:
            assert Worker(shipped).poll() == rows, f"offset {offset}"
        except SnapshotCorrupt:
            found += 1
    assert found > len(rows)


def test_a_log_that_was_moved_is_found(spark: SparkSession, tmp_path: Path) -> None:
    """The whole root may move with its snapshots: the log is known by its name, not by its path."""
    worker = Worker(ship(spark.range(0, 20_000, numPartitions=1), tmp_path / "old"))
    before = worker.poll(1)
    (tmp_path / "old").rename(tmp_path / "new")
    after = Worker(ship(spark.range(20_000), tmp_path / "new"), state=worker.state()).poll()
    assert [row["id"] for row in before + after] == list(range(20_000))


def rescaled(shipped: bytes, workers: list[Worker], parallelism: int, run: str = "run") -> list[Worker]:
    """As the framework does: unite the states, and give each new subtask those of its partitions."""
    united: dict[str, Any] = {}
    for worker in workers:
        united |= Codec(safe=True).decode(worker.state())
    names = cloudpickle.loads(shipped).partitions()
    states = [{name: united.pop(name) for name in mine} for mine in assign_afresh(names, parallelism)]
    assert united == {}
    return [Worker(shipped, at, parallelism, Codec().encode(each), run) for at, each in enumerate(states)]


@given(chain=st.lists(st.tuples(st.sampled_from([1, 2, 3, 5]), st.integers(0, 3)), max_size=3))
def test_rows_are_exactly_once_at_any_parallelism(shipped: bytes, chain: list[tuple[int, int]]) -> None:
    """A run that goes on with other numbers of subtasks, again and again, sends each row once."""
    workers, ids = [Worker(shipped, index, 2) for index in range(2)], []
    for parallelism, polls in chain:
        ids += [row["id"] for worker in workers for row in worker.poll(polls)]
        workers = rescaled(shipped, workers, parallelism)
    ids += [row["id"] for worker in workers for row in worker.poll()]
    assert Counter(ids) == Counter(range(ROWS))
    assert [row for worker in rescaled(shipped, workers, 3) for row in worker.poll()] == []


def test_more_subtasks_than_partitions_lose_nothing(shipped: bytes) -> None:
    """Those without a partition end at once."""
    shares = [Worker(shipped, index, 500).poll(1) for index in range(500)]
    assert [index for index, rows in enumerate(shares) if rows] == [0, 1, 2]
    assert Worker(shipped, 480, 500, Worker(shipped, 480, 500).state()).poll() == []
    workers = rescaled(shipped, [Worker(shipped, index, 3) for index in range(3)], 500)
    assert Counter(row["id"] for worker in workers for row in worker.poll()) == Counter(range(ROWS))


def test_a_fork_may_have_another_parallelism(spark: SparkSession, tmp_path: Path) -> None:
    """The fork's own log has other row groups, and none of them is read: offsets are of the log that it continues."""
    original = ship(spark.range(0, 30_000, numPartitions=3), tmp_path)
    workers = [Worker(original, index, 2) for index in range(2)]
    ids = [row["id"] for worker in workers for row in worker.poll(1)]
    forks = rescaled(ship(spark.range(90_000, 90_100, numPartitions=7), tmp_path, run="fork"), workers, 3, "fork")
    ids += [row["id"] for fork in forks for row in fork.poll(1)]
    forks = rescaled(ship(spark.range(1), tmp_path, run="fork of fork"), forks, 1, "fork of fork")
    ids += [row["id"] for row in forks[0].poll()]
    assert sorted(ids) == list(range(30_000))


def test_a_state_without_its_partitions_is_refused(shipped: bytes) -> None:
    """Rows would be missing."""
    with pytest.raises(SnapshotCorrupt, match=r"rows\[0\]: the snapshot has no offset of its partitions \['001', "):
        Worker(shipped, state=Codec().encode({"000": None}))


def test_committed_rows_come_back_as_a_dataframe(spark: SparkSession, tmp_path: Path) -> None:
    """Spark sees the schema from the start, committed rows only, and all types as they were given."""
    from pyspark.sql.functions import unix_timestamp

    ddl = "n INT, s STRING, t TIMESTAMP, d DATE, m DECIMAL(10,2), b BINARY, x DOUBLE, y BOOLEAN"
    sink, context = ParquetSink(f"file://{tmp_path}/out", ddl), HandContext(Subtask("out"))
    sink.open(context)
    read = f"{tmp_path}/out"
    assert spark.read.parquet(read).dtypes == spark.createDataFrame([], ddl).dtypes
    assert spark.read.schema(ddl).parquet(read).collect() == []

    moment = datetime.datetime(2024, 1, 1, 12, tzinfo=datetime.UTC)
    row = (1, "é", moment, datetime.date(2024, 1, 1), Decimal("1.20"), b"\x00", 0.5, True)
    sink.onMessage(row, context)
    prepared = sink.prepareCommit(1)
    sink.onMessage(row, context)
    sink.prepareCommit(2)
    assert spark.read.parquet(read).count() == 0
    sink.commit(1, prepared)
    (found,) = spark.read.parquet(read).withColumn("t", unix_timestamp("t")).collect()
    assert tuple(found) == (*row[:2], int(moment.timestamp()), *row[3:])


def test_nested_and_naive_columns_are_read_by_spark(spark: SparkSession, tmp_path: Path) -> None:
    """An Arrow schema may say what DDL here cannot."""
    schema = pa.schema([("a", pa.list_(pa.struct([("x", pa.int64())]))), ("n", pa.timestamp("ns"))])
    sink, context = ParquetSink(str(tmp_path), schema), HandContext(Subtask("out"))
    sink.open(context)
    naive = datetime.datetime(2024, 1, 1)  # noqa: DTZ001 - the column has no zone
    sink.onMessage(([{"x": 1}], naive), context)
    sink.commit(1, sink.prepareCommit(1))
    (found,) = spark.read.parquet(str(tmp_path)).selectExpr("a[0].x AS x", "CAST(n AS STRING) AS n").collect()
    assert (found.x, found.n) == (1, "2024-01-01 00:00:00")
