"""Every kind of Spark that Cutline runs on launches a barrier stage of two tasks here.

What these tests show first is that the fixtures work; a Spark that cannot do this cannot run a graph.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from benchmarks.session import SPARK_SETTINGS
from tests.leaks import LeakCheck
from tests.programs import run_script

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Two executors share the machine with two drivers: a small heap each.
_EXECUTOR_SETTINGS = SPARK_SETTINGS | {"spark.executor.memory": "512m"}

#: The same job as `_probe` below, in a process of its own.
_SCRIPT = """
import time
import pyarrow as pa
from pyspark import BarrierTaskContext
from pyspark.sql import SparkSession

started = time.perf_counter()
builder = SparkSession.builder.{where}
for key, value in {settings}.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
print(f"session after {{time.perf_counter() - started:.2f}} s")

def probe(batches):
    context = BarrierTaskContext.get()
    tasks = len(context.getTaskInfos())
    for _ in batches:
        pass
    yield pa.RecordBatch.from_pydict({{"task": [context.partitionId()], "tasks": [tasks]}})

for _ in range(2):
    started = time.perf_counter()
    rows = spark.range(0, 2, 1, 2).mapInArrow(probe, "task long, tasks long", barrier=True).collect()
    print(f"barrier stage after {{time.perf_counter() - started:.2f}} s")
print("rows", sorted(tuple(row) for row in rows))
spark.stop()
"""


def _probe(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from pyspark import BarrierTaskContext

    context = BarrierTaskContext.get()
    for _ in batches:
        pass
    yield pa.RecordBatch.from_pydict({"task": [context.partitionId()], "tasks": [len(context.getTaskInfos())]})


def _run_elsewhere(where: str, settings: dict[str, str], environment: dict[str, str] | None = None) -> None:
    script = _SCRIPT.format(where=where, settings=settings)
    assert "rows [(0, 2), (1, 2)]" in run_script(script, timeout_s=100, environment=environment)


@pytest.mark.spark
def test_local_session_runs_a_barrier_stage(spark: SparkSession, leak_check: LeakCheck) -> None:
    """The session of the tests launches both tasks of a barrier stage, and nothing of them stays."""
    frame = spark.range(0, 2, 1, 2).mapInArrow(_probe, "task long, tasks long", barrier=True)
    assert sorted(tuple(row) for row in frame.collect()) == [(0, 2), (1, 2)]


@pytest.mark.spark
@pytest.mark.slow
def test_local_cluster_runs_a_barrier_stage(local_cluster_environment: dict[str, str], leak_check: LeakCheck) -> None:
    """Two executors in JVMs of their own, started by the driver's JVM."""
    _run_elsewhere('master("local-cluster[2,1,1024]")', _EXECUTOR_SETTINGS, local_cluster_environment)


@pytest.mark.spark
@pytest.mark.slow
def test_standalone_cluster_runs_a_barrier_stage(standalone_master: str, leak_check: LeakCheck) -> None:
    """A master and two workers, each a program of its own."""
    _run_elsewhere(f'master("{standalone_master}")', _EXECUTOR_SETTINGS)


@pytest.mark.spark
@pytest.mark.slow
def test_connect_server_runs_a_barrier_stage(leak_check: LeakCheck) -> None:
    """Spark Connect: the client speaks gRPC and has no JVM. Its sessions take no settings of the server."""
    _run_elsewhere('remote("local[2]")', {})


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
