"""The stored run that the real runtime made: a DataFrame's input log, staged rows, a pinned snapshot."""

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
from cutline.barrier_runtime.dataframes.unread import PARTITIONS, Unread
from cutline.snapshot.ids import Subtask
from cutline.snapshot.stored.history import Base
from cutline.snapshot.stored.manifest import Manifest
from cutline.snapshot.stored.run_store import RunStore, runs
from cutline.state_backends.verify import verify_run
from tests.leaks import LeakCheck
from tests.stored_format.contents import contents
from tests.stored_format.generate_live import FILES, FORMAT_2_LIVE, ROWS
from tests.stored_format.graphs import dataframe
from tests.stored_format.nodes import Written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PINNED, NEWEST = 1_000_001, 1_000_002

#: Where the run was made, and the name of its log.
PLACE, LOG = ["/tmp/cutline-format-2/store", "dataframe/input/rows"], "165d63ae5e0d4340a38667d1c14d7655"
SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The run's files, to be written to, at another place than where they were made."""
    return shutil.copytree(FORMAT_2_LIVE, tmp_path / "moved")


def store_in(folder: Path) -> RunStore:
    """The run's store."""
    return RunStore(FileSystemBackend(folder / "store"), "dataframe")


def test_the_run_is_listed_and_proved() -> None:
    """Everything is there and whole, and the older snapshot is pinned."""
    store = store_in(FORMAT_2_LIVE)
    assert runs(store.backend) == ["dataframe"]
    assert verify_run(store.backend, "dataframe").problems == ()
    assert [(claim.number, claim.owner) for claim in store.claims()] == [(1, "d744899abf076766")]
    assert store.bases() == (Base(1, None),)
    manifests = [store.read_manifest(snapshot_id) for snapshot_id in (PINNED, NEWEST)]
    assert [(m.pinned, m.final) for m in manifests if isinstance(m, Manifest)] == [(True, False), (False, False)]


def _prepared(snapshot_id: int, token: str, rows: int, size: int) -> dict[int, Any]:
    return {
        snapshot_id: {
            "staged": f"_staging/dataframe/out/0/00000001-{token}.parquet",
            "published": f"part-00000-{snapshot_id:014}-{token}.parquet",
            "rows": rows,
            "size_bytes": size,
        }
    }


@pytest.mark.parametrize(
    ("snapshot_id", "sent", "prepared"),
    [
        (PINNED, 2, _prepared(PINNED, "8b2cc5ffdbfe4bff", 2, 505)),
        (NEWEST, 8, _prepared(NEWEST, "f6677d3784b1c2f8", 6, 526)),
    ],
)
def test_contents(snapshot_id: int, sent: int, prepared: dict[int, Any]) -> None:
    """The offset of each partition in the source's log, and the file that the sink prepared."""
    found = contents(store_in(FORMAT_2_LIVE), snapshot_id)
    offsets = [
        {"place": PLACE, "log": LOG, "rowGroups": [number, number + 1, 1], "row": min(2, max(0, sent - 2 * number))}
        for number in range(FILES)
    ]
    assert found["rows[0]"]["state"] == dict.fromkeys(PARTITIONS) | dict(zip(PARTITIONS, offsets, strict=False))
    assert found["rows[0]"]["sent rows[0]->out[0]"] == (sent, sent, 0, 0)
    assert found["out[0]"]["received rows[0]->out[0]"] == (sent, sent, 0, 0)
    assert found["out[0]"]["uncommitted"] == prepared


def test_the_input_log_goes_on_at_the_offsets(copy: Path) -> None:
    """The log's manifest and files are read, from the stored offsets on."""
    log = find_log(place_of(str(copy / "store"), "dataframe", "rows"))
    assert log is not None
    assert log.name == LOG
    assert log.schema == pa.schema([pa.field("id", pa.int64(), nullable=False)])
    assert [(file.size_bytes, file.row_counts) for file in log.files] == [(482, (2,))] * FILES
    offsets = contents(store_in(copy), NEWEST)["rows[0]"]["state"].values()
    unread = [Unread.of_offset(log, offset) for offset in offsets if offset is not None]
    ids = [row["id"] for each in unread for _, batch in each.read() for row in batch.to_pylist()]
    assert ids == list(range(8, ROWS))


def test_prepared_rows_are_published(copy: Path) -> None:
    """Publish the prepared output of each snapshot, twice."""
    output = copy / "output"
    staging = Staging(str(output), "dataframe", Subtask("out"), 2, SCHEMA)
    for snapshot_id, rows in ((PINNED, [0, 1]), (NEWEST, [2, 3, 4, 5, 6, 7])):
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
