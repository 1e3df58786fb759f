"""The barrier stage as Spark sees it: how many slots there are, submit and wait, cancel.

Everything that differs between classic Spark and Spark Connect is here. The stage ends in ``collect()``:
Spark re-runs the shuffle stage that ``count()`` makes of it silently, under the same ids.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.utils import is_remote

from snapshot.errors import GraphError, RunFailed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

#: Seconds that the first executor has to register: a cluster may have to start a machine for it.
EXECUTORS_SECONDS_MAX = 60.0

#: Seconds between two executors that register, after which no more are expected: they are asked for at one time.
EXECUTORS_APART_SECONDS_MAX = 10.0

#: How classic Spark and Connect's server say that somebody cancelled the job.
_CANCELLED = ("[SPARK_JOB_CANCELLED]", "[OPERATION_CANCELED]")

#: How a worker's last words, which Spark quotes, begin when the graph's modules have not reached the executors.
_GRAPH_ERROR = f"{GraphError.__module__}.{GraphError.__qualname__}: "

#: How Spark quotes a task that ended before its worker could begin. No resubmission brings what is not installed.
_MISSING_MODULE = re.compile(r"^ModuleNotFoundError: No module named '([^']+)'", re.MULTILINE)


def is_connect(spark: SparkSession) -> bool:
    """Return whether the session is a Spark Connect client, which knows neither slots nor job groups."""
    return is_remote() or not hasattr(spark, "_jsc")


def slot_count(spark: SparkSession, wanted: int) -> int:
    """Tasks that can run at one time with the default resources; blocks while executors still register.

    Raises
    ------
    RunFailed
        if no executor is there in time.
    """
    context = spark.sparkContext
    java = context._jsc.sc()
    profile = java.resourceProfileManager().defaultResourceProfile()
    slots, deadline = 0, time.monotonic() + EXECUTORS_SECONDS_MAX
    while True:
        before, slots = slots, int(java.maxNumConcurrentTasks(profile))
        if slots >= wanted or (slots and java.isLocal()) or time.monotonic() >= deadline:
            break
        if slots > before:
            deadline = time.monotonic() + EXECUTORS_APART_SECONDS_MAX
        time.sleep(0.05)
    if not slots:
        raise RunFailed(f"no executor registered with {context.master} in {EXECUTORS_SECONDS_MAX:g} s")
    return slots


def run_stage(spark: SparkSession, group: str, description: str, worker_count: int, encoded_launch: bytes) -> None:
    """Submit the stage and block until it has ended. Call it on a thread of its own.

    Raises
    ------
    Exception
        whatever Spark raises when a task failed or the stage was cancelled.
    """

    def host(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        from barrier_runtime.worker.task import host_worker

        context = TaskContext.get()
        assert context is not None
        for _ in batches:
            pass  # the JVM's feeding thread must not be left blocked
        host_worker(encoded_launch, context.partitionId())
        return iter(())

    if is_connect(spark):
        spark.addTag(group)
    else:
        # A plain thread inherits no job group.
        spark.sparkContext.setJobGroup(group, description, interruptOnCancel=True)
    try:
        workers = spark.range(0, worker_count, 1, worker_count)
        workers.mapInArrow(host, "worker long", barrier=True).collect()
    finally:
        if is_connect(spark):
            spark.removeTag(group)


def cancel_stage(spark: SparkSession, group: str) -> None:
    """End the stage; `run_stage` raises soon after."""
    if is_connect(spark):
        spark.interruptTag(group)
    else:
        spark.sparkContext.cancelJobGroup(group)


def why_final(spark: SparkSession, error: Exception) -> str | None:
    """Why a stage that ended with `error` must not, or need not, be submitted again; None: it may be."""
    if is_stopped(spark):
        return "the Spark session was stopped"
    text = str(error)
    if any(condition in text for condition in _CANCELLED):
        return "its Spark job was cancelled"
    _, found, problem = text.partition(_GRAPH_ERROR)
    if found:
        return problem.splitlines()[0]
    missing = _MISSING_MODULE.search(text)
    if missing is None:
        return None
    return (
        f"the Python of the executors lacks the module {missing[1]!r}: set PYSPARK_PYTHON to one that has Cutline "
        "(the driver's is sys.executable) before the Spark session starts, or install it there"
    )


def is_stopped(spark: SparkSession) -> bool:
    """Return whether the session can run nothing more."""
    session: Any = spark  # each kind has an attribute that the other lacks
    return bool(session.is_stopped) if is_connect(spark) else session.sparkContext._jsc is None


def bind_host(spark: SparkSession) -> str:
    """The address that the coordinator listens on: loopback while all of Spark is on this host."""
    master: Any = spark.conf.get("spark.master", "")
    if isinstance(master, str) and master.startswith("local"):
        return "127.0.0.1"
    return str(spark.conf.get("spark.driver.host", None) or _own_address())


def _own_address() -> str:
    import ray.util

    return str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]  # Ray's
