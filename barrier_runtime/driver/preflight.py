"""Checks of `submit` that need no graph: the run's name, Spark's settings, its slots, the Python of its workers.

Each check returns its problem as one sentence, or None. The checks are pure; `check_cluster` reads their arguments from
a session, and repairs what can be repaired. Connect clients can query neither slots nor the executors' Python. Missing
workers are named by the registration deadline there.

Speculation needs no check, because Spark speculates no task of a barrier stage
(`TaskSetManager.checkSpeculatableTasks`).
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from cutline.barrier_runtime.driver.stage import active_tasks, is_connect, slot_count
from cutline.channels.limits import NAME_BYTES_MAX
from cutline.snapshot.errors import RunFailed
from cutline.snapshot.plan.validation import name_problem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Python that Spark starts for workers when PYSPARK_PYTHON was not set before the session
_SPARKS_PYTHON = "python3"

_logger = logging.getLogger("cutline.runtime")


def run_name_problem(name: object) -> str | None:
    """Return why `name` cannot name a run. Its bytes count too, because a handshake carries the name."""
    problem = name_problem(name)
    if problem is not None:
        return problem
    size = len(str(name).encode())
    return f"has {size} bytes in UTF-8: a run's name has {NAME_BYTES_MAX} at most" if size > NAME_BYTES_MAX else None


def is_local(master: str) -> bool:
    """Return True if the workers run beside the driver, as by Spark's `Utils.isLocalMaster`."""
    return master == "local" or master.startswith("local[")


def allocation_problem(master: str, setting: Callable[[str], str]) -> str | None:
    """Return the problem of dynamic allocation, which Spark ignores for local masters.

    Parameters
    ----------
    master : str
    setting : callable
        Returns a setting of the session, or "" where the setting is absent.
    """
    if setting("spark.dynamicAllocation.enabled").strip().lower() != "true":
        return None
    if is_local(master) and setting("spark.dynamicAllocation.testing").strip().lower() != "true":
        return None
    return (
        "Spark runs no barrier stage with dynamic allocation: start the session with "
        "spark.dynamicAllocation.enabled=false and a fixed spark.executor.instances"
    )


class HeldSlots(NamedTuple):
    """The slots of one active run of the session."""

    run: str
    workers: int


def slots_problem(master: str, workers: int, total: int, held: Sequence[HeldSlots]) -> str | None:
    """Return the problem when a stage of `workers` does not fit into `total` slots beside the active runs."""
    taken = sum(each.workers for each in held)
    if total - taken >= workers:
        return None
    runs = ", ".join(f"{each.run!r}: {each.workers}" for each in held)
    beside = f", of which active runs hold {taken} ({runs}). Stop one, or give " if held else ". Give "
    fewer = f"BarrierRuntime(workers={total - taken}), or " if total > taken else ""
    return (
        f"a stage of {workers} workers needs {workers} slots at one time; {master} has {total}"
        f"{beside}{fewer}Spark more cores"
    )


def slots_warning(workers: int, total: int, held: Sequence[HeldSlots], active: int) -> str | None:
    """Return what to expect of a stage that fits, or None when slots stay free.

    `active` is the number of tasks that run now, of active runs and of other jobs. Other jobs refuse no run, because
    they may end at once.
    """
    taken = sum(each.workers for each in held)
    others = max(0, active - taken)
    if others + workers > total - taken:
        return f"the stage of {workers} workers waits for slots: tasks of other jobs take {others} of {total}"
    if total - taken == workers:
        return f"the stage takes all {workers} slots: no other job of this session can run beside it"
    return None


def rescale_problem(run: str, master: str, workers: int, total: int, held: Sequence[HeldSlots]) -> str | None:
    """Return the problem when a stage of `workers` does not fit into `total` slots in place of the stage of `run`.

    `held` are the slots of the other active runs.
    """
    free = total - sum(each.workers for each in held)
    if free >= workers:
        return None
    runs = "".join(f", {each.workers} of them held by run {each.run!r}" for each in held)
    fewer = f"Rescale to {free} at most, give" if free > 0 else "Stop another run, or give"
    way_out = f"stop the run, and submit it by BarrierRuntime(workers={free})" if free > 0 else "wait"
    return (
        f"run {run!r} is not rescaled, and goes on: its stage would need {workers} slots at one time, and {free} are "
        f"free for it when the present stage has ended ({master} has {total}{runs}). {fewer} Spark more cores, or "
        f"{way_out}"
    )


def fits_beside(workers: int, present: int, total: int, held: Sequence[HeldSlots], active: int) -> bool:
    """Return whether a stage of `workers` fits beside the stage of `present` workers that it follows.

    `active` is the number of tasks that run now, also of other jobs.
    """
    return total - max(active, present + sum(each.workers for each in held)) >= workers


def python_for(master: str, chosen: str, environment: Mapping[str, str]) -> str:
    """Return the Python that workers are started with.

    `chosen` is what the session has. For local masters Spark's default is replaced, because the driver's Python is
    known to have Cutline and the user's modules. A Python that the user has chosen stays.
    """
    if not is_local(master) or chosen != _SPARKS_PYTHON:
        return chosen
    return environment.get("PYSPARK_PYTHON") or sys.executable


def check_cluster(spark: SparkSession, workers: int, held: Sequence[HeldSlots]) -> None:
    """Refuse a session that cannot run a stage of `workers`. Blocks while executors register.

    Raises
    ------
    RunFailed
        if Spark allocates executors dynamically, or has too few free slots.
    """
    settings: Any = spark.conf
    setting: Callable[[str], str] = lambda key: str(settings.get(key, ""))  # noqa: E731
    _refuse(allocation_problem(setting("spark.master"), setting))
    if is_connect(spark):
        return
    context: Any = spark.sparkContext
    context.pythonExec = python_for(context.master, context.pythonExec, os.environ)
    total = slot_count(spark, workers + sum(each.workers for each in held))
    _refuse(slots_problem(context.master, workers, total, held))
    warning = slots_warning(workers, total, held, active_tasks(spark))
    if warning is not None:
        _logger.warning("%s", warning)


def check_rescale(spark: SparkSession, run: str, workers: int, present: int, others: Sequence[HeldSlots]) -> bool:
    """Refuse a session that cannot run a stage of `workers` in place of the run's stage of `present` workers.

    Return whether both stages fit side by side, which is not known with Connect.

    Raises
    ------
    RunFailed
        if Spark has too few slots besides those that `others` hold.
    """
    if is_connect(spark):
        return False
    total = slot_count(spark, workers + sum(each.workers for each in others))
    _refuse(rescale_problem(run, str(spark.sparkContext.master), workers, total, others))
    return fits_beside(workers, present, total, others, active_tasks(spark))


def _refuse(problem: str | None) -> None:
    if problem is not None:
        raise RunFailed(problem)
