"""A local Spark and an embedded Ray for benchmarks of whole runs, started when the first one asks for them."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from tests.conftest import SPARK_SETTINGS
from tests.system.live import Live

#: Where runs are submitted. Called only by benchmarks that need Spark and Ray.
Place = Callable[[], Live]


@contextmanager
def session() -> Iterator[Place]:
    """Where jobs are submitted; what they leave is removed."""
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
    """An empty folder for one run: snapshots of gigabytes must not outlive it."""
    folder = Path(tempfile.mkdtemp(dir=live.folder))
    try:
        yield folder
    finally:
        # A run that is still on when something went wrong writes on; the session's folder goes at the end.
        shutil.rmtree(folder, ignore_errors=True)


def _open(folder: Path) -> Live:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    from barrier_runtime.coordinator_client import ensure_ray

    builder = SparkSession.builder.master("local[4]").appName("cutline-benchmarks")
    for key, value in SPARK_SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    ensure_ray(None)
    return Live(spark, folder)
