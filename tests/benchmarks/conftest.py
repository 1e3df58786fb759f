"""Fixtures of the benchmarks' tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from benchmarks.live import Live
from tests.leaks import LeakCheck

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def live(spark: SparkSession, ray_instance: None, leak_check: LeakCheck, tmp_path: Path) -> Iterator[Live]:
    """Runs graphs on the one Spark and the one Ray; nothing of them outlives the test."""
    there = Live(spark, tmp_path)
    yield there
    there.end()
