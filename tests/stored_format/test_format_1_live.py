"""The stored run of format 1 that the real runtime made: a DataFrame's input log, staged rows, a pinned snapshot."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cutline import BarrierRuntime, FileSystemBackend
from cutline.barrier_runtime.dataframes.input_log import find_log, place_of
from cutline.barrier_runtime.dataframes.staging import Staging
from cutline.barrier_runtime.dataframes.unread import PARTITIONS, share
from cutline.snapshot.ids import Subtask
from cutline.snapshot.stored.history import Base
from cutline.snapshot.stored.manifest import Manifest
from cutline.snapshot.stored.run_store import RunStore, runs
from cutline.state_backends.verify import verify_run
from tests.leaks import LeakCheck
from tests.stored_format.contents import contents
from tests.stored_format.generate_live import FILES, FORMAT_1_LIVE, ROWS
from tests.stored_format.graphs import dataframe
from tests.stored_format.nodes import Written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PINNED, NEWEST = 1_000_000, 1_000_001
SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The run's files, to be written to, at another place than where they were made."""
    return shutil.copytree(FORMAT_1_LIVE, tmp_path / "moved")


def store_in(folder: Path) -> RunStore:
    """The run's store."""
    return RunStore(FileSystemBackend(folder / "store"), "dataframe")


def test_the_run_is_listed_and_proved() -> None:
    """Everything is there and whole, and the older snapshot is pinned."""
    store = store_in(FORMAT_1_LIVE)
    assert runs(store.backend) == ["dataframe"]
    assert verify_run(store.backend, "dataframe").problems == ()
    assert [(claim.number, claim.owner) for claim in store.claims()] == [(1, "a21836656c595978")]
    assert store.bases() == (Base(1, None),)
    manifests = [store.read_manifest(snapshot_id) for snapshot_id in (PINNED, NEWEST)]
    assert [(m.pinned, m.final) for m in manifests if isinstance(m, Manifest)] == [(True, False), (False, False)]


def _prepared(snapshot_id: int, token: str, rows: int, size: int) -> dict[int, Any]:
    return {
        snapshot_id: {
            "staged": f"_staging/dataframe/out/0/00000001-{token}.parquet",
            "published": f"part-00000-0000000{snapshot_id}-{token}.parquet",
            "rows": rows,
            "size_bytes": size,
        }
    }


@pytest.mark.parametrize(
    ("snapshot_id", "offset", "sent", "prepared"),
    [
        (PINNED, [0, 0, 2], 2, _prepared(PINNED, "17c26c8f9eaee5d9", 2, 505)),
        (NEWEST, [2, 0, 2], 6, _prepared(NEWEST, "895b2c9cbf9dfb66", 4, 517)),
    ],
)
def test_contents(snapshot_id: int, offset: list[int], sent: int, prepared: dict[int, Any]) -> None:
    """The source's offset in its log, and the file that the sink prepared."""
    found = contents(store_in(FORMAT_1_LIVE), snapshot_id)
    assert found["rows[0]"]["state"] == {
        "place": ["/tmp/cutline-format-1/store", "dataframe/input/rows"],
        "log": "520cef367d5543138211355c2b9e3a09",
        "offset": offset,
        "parallelism": 1,
    }
    assert found["rows[0]"]["sent rows[0]->out[0]"] == (sent, sent, 0, 0)
    assert found["out[0]"]["received rows[0]->out[0]"] == (sent, sent, 0, 0)
    assert found["out[0]"]["uncommitted"] == prepared


def test_the_input_log_goes_on_at_the_offset(copy: Path) -> None:
    """The log's manifest and files are read, from the stored offset on."""
    log = find_log(place_of(str(copy / "store"), "dataframe", "rows"))
    assert log is not None
    assert log.name == "520cef367d5543138211355c2b9e3a09"
    assert log.schema == pa.schema([pa.field("id", pa.int64(), nullable=False)])
    assert [(file.size_bytes, file.row_counts) for file in log.files] == [(482, (2,))] * FILES
    offset = contents(store_in(copy), NEWEST)["rows[0]"]["state"]["offset"]
    unread = [each for each in share(log, PARTITIONS, 0, 1, offset).values() if each is not None]
    ids = [row["id"] for each in unread for _, batch in each.read() for row in batch.to_pylist()]
    assert ids == list(range(6, ROWS))


def test_prepared_rows_are_published(copy: Path) -> None:
    """Publish the prepared output of an old snapshot, twice."""
    output = copy / "output"
    staging = Staging(str(output), "dataframe", Subtask("out"), 2, SCHEMA)
    for snapshot_id, rows in ((PINNED, [0, 1]), (NEWEST, [2, 3, 4, 5])):
        prepared = contents(store_in(copy), snapshot_id)["out[0]"]["uncommitted"][snapshot_id]
        staging.publish(prepared)
        staging.publish(prepared)
        assert pq.read_table(output / prepared["published"])["id"].to_pylist() == rows


@pytest.mark.spark
@pytest.mark.ray
def test_a_live_run_goes_on_from_the_pinned_snapshot(
    spark: SparkSession, ray_instance: None, leak_check: LeakCheck, copy: Path
) -> None:
    """Workers restore the source and the sink; each row comes out once."""
    runtime = BarrierRuntime(
        spark, backend=FileSystemBackend(copy / "store"), snapshotInterval=None, page=False, retainedSnapshots=5
    )
    graph = dataframe(spark.range(0, ROWS, numPartitions=FILES), str(copy / "output"), Written)
    # The newest snapshot counts rows as committed that never were, because the sink left them out.
    run = runtime.submit(graph, restoreFrom=PINNED, allow={"repeatedOutput"})
    assert run.awaitTermination(90.0)
    assert sorted(row.id for row in spark.read.parquet(str(copy / "output")).collect()) == list(range(ROWS))
    assert run.snapshots()[0].id == PINNED
