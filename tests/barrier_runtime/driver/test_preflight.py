"""The checks of `submit`, enumerated without Spark: each refuses exactly what cannot run, in one sentence."""

from __future__ import annotations

import itertools
import sys
from types import SimpleNamespace
from typing import Any, cast

import pytest

from cutline.barrier_runtime.driver import preflight, stage
from cutline.barrier_runtime.driver.preflight import (
    HeldSlots,
    allocation_problem,
    check_cluster,
    python_for,
    run_name_problem,
    slots_problem,
    slots_warning,
)
from cutline.channels.handshake import ClientHandshake
from cutline.channels.identity import Identity, Purpose
from cutline.channels.limits import NAME_BYTES_MAX
from cutline.snapshot import error_text
from cutline.snapshot.errors import GraphError, RunFailed
from cutline.snapshot.plan.validation import NAME_CHARACTERS_MAX

LOCAL = ("local", "local[1]", "local[*]", "local[4,2]")
CLUSTERS = ("local-cluster[2,1,1024]", "spark://host:7077", "yarn", "k8s://https://host")
ENABLED, TESTING = "spark.dynamicAllocation.enabled", "spark.dynamicAllocation.testing"


@pytest.mark.parametrize("letter", ["x", "ö", "座", "\U00010400"])
def test_a_run_is_named_by_what_a_handshake_carries(letter: str) -> None:
    """For every length: a name is allowed exactly if its characters and its bytes are."""
    for length in range(1, NAME_CHARACTERS_MAX + 2):
        name = letter * length
        fits = length <= NAME_CHARACTERS_MAX and len(name.encode()) <= NAME_BYTES_MAX
        problem = run_name_problem(name)
        assert (problem is None) == fits
        if fits:
            ClientHandshake(bytes(32), Identity(name, "worker-0", 0), "coordinator", Purpose.CONTROL, bytes(32)).start()
        elif length <= NAME_CHARACTERS_MAX:
            assert problem == f"has {len(name.encode())} bytes in UTF-8: a run's name has {NAME_BYTES_MAX} at most"


def test_a_run_is_named_by_a_word() -> None:
    """The rules of every other name hold too."""
    assert run_name_problem("a/b") is not None
    assert run_name_problem(7) is not None
    assert run_name_problem("") is not None


@pytest.mark.parametrize("master", LOCAL + CLUSTERS)
@pytest.mark.parametrize(("enabled", "testing"), [*itertools.product(("", "false", "true", " TRUE "), repeat=2)])
def test_dynamic_allocation_is_refused_where_spark_has_it(master: str, enabled: str, testing: str) -> None:
    """Spark ignores it for local masters, except in its own tests."""
    has_it = enabled.strip().lower() == "true" and (master in CLUSTERS or testing.strip().lower() == "true")
    problem = allocation_problem(master, {ENABLED: enabled, TESTING: testing}.__getitem__)
    assert (problem is not None) == has_it
    assert problem is None or "spark.dynamicAllocation.enabled=false" in problem


def test_slots_are_counted_beside_active_runs() -> None:
    """For every small number of slots, workers and held slots, with what to do next."""
    for total, workers, first, second in itertools.product(range(1, 7), range(1, 7), range(4), range(3)):
        held = [HeldSlots(name, count) for name, count in (("a", first), ("b", second)) if count]
        problem = slots_problem("local[9]", workers, total, held)
        free = total - first - second
        assert (problem is None) == (workers <= free)
        if problem is None:
            continue
        assert problem.startswith(
            f"a stage of {workers} workers needs {workers} slots at one time; local[9] has {total}"
        )
        assert (f"BarrierRuntime(workers={free})" in problem) == (free > 0)
        assert ("Stop one" in problem) == bool(held)
        assert all(f"'{each.run}': {each.workers}" in problem for each in held)


def test_slots_that_fit_are_warned_of_when_none_is_left() -> None:
    """Tasks of other jobs may end, so they only make a stage wait; tasks of runs are counted once."""
    held = [HeldSlots("a", 2)]
    assert slots_warning(2, 5, held, 2) is None
    assert slots_warning(2, 5, held, 0) is None  # a run that is starting has no tasks yet
    assert slots_warning(2, 5, held, 3) is None
    assert slots_warning(3, 5, held, 2) == "the stage takes all 3 slots: no other job of this session can run beside it"
    assert slots_warning(2, 5, held, 4) == "the stage of 2 workers waits for slots: tasks of other jobs take 2 of 5"
    assert slots_warning(2, 2, [], 1) == "the stage of 2 workers waits for slots: tasks of other jobs take 1 of 2"


@pytest.mark.parametrize("master", LOCAL + CLUSTERS)
@pytest.mark.parametrize("chosen", ["python3", "/opt/python"])
@pytest.mark.parametrize("environment", [{}, {"PYSPARK_PYTHON": ""}, {"PYSPARK_PYTHON": "/set/later"}])
def test_a_local_master_has_the_drivers_python(master: str, chosen: str, environment: dict[str, str]) -> None:
    """Only Spark's default is replaced, and only beside the driver. PYSPARK_PYTHON counts even if set late."""
    later = environment.get("PYSPARK_PYTHON") or sys.executable
    wanted = later if master in LOCAL and chosen == "python3" else chosen
    assert python_for(master, chosen, environment) == wanted


class Session:
    """A classic session with so many slots and settings."""

    def __init__(self, master: str, **settings: str) -> None:
        known = {"spark.master": master} | {f"spark.dynamicAllocation.{key}": value for key, value in settings.items()}
        self.conf = SimpleNamespace(get=known.get)
        self.sparkContext = SimpleNamespace(master=master, pythonExec="python3")


@pytest.fixture
def slots(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """What Spark would answer."""
    found = {"total": 3, "active": 0}
    monkeypatch.setattr(
        preflight, "slot_count", lambda spark, wanted: found.setdefault("wanted", wanted) and found["total"]
    )
    monkeypatch.setattr(preflight, "active_tasks", lambda spark: found["active"])
    monkeypatch.setattr(preflight, "is_connect", lambda spark: False)
    return found


def test_a_session_is_checked_and_repaired(slots: dict[str, int], caplog: pytest.LogCaptureFixture) -> None:
    """A local session gets the Python; all slots that are needed are awaited; the warning is logged."""
    session: Any = Session("local[3]", enabled="true")
    check_cluster(session, 1, [HeldSlots("a", 2)])
    assert session.sparkContext.pythonExec == sys.executable
    assert slots["wanted"] == 3
    assert ["takes all 1 slots" in record.getMessage() for record in caplog.records] == [True]
    with pytest.raises(RunFailed, match=r"needs 2 slots .*'a': 2"):
        check_cluster(session, 2, [HeldSlots("a", 2)])
    with pytest.raises(RunFailed, match="dynamic allocation"):
        check_cluster(cast(Any, Session("yarn", enabled="true")), 1, [])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ModuleNotFoundError: No module named 'cutline'", "lacks the module 'cutline': set PYSPARK"),
        ("[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.9 than that in driver: 3.11, PySpark",
         "is version 3.9, not the driver's: set PYSPARK"),
        ('IOException: Cannot run program "/no/python": error=2', "cannot be started as '/no/python': set PYSPARK"),
    ],
)  # fmt: skip
def test_a_wrong_python_of_executors_is_final(text: str, said: str) -> None:
    """Another attempt would find the same Python."""
    session = cast(Any, SimpleNamespace(sparkContext=SimpleNamespace(_jsc=1), _jsc=1))
    reason = stage.why_final(session, RuntimeError(f"Job aborted\n{text}\n\tat org.apache.spark"))
    assert reason is not None
    assert reason.startswith(f"the Python of the executors {said}")


def test_other_errors_are_not_final() -> None:
    """A lost executor comes back; a fault of the graph is quoted."""
    session = cast(Any, SimpleNamespace(sparkContext=SimpleNamespace(_jsc=1), _jsc=1))
    assert stage.why_final(session, RuntimeError("ExecutorLostFailure")) is None
    said = error_text.describe(GraphError("no module"))
    missing = "Traceback\nModuleNotFoundError: No module named 'mine'"
    text = f"Job aborted\nsnapshot.errors.RunFailed: worker 1 left with code 4: {said}\n{missing}"
    assert stage.why_final(session, RuntimeError(text)) == "no module"
