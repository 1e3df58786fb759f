"""Measure the input of a run before, while and after the store of its totals is away, and how often a key is written.

A word count keeps its totals in PostgreSQL. Most snapshots change all keys.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.keyed_rows import bursts
from benchmarks.live import Live, await_snapshots
from benchmarks.mode_totals import finish_totals
from benchmarks.result import Result, metric
from benchmarks.run_size import Cases, RunSize, show_progress
from benchmarks.servers import PostgreSQLServer, Server
from benchmarks.session import Place, scratch
from benchmarks.totalled_nodes import CountedStore, Handled, totals_graph
from cutline import FileSystemBackend, Run
from cutline.snapshot.errors import CutlineError
from cutline.snapshot.plan.modes import ModeWish, MonoidClocks

#: Subtasks of the source and of the aggregate, and workers.
PARALLELISM = 2
#: Seconds between snapshots.
INTERVAL_S = 1.0
#: Seconds for which the store is away, and seconds before and after that.
OUTAGE_S, QUICK_OUTAGE_S = 20.0, 2.0
AROUND_S, QUICK_AROUND_S = 8.0, 2.0

_JOB = "wordcount"
_MODES: dict[str, ModeWish] = {
    "markers": "markers",
    "monoidClocks": MonoidClocks(),
    "monoidClocks-negotiated": MonoidClocks(clock="negotiated"),
}
#: {how the server is away: (what ends its work, what begins it again)}
_FAILURES: dict[str, tuple[Callable[[Server], None], Callable[[Server], None]]] = {
    "paused": (Server.pause, Server.resume),
    "stopped": (Server.stop, Server.start),
}


class _Case(NamedTuple):
    mode: str
    failure: str


def configurations(size: RunSize) -> Cases:
    """Return one case for each mode and failure."""
    return {
        _Case(mode, failure): {
            "mode": mode,
            "failure": failure,
            "outage_s": size.choose(OUTAGE_S, QUICK_OUTAGE_S),
            "interval_s": INTERVAL_S,
            **size.configuration(),
        }
        for mode in _MODES
        for failure in _FAILURES
    }


def measure(cases: Cases, size: RunSize, place: Place) -> Iterator[Result]:
    """Yield one result for each case. Each case has one run, because a run takes most of a minute."""
    live = place()
    for case, configuration in cases.items():
        show_progress("store-outage", configuration, 1, 1)
        with scratch(live) as folder, PostgreSQLServer() as server:
            rates, writes_per_key = _measure(live, folder, case, server, size)
        before, during, after = rates
        metrics = {
            "records_per_s": metric("records/s", [before]),
            "records_per_s_meanwhile": metric("records/s", [during]),
            "records_per_s_after": metric("records/s", [after]),
            "writes_per_key_and_snapshot": metric("writes", [writes_per_key]),
        }
        yield Result("store-outage", configuration, metrics, {"before": during / before})


def _measure(
    live: Live, folder: Path, case: _Case, server: PostgreSQLServer, size: RunSize
) -> tuple[tuple[float, float, float], float]:
    store = CountedStore(server.url, folder)
    backend = FileSystemBackend(folder / "snapshots")
    runtime = live.runtime(backend=backend, snapshotInterval=INTERVAL_S, workers=PARALLELISM)
    run = live.submit(runtime, totals_graph(_JOB, folder, store, PARALLELISM), mode=_MODES[case.mode])
    await_snapshots(run, 2)
    handled, around_s = Handled(folder / "handled"), size.choose(AROUND_S, QUICK_AROUND_S)
    away, back = _FAILURES[case.failure]
    before = _rate(run, handled, around_s)
    away(server)
    try:
        during = _rate(run, handled, size.choose(OUTAGE_S, QUICK_OUTAGE_S))
    finally:
        back(server)
    await_snapshots(run, 2)
    after = _rate(run, handled, around_s)
    finish_totals(run, _JOB, folder, server)
    if run.status["abortedCount"] or run.status["restartCount"]:
        raise CutlineError(f"store-outage: snapshots were aborted, or the run restarted: {run.status}")
    return (before, during, after), _writes_per_key(store)


def _rate(run: Run, handled: Handled, seconds: float) -> float:
    """Return records that the aggregate handles a second."""
    incarnation = run.status["incarnation"]
    records, began = handled.in_incarnation(incarnation), time.monotonic()
    threading.Event().wait(seconds)
    return (handled.in_incarnation(incarnation) - records) / (time.monotonic() - began)


def _writes_per_key(store: CountedStore) -> float:
    """Return the most cells that were written for a snapshot, divided by the number of keys."""
    keys = len({word for burst in bursts() for word, _ in burst})
    return max(store.cells().values()) / keys
