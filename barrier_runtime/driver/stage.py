"""The barrier stage in Spark: counts slots, submits the stage and waits, cancels the stage.

Owns all differences between classic Spark and Spark Connect. The stage ends in ``collect()``, because ``count()``
makes a shuffle stage, which Spark re-runs silently under the same ids.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.utils import is_remote

from cutline.barrier_runtime.driver.ray_gateway import own_address
from cutline.snapshot.errors import GraphError, RunFailed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

#: Seconds for the first executor to register, because a cluster may have to start a machine for the executor.
EXECUTORS_SECONDS_MAX = 60.0

#: Seconds after one executor's registration to wait for the next, because all executors are requested at one time.
EXECUTORS_APART_SECONDS_MAX = 10.0

#: error conditions of a cancelled job, from classic Spark and from Connect's server
_CANCELLED = ("[SPARK_JOB_CANCELLED]", "[OPERATION_CANCELED]")

#: start of a worker's last error text, quoted by Spark, when the graph's modules are missing on the executors
_GRAPH_ERROR = f"{GraphError.__name__}: "

#: Spark's text for a task that ended before its worker began. Resubmission is useless, because it installs no module.
_MISSING_MODULE = re.compile(r"^ModuleNotFoundError: No module named '([^']+)'", re.MULTILINE)


#: {Spark's text for executors whose Python cannot run a worker: what to say}. Resubmission is useless.
_WRONG_PYTHON = (
    (_MISSING_MODULE, "lacks the module {!r}"),
    (re.compile(r"Python in worker has different version: (\S+) than"), "is version {}, not the driver's"),
    (re.compile(r"Cannot run program \"([^\"]+)\""), "cannot be started as {!r}"),
)


def is_connect(spark: SparkSession) -> bool:
    """Return True if the session is a Spark Connect client, which knows neither slots nor job groups."""
    return is_remote() or not hasattr(spark, "_jsc")


def slot_count(spark: SparkSession, wanted: int) -> int:
    """Count the tasks that can run at one time with default resources. Blocks while executors register.

    Raises
    ------
    RunFailed
        if no executor registers in time.
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


def active_tasks(spark: SparkSession) -> int:
    """Count the tasks that run now in the session, as far as Spark's status has them."""
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    return sum(stage.numActiveTasks for stage in stages if stage is not None)


def run_stage(spark: SparkSession, group: str, description: str, worker_count: int, encoded_launch: bytes) -> None:
    """Submit the stage and block until the stage has ended. Call on a separate thread.

    Raises
    ------
    Exception
        any error of Spark when a task failed or the stage was cancelled.
    """

    def host(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        from cutline.barrier_runtime.worker.task import host_worker

        context = TaskContext.get()
        assert context is not None
        for _ in batches:
            pass  # read to the end, because the JVM's feeding thread must not stay blocked
        host_worker(encoded_launch, context.partitionId())
        return iter(())

    if is_connect(spark):
        spark.addTag(group)
    else:
        # The group is set here, because a plain thread inherits no job group.
        spark.sparkContext.setJobGroup(group, description, interruptOnCancel=True)
    try:
        workers = spark.range(0, worker_count, 1, worker_count)
        workers.mapInArrow(host, "worker long", barrier=True).collect()
    finally:
        if is_connect(spark):
            spark.removeTag(group)


def cancel_stage(spark: SparkSession, group: str) -> None:
    """Cancel the stage. `run_stage` raises soon after."""
    if is_connect(spark):
        spark.interruptTag(group)
    else:
        spark.sparkContext.cancelJobGroup(group)


def why_final(spark: SparkSession, error: Exception) -> str | None:
    """Return the reason not to submit a stage again that ended with `error`, or None if it may be submitted."""
    if is_stopped(spark):
        return "the Spark session was stopped"
    text = str(error)
    if any(condition in text for condition in _CANCELLED):
        return "its Spark job was cancelled"
    _, found, problem = text.partition(_GRAPH_ERROR)
    if found:
        return problem.splitlines()[0]
    for pattern, problem in _WRONG_PYTHON:
        fault = pattern.search(text)
        if fault is not None:
            return (
                f"the Python of the executors {problem.format(fault[1])}: set PYSPARK_PYTHON to one that has Cutline "
                "(the driver's is sys.executable) before the Spark session starts, or install it there"
            )
    return None


def is_stopped(spark: SparkSession) -> bool:
    """Return True if the session can run no more jobs."""
    session: Any = spark  # Any, because each kind of session lacks an attribute of the other kind
    return bool(session.is_stopped) if is_connect(spark) else session.sparkContext._jsc is None


def bind_host(spark: SparkSession) -> str:
    """Return the address on which the coordinator listens: loopback while all of Spark is on this host."""
    master: Any = spark.conf.get("spark.master", "")
    if isinstance(master, str) and master.startswith("local"):
        return "127.0.0.1"
    return str(spark.conf.get("spark.driver.host", None) or own_address())
