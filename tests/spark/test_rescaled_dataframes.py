"""A DataFrame in and Parquet out, with other numbers of subtasks after each restore, on a real Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cutline import BarrierRuntime, FileSystemBackend, Graph, Run
from tests.leaks import LeakCheck
from tests.stored_format.nodes import SlowRows, Written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.ray]

#: few in each of many Spark partitions, so that each batch is small, and pauses lie between them
ROWS, SPARK_PARTITIONS = 4_000, 16


def test_each_row_comes_out_once_at_any_parallelism(
    spark: SparkSession, ray_instance: None, leak_check: LeakCheck, tmp_path: Path
) -> None:
    """More subtasks, then fewer: the source goes on in its log, and the sink commits for those gone."""
    output, backend = tmp_path / "output", FileSystemBackend(tmp_path / "store")
    runtime = BarrierRuntime(spark, backend=backend, snapshotInterval=None, page=False)

    def submitted(sources: int, sinks: int) -> Run:
        df = spark.range(0, ROWS, numPartitions=SPARK_PARTITIONS)
        graph = Graph("rows").add("rows", SlowRows(df), parallelism=sources)
        graph.add("out", Written(str(output), "id LONG"), parallelism=sinks)
        return runtime.submit(graph.connect("rows", "out", partitioning="rebalance"))

    def visible() -> list[int]:
        return sorted(row.id for row in spark.read.parquet(str(output)).collect())

    counts = [0]
    for sources, sinks in ((2, 3), (3, 1)):
        run = submitted(sources, sinks)
        run.takeSnapshot(timeout=60.0)
        while len(visible()) == counts[-1]:
            run.takeSnapshot(timeout=60.0)
        run.stop(withSnapshot=True, timeout=60.0)
        counts.append(len(visible()))
    assert 0 < counts[1] < counts[2] < ROWS
    assert submitted(1, 2).awaitTermination(90.0)
    assert visible() == list(range(ROWS))
