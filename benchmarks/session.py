"""A local Spark and an embedded Ray for benchmarks of whole runs; their jobs are those of the system tests."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from barrier_runtime.coordinator_client import ensure_ray
from tests.conftest import SPARK_SETTINGS
from tests.system.live import Live


@contextmanager
def live() -> Iterator[Live]:
    """Where jobs are submitted; what they leave is removed."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[4]").appName("cutline-benchmarks")
    for key, value in SPARK_SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    ensure_ray(None)
    with tempfile.TemporaryDirectory(prefix="cutline-benchmark-", ignore_cleanup_errors=True) as folder:
        there = Live(spark, Path(folder))
        try:
            yield there
        finally:
            there.end()
            spark.stop()
