"""Measure the pause of `Run.rescale`, beside a plain restart, and how much is restored a second.

A plain restart stops the run with a snapshot, and submits the graph at the new parallelism in the same session. The
pause lasts from the last record of the old subtasks to the first record that no old subtask has output.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.live import DEADLINE_S, Live, await_snapshots, wait_for
from benchmarks.rescaled_nodes import LANES, Output, everywhere, lanes_graph, pause_seconds
from benchmarks.result import Result, metric
from benchmarks.run_size import Cases, Configuration, RunSize, show_progress
from benchmarks.session import Place, scratch
from cutline import BarrierRuntime, FileSystemBackend, Run
from cutline.snapshot.errors import CutlineError
from cutline.snapshot.graph import Graph
from cutline.snapshot.stored.snapshot import Snapshot


class State(NamedTuple):
    """What is restored."""

    rows: int
    #: records a second of the source, or 0 for as many as the channels take
    rate: float
    #: seconds that the output takes for a record, so that messages wait in all channels
    delay: float


STATES = {
    "small": State(0, 2_000.0, 0.0),
    "rows": State(480_000, 2_000.0, 0.0),
    "messages": State(0, 0.0, 0.0002),
}

#: (parallelism before, parallelism after) of all nodes. The session has four slots, so the stages of the first pair are
#: side by side for a moment.
PAIRS = ((1, 2), (2, 4), (4, 2))

#: Seconds between two polls of the phase of a run.
_POLL_S = 0.002


class Case(NamedTuple):
    """A rescale."""

    before: int
    after: int
    state: str


class Rescaled(NamedTuple):
    """Figures of one rescale."""

    pause: float
    #: seconds in which the new subtasks were restored
    restoring: float
    messages: int


def configurations(size: RunSize) -> Cases:
    """Return one case for each state and each pair of parallelisms."""
    return {
        Case(*pair, state): _configuration(*pair, state, size)
        for state in size.choose(tuple(STATES), ("small",))
        for pair in size.choose(PAIRS, PAIRS[:2])
    }


def _configuration(before: int, after: int, state: str, size: RunSize) -> Configuration:
    return {"parallelism_from": before, "parallelism_to": after, "state": state, **size.configuration()}


def measure(cases: Cases, size: RunSize, place: Place) -> Iterator[Result]:
    """Yield one result for each case. Of each round, the plain restart follows the rescale."""
    live = place()
    for case, configuration in cases.items():
        rescaled, restarted = [], []
        for number in range(size.repeats):
            show_progress("rescale", configuration, number + 1, size.repeats)
            with scratch(live) as folder:
                rescaled.append(_rescale(live, folder, case))
            with scratch(live) as folder:
                restarted.append(_restart(live, folder, case))
        yield _result(case, configuration, rescaled, restarted)


def _result(case: Case, configuration: Configuration, rescaled: list[Rescaled], restarted: list[float]) -> Result:
    pause = metric("s", [each.pause for each in rescaled])
    restart = metric("s", restarted)
    metrics = {"pause_s": pause, "plain_restart_s": restart}
    rows = STATES[case.state].rows // LANES * LANES
    if rows:
        metrics["rows_per_s"] = metric("rows/s", [rows / each.restoring for each in rescaled])
    if case.state == "messages":
        metrics["messages_per_s"] = metric("messages/s", [each.messages / each.restoring for each in rescaled])
    return Result("rescale", configuration, metrics, {"plain_restart": pause.median / restart.median})


def _start(live: Live, folder: Path, case: Case) -> tuple[BarrierRuntime, Graph, Run]:
    state = STATES[case.state]
    sink = Output(folder / "job", state.delay)
    graph = lanes_graph(folder / "job", case.before, rate=state.rate, rows=state.rows, sink=sink)
    runtime = live.runtime(backend=FileSystemBackend(folder / "snapshots"), snapshotInterval=0.5)
    run = live.submit(runtime, graph)
    await_snapshots(run, 3)
    return runtime, graph, run


def _rescale(live: Live, folder: Path, case: Case) -> Rescaled:
    _, _, run = _start(live, folder, case)
    before = run.status["incarnation"]
    snapshot, restoring = _watched(run, case.after)
    pause = _pause(folder, before)
    _finish(folder, run)
    return Rescaled(pause, restoring, _in_flight(snapshot))


def _in_flight(snapshot: Snapshot) -> int:
    channels = (snapshot.channel(each.source, each.target) for each in snapshot.channels)
    return sum(each.sent - each.processed for each in channels)


def _watched(run: Run, parallelism: int) -> tuple[Snapshot, float]:
    """Rescale a run. Return the snapshot, and the seconds in which the run was in the phase "restoring"."""
    found: list[Snapshot] = []
    working = threading.Thread(target=lambda: found.append(run.rescale(everywhere(parallelism))))
    working.start()
    began = ended = 0.0
    while working.is_alive():
        is_restoring = run.status["phase"] == "restoring"
        began = began or (time.monotonic() if is_restoring else 0.0)
        ended = time.monotonic() if is_restoring else ended
        time.sleep(_POLL_S)
    working.join()
    return found[0], max(ended - began, _POLL_S)


def _restart(live: Live, folder: Path, case: Case) -> float:
    runtime, graph, run = _start(live, folder, case)
    before = run.status["incarnation"]
    run.stop(withSnapshot=True)
    again = live.submit(runtime, graph.withParallelism(everywhere(case.after)))
    pause = _pause(folder, before)
    _finish(folder, again)
    return pause


def _pause(folder: Path, incarnation: int) -> float:
    return float(wait_for("a new record", lambda: pause_seconds(folder / "job", incarnation)))


def _finish(folder: Path, run: Run) -> None:
    """Let the run end. Its nodes raise at a record that is lost, doubled or late."""
    (folder / "job" / "enough").touch()
    if not run.awaitTermination(DEADLINE_S):
        raise CutlineError(f"rescale: run {run.name} did not end in {DEADLINE_S:g} s")
