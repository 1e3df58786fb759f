"""Snapshots as DataFrames of a real Spark, which gets options, credentials and the signing key, and reads in tasks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from cutline import BarrierRuntime, FileSystemBackend, MemoryBackend, SnapshotEditor
from cutline.barrier_runtime.dataframes import snapshot_rows
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.stored.backend import StateBackend
from cutline.snapshot.stored.run_store import RunStore
from cutline.snapshot.stored.signed import SignedBackend
from tests.snapshot.editing.mended_runs import RUN, opened, simulated
from tests.stored_format.generate import FORMAT_2

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

KEY = b"signing key of the tests"


def fill(backend: StateBackend) -> StateBackend:
    """A backend with the files of a run."""
    files, _ = simulated()
    for path, data in files.items():
        assert backend.put_if_absent(path, [data])
    return backend


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store with the run and a copy of it, in whose session the source is registered."""
    root = str(tmp_path_factory.mktemp("store"))
    backend = fill(FileSystemBackend(root, inlineBytesMax=250))
    SnapshotEditor(opened(backend)).setValue("kinds", "words", "a", ["x", "y"]).write("copy")
    BarrierRuntime(spark, backend=backend, page=False)
    return root


def read(spark: SparkSession, path: str, **options: Any) -> DataFrame:
    """The DataFrame of these options."""
    return spark.read.format("cutline").options(**options).load(path)


def as_rows(frame: DataFrame) -> list[str]:
    """The rows in any order."""
    return sorted(repr([_plain(value) for value in row]) for row in frame.collect())


def _plain(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value


def in_process(store: RunStore, snapshot_id: int | None = None) -> list[str]:
    """The rows that are read without Spark."""
    snapshot = opened(store.backend, store.run) if snapshot_id is None else store.read_snapshot(snapshot_id, Codec())
    opening = snapshot_rows.Opening(raw=False, trusted=True)
    batches = [
        batch
        for pieces in snapshot_rows.plan(snapshot, None)
        for batch in snapshot_rows.read(pieces, snapshot.id, store.read_part, opening)
    ]
    return sorted(repr(list(row.values())) for batch in batches for row in batch.to_pylist())


def test_spark_reads_what_the_store_holds(spark: SparkSession, folder: str) -> None:
    """All rows of the newest snapshot, of the given one, and of one node; columns are those of the page."""
    store = RunStore(FileSystemBackend(folder), RUN)
    frame = read(spark, folder, run=RUN, trusted="true")
    assert frame.schema.simpleString() == (
        "struct<snapshot_id:bigint,node:string,subtask:int,kind:string,state:string,key_group:int,key:string,"
        "sub:string,value:string,expires:double,source:string,target:string,channel_number:bigint,sequence:bigint,"
        "key_bytes:binary,value_bytes:binary>"
    )
    assert as_rows(frame) == in_process(store)
    newest = store.manifests()[-1]
    assert as_rows(read(spark, folder, run=RUN, snapshotId=newest, trusted="true")) == in_process(store, newest)
    assert as_rows(read(spark, folder, run=RUN, node="kinds", trusted="true")) == as_rows(frame.where("node = 'kinds'"))
    copied = read(spark, folder, run="copy").where("state = 'words' AND key = '\"a\"'").orderBy("sub")
    assert [(row.sub, row.value) for row in copied.collect()] == [("0", '"x"'), ("1", '"y"')]


def test_sql_finds_a_message_in_flight(spark: SparkSession, folder: str) -> None:
    """A message is found by its content, with the channel and the number that it has."""
    read(spark, folder, run=RUN).createOrReplaceTempView("snapshot_rows")
    found = spark.sql(
        "SELECT source, target, sequence FROM snapshot_rows "
        "WHERE kind IN ('sent', 'received') AND get_json_object(value, '$[1]') = 4"
    ).collect()
    assert [tuple(row) for row in found] == [("words[0]", "kinds[1]", 5)]


@pytest.mark.parametrize("fixture", ["channel_state", "batches", "timers", "pickled", "large_state"])
def test_raw_rows_of_stored_fixtures(spark: SparkSession, folder: str, fixture: str) -> None:
    """Without any pickle opened, the bytes are the same as with values."""
    path = str(FORMAT_2 / fixture)
    frame, raw = read(spark, path).drop("value", "key"), read(spark, path, raw="true").drop("value", "key")
    if fixture == "batches":
        frame, raw = frame.drop("value_bytes"), raw.drop("value_bytes")
    assert as_rows(frame) == as_rows(raw)
    assert read(spark, path, raw="true").where("value IS NOT NULL OR key IS NOT NULL").count() == 0


def test_pickles_need_trust(spark: SparkSession, folder: str) -> None:
    """Without trust an object is null beside its bytes."""
    path = str(FORMAT_2 / "pickled")
    counts = [
        read(spark, path, trusted=trusted).where("kind IN ('sent', 'received') AND value IS NULL").count()
        for trusted in ("true", "false")
    ]
    assert counts[0] == 0 < counts[1]


def test_keyed_rows_of_two_claims(spark: SparkSession, folder: str) -> None:
    """Of several segments, restored and own, the newest rows are read."""
    store = RunStore(FileSystemBackend(FORMAT_2 / "keyed"), "keyed")
    assert as_rows(read(spark, str(FORMAT_2 / "keyed"), trusted="true")) == in_process(store)


def test_a_runtime_gives_its_backend_and_key(spark: SparkSession, tmp_path: Path) -> None:
    """A signed run is read without options, and by format only with the key; no plan shows the key."""
    signed = fill(SignedBackend(FileSystemBackend(str(tmp_path)), KEY))
    runtime = BarrierRuntime(spark, backend=FileSystemBackend(str(tmp_path)), signingKey=KEY, page=False)
    expected = in_process(RunStore(signed, RUN))
    frame = runtime.snapshotDataFrame(RUN)
    assert as_rows(frame.where("kind != 'x'")) == as_rows(read(spark, str(tmp_path), signingKey=KEY.hex()))
    assert len(expected) == frame.count()
    plans = frame._jdf.queryExecution().toString()
    assert KEY.hex() not in plans and "backendSecret" not in plans and "backendsecret" not in plans
    with pytest.raises(Exception, match="is signed, and no signing key was given"):
        read(spark, str(tmp_path)).count()
    with pytest.raises(Exception, match="is signed with another key"):
        read(spark, str(tmp_path), signingKey=(KEY + b"x").hex()).count()


def test_a_memory_backend_goes_with_the_dataframe(spark: SparkSession) -> None:
    """Its files are in no place that a task could read."""
    backend = fill(MemoryBackend())
    runtime = BarrierRuntime(spark, backend=backend, page=False)
    newest = opened(backend)
    assert runtime.snapshotDataFrame(RUN, newest.id).count() == len(in_process(RunStore(backend, RUN)))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "holds several runs, so name one; option run: copy, mended"),
        ({"run": "nowhere"}, "holds no run 'nowhere'; option run: copy, mended"),
        ({"run": RUN, "snapshotId": "newest"}, "snapshotId='newest'"),
        ({"run": RUN, "snapshotId": "7"}, "0000000000000007.manifest"),
        ({"run": RUN, "node": "nowhere"}, "no node 'nowhere'; the graph's nodes are words, kinds, out"),
        ({"run": RUN, "trusted": "maybe"}, "trusted='maybe': give true or false"),
        ({"run": RUN, "nod": "kinds"}, "unknown options nod; there are run, snapshotId, node, raw, trusted"),
        ({"run": RUN, "signingKey": "key"}, "in hexadecimal digits"),
    ],
)
def test_wrong_options_are_named(spark: SparkSession, folder: str, options: dict[str, str], text: str) -> None:
    """The text says what there is."""
    with pytest.raises(Exception, match=text):
        read(spark, folder, **options).count()


def test_keys_are_json(spark: SparkSession, folder: str) -> None:
    """Spark's own functions take keys apart."""
    parsed = "from_json(concat('[', key, ']'), 'array<string>')[0] AS key"
    keys = read(spark, folder, run=RUN).where("kind = 'row'").selectExpr(parsed, "key AS text").distinct().collect()
    assert sorted((row.key, json.loads(row.text)) for row in keys) == [("a", "a"), ("b", "b"), ("c", "c")]
