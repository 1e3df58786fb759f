"""Makes the stored run below ``format_2_live/``, once, with the real runtime.

``python -m tests.stored_format.generate_live``. A DataFrame has an input log and rows that are staged as Parquet; Spark
writes the log, and no simulation has staged rows. File names are drawn by chance, so no two runs are the same. Two
snapshots are kept. They are taken while rows are still to be read, and the first is pinned. Their output is prepared
and never committed.
"""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

from benchmarks.session import SPARK_SETTINGS
from cutline import BarrierRuntime, FileSystemBackend
from cutline.barrier_runtime.driver.ray_gateway import ensure_ray
from tests.stored_format.graphs import dataframe
from tests.stored_format.nodes import Staged

#: ``store``, the root of a `FileSystemBackend`, and ``output``, the sink's folder.
FORMAT_2_LIVE = Path(__file__).parent / "format_2_live"

#: Root of the run while it lives. The state of the source holds it.
_ROOT = Path("/tmp/cutline-format-2")

#: Numbers 0, 1, … in so many files.
ROWS, FILES = 12, 6


def main() -> None:
    """Run, take a snapshot, stop, keep the files."""
    from pyspark.sql import SparkSession

    assert not FORMAT_2_LIVE.exists(), "a stored run is never made again: write another beside it"
    builder = SparkSession.builder.master("local[2]").appName("cutline-fixtures")
    for key, value in SPARK_SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    ensure_ray(None)
    (_ROOT / "output").mkdir(parents=True)
    backend = FileSystemBackend(_ROOT / "store", inlineBytesMax=300)
    runtime = BarrierRuntime(spark, backend=backend, snapshotInterval=None, page=False, retainedSnapshots=1)
    graph = dataframe(spark.range(0, ROWS, numPartitions=FILES), str(_ROOT / "output"), Staged)
    run = runtime.submit(graph)
    run.takeSnapshot(timeout=60.0)  # not kept, because the first batch may be in flight
    threading.Event().wait(0.3)  # for the first batch to come to the sink
    run.takeSnapshot(pinned=True, timeout=60.0)
    threading.Event().wait(1.2)  # for about two more batches
    run.takeSnapshot(timeout=60.0)
    run.stop()
    shutil.copytree(_ROOT, FORMAT_2_LIVE)
    shutil.rmtree(_ROOT)


if __name__ == "__main__":
    main()
