"""Start a local Spark and an embedded Ray for benchmarks of whole runs, on the first request of a benchmark.

Tests take their settings of Spark from here. The module imports neither Spark nor Ray, because the environment of
both must be set before.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from benchmarks.live import Live

#: Options of Java that halve the processor time of a JVM that runs for seconds. The better compiler and the parallel
#: collector do not repay their cost in so short a time.
SHORT_LIVED_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

#: Settings that a session under Cutline wants, and settings that keep a session small and on loopback.
SPARK_SETTINGS = {
    "spark.python.task.killTimeout": "100ms",
    "spark.scheduler.barrier.maxConcurrentTasksCheck.interval": "1s",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
    "spark.log.level": "ERROR",
    "spark.driver.extraJavaOptions": SHORT_LIVED_JAVA,
    "spark.executor.extraJavaOptions": SHORT_LIVED_JAVA,
}

#: Returns the place where runs are submitted. Only benchmarks that need Spark and Ray call the function.
Place: TypeAlias = "Callable[[], Live]"


@contextmanager
def session() -> Iterator[Place]:
    """Yield the place where runs are submitted. Remove at the end what the runs leave."""
    opened: list[Live] = []
    with tempfile.TemporaryDirectory(prefix="cutline-benchmark-", ignore_cleanup_errors=True) as folder:

        @cache
        def place() -> Live:
            opened.append(_open(Path(folder)))
            return opened[0]

        try:
            yield place
        finally:
            for live in opened:
                live.end()
                live.spark.stop()


@contextmanager
def scratch(live: Live) -> Iterator[Path]:
    """Yield an empty folder for one run, because snapshots of gigabytes must not outlive their run."""
    folder = Path(tempfile.mkdtemp(dir=live.folder))
    try:
        yield folder
    finally:
        # A run that is active after an error writes on. The session removes its own folder at the end.
        shutil.rmtree(folder, ignore_errors=True)


def _open(folder: Path) -> Live:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    from benchmarks.live import Live
    from cutline.barrier_runtime.driver.ray_gateway import ensure_ray

    builder = SparkSession.builder.master("local[4]").appName("cutline-benchmarks")
    for key, value in SPARK_SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    ensure_ray(None)
    return Live(spark, folder)
