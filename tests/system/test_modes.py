"""Runs of several modes at one time, live: whatever is killed, each output comes once, and each number counts once.

Runs share the waits, because a run waits most of the time while it recovers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Thread
from typing import Any, NamedTuple

import pytest

from benchmarks.live import Live, await_snapshots, wait_for
from benchmarks.process_table import coordinators, is_gone, kill, parent_of
from benchmarks.servers import PostgreSQLServer
from cutline import Run
from cutline.snapshot.plan.modes import mode_of, name_of_mode
from tests.system import test_records as records
from tests.system import test_steps as steps
from tests.system import test_totals as totals
from tests.system.other_driver import other_driver
from tests.system.totals import FEW_KEYS, Job, noted_store
from tests.system.totals import MODES as CLOCKS

pytestmark = [pytest.mark.spark, pytest.mark.ray, pytest.mark.slow, pytest.mark.timeout(600)]


class Case(NamedTuple):
    """A run in a mode, with a folder of its own."""

    submit: Callable[[], Run]
    #: waits until the run has gone on
    wait: Callable[[Run], object]
    #: lets the run end, judges its output, and returns how many messages came
    finish: Callable[[Run], int]
    #: judges what holds while the run goes on
    check: Callable[[Run], None]


@pytest.fixture(params=["steps", "totals"])
def group(request: pytest.FixtureRequest) -> str:
    """A half of the modes, because more runs at one time wait for processors and not for faults."""
    return str(request.param)


@pytest.fixture
def url(request: pytest.FixtureRequest, group: str) -> str:
    """The URL of a PostgreSQL server, where runs of the group need one."""
    if group == "steps":
        return ""
    server: PostgreSQLServer = request.getfixturevalue("postgresql")
    return server.url


def cases(live: Live, group: str, url: str) -> dict[str, Case]:
    """Return a run of each mode of a group, by name. The URL is that of a PostgreSQL server."""
    return _of_steps(live) if group == "steps" else _of_totals(live, url)


def _of_steps(live: Live) -> dict[str, Case]:
    found = {"records": _case(live.within("records"), records, records.await_records)}
    for name in ("log", "deltas", "versions"):
        there = live.within(name)
        found[name] = _case(there, steps, check=partial(_check_steps, there, name), mode=name)
    return found


def _of_totals(live: Live, url: str) -> dict[str, Case]:
    there = live.within("markers")
    found = {"markers": _case(there, totals, mode="markers")}  # whose totals lack what is in flight
    there = live.within("epochs")
    found["epochs"] = _case(there, totals, check=partial(_check_totals, there), mode="monoidClocks")
    for clock in ("epochs", "negotiated"):
        there = live.within(f"postgresql_{clock}")
        job = Job(there, noted_store(url, there.folder), FEW_KEYS, CLOCKS[clock])
        found[f"PostgreSQL, {clock}"] = Case(
            partial(job.submit, snapshotInterval=0.4), _await_snapshots, job.finish, _check_nothing
        )
    return found


def _await_snapshots(run: Run) -> None:
    await_snapshots(run, 2)


def _check_nothing(run: Run) -> None:
    pass


def _case(
    there: Live,
    program: Any,
    wait: Callable[[Run], object] = _await_snapshots,
    check: Callable[[Run], None] = _check_nothing,
    **how: Any,
) -> Case:
    return Case(partial(program.submit, there, **how), wait, partial(program.finished, there), check)


def _check_steps(there: Live, name: str, run: Run) -> None:
    shown = wait_for("steps in a snapshot", lambda: found if (found := run.status["mode"])["logBytes"] else None)
    assert shown["name"] == name_of_mode(mode_of(steps.mode_called(there, name))) and shown["logParts"] > 0


def _check_totals(there: Live, run: Run) -> None:
    found = totals.totals_of(there)
    assert found == totals.expected(found)


def _kill_workers(runs: Iterable[Run]) -> None:
    for run in runs:
        kill(run.status["workers"][0])


def _kill_tasks(runs: Iterable[Run]) -> None:
    for run in runs:
        kill(parent_of(run.status["workers"][0]))


def _kill_coordinators(runs: Iterable[Run]) -> None:
    for pid in coordinators():
        kill(pid)


#: (what is killed, the field of a status that grows thereby)
_FAULTS: list[tuple[Callable[[Iterable[Run]], None], str]] = [
    (_kill_workers, "incarnation"),
    (_kill_tasks, "incarnation"),
    (_kill_coordinators, "coordinator_start"),
]


def test_each_output_comes_once(live: Live, group: str, url: str) -> None:
    """Worker, task and coordinator of each run are killed, one after the other. Then it is stopped and goes on."""
    by_name = cases(live, group, url)
    runs = submitted(by_name)
    for fault, grows in _FAULTS:
        for name, run in runs.items():
            by_name[name].wait(run)
        before = {name: run.status[grows] for name, run in runs.items()}
        fault(runs.values())
        for name, run in runs.items():
            wait_for(f"the recovery of {name}", partial(_has_grown, run, grows, before[name]))
            by_name[name].check(run)
    _go_on(by_name, runs)
    _at_once({name: partial(run.stop, withSnapshot=True) for name, run in runs.items()})
    runs = submitted(by_name)
    _go_on(by_name, runs)
    _finish(by_name, runs)


def _has_grown(run: Run, field: str, before: float) -> bool:
    return bool(run.status[field] > before)


def submitted(by_name: dict[str, Case]) -> dict[str, Run]:
    """Submit all runs at one time."""
    return _at_once({name: case.submit for name, case in by_name.items()})


def _at_once(calls: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    """Return the results of calls, each on a thread of its own."""
    with ThreadPoolExecutor(len(calls)) as pool:
        started = {name: pool.submit(call) for name, call in calls.items()}
        return {name: future.result() for name, future in started.items()}


def _go_on(by_name: dict[str, Case], runs: dict[str, Run]) -> None:
    for name, run in runs.items():
        by_name[name].wait(run)
        by_name[name].check(run)


def _finish(by_name: dict[str, Case], runs: dict[str, Run]) -> None:
    counts = _at_once({name: partial(by_name[name].finish, run) for name, run in runs.items()})
    print(", ".join(f"{name}: {count:,}" for name, count in counts.items()))


_SUBMIT = """
from tests.system.test_modes import cases, in_driver
runs = in_driver(cases(live, "{group}", "{url}"))
"""


def in_driver(by_name: dict[str, Case]) -> list[Run]:
    """Submit all runs in a driver that is to be killed. Take snapshots of the run that takes none by itself."""
    runs = submitted(by_name)
    if "records" in runs:
        Thread(target=_take_snapshots, args=[runs["records"]], daemon=True).start()
    return [*runs.values()]


def _take_snapshots(run: Run) -> None:
    while True:
        run.takeSnapshot()


def test_a_killed_driver_is_resumed(live: Live, group: str, url: str) -> None:
    """Its workers end by themselves, write no more into a store, and each run goes on from what the driver left."""
    by_name = cases(live, group, url)
    with other_driver(live, _SUBMIT.format(group=group, url=url)) as driver:
        workers = [int(pid) for pid in driver.read_until("workers ").split()[1:]]
        kill(driver.pid)
        runs = submitted(by_name)
        _go_on(by_name, runs)
        assert wait_for("the end of the old workers", lambda: all(is_gone(pid) for pid in workers))
    assert len(workers) == 2 * len(by_name)
    _finish(by_name, runs)
