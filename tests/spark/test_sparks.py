"""The Spark session and the Ray instance of a test run work.

The other kinds of Spark run whole graphs in `tests.spark.test_runs`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from tests.leaks import LeakCheck

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _probe(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    for _ in batches:
        pass
    yield pa.RecordBatch.from_pydict({"task": [context.partitionId()], "tasks": [len(context.getTaskInfos())]})


@pytest.mark.spark
def test_local_session_runs_a_barrier_stage(spark: SparkSession, leak_check: LeakCheck) -> None:
    """The session of the tests launches both tasks of a barrier stage, and nothing of them stays."""
    frame = spark.range(0, 2, 1, 2).mapInArrow(_probe, "task long, tasks long", barrier=True)
    assert sorted(tuple(row) for row in frame.collect()) == [(0, 2), (1, 2)]


@pytest.mark.ray
def test_ray_instance_runs_an_actor(ray_instance: None, leak_check: LeakCheck) -> None:
    """The Ray of the tests starts an actor, and nothing of it stays once it is killed."""
    import ray

    class Counter:
        def add_one(self, amount: int) -> int:
            return amount + 1

    counter: Any = ray.remote(Counter)  # Ray's types take the class for a function
    actor = counter.options(num_cpus=0).remote()
    assert ray.get(actor.add_one.remote(1)) == 2
    ray.kill(actor)
