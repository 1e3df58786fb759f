"""A bounded run from its first record to its last, and what it came to."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from barrier_runtime import Run
from benchmarks.session import scratch
from snapshot import Graph, Snapshot
from snapshot.ids import first_snapshot_id
from state_backends import FileSystemBackend
from tests.system.live import Live

#: Seconds beyond those of its sources that a run may take: its start, its last snapshot, a crowded machine.
MARGIN_SECONDS = 90.0


class Timed(NamedTuple):
    """One finished run. `final` was read: its parts are removed with the run's folder."""

    #: from submit to the first record of any source
    startup_seconds: float
    #: from the first record to the last
    seconds: float
    #: rounds of each source
    rounds: list[int]
    #: {stretch: rounds of all sources in it}
    by_stretch: Mapping[int, int]
    #: of each subtask of the node that ends last, what it computed
    results: list[object]
    #: published and aborted
    snapshots: int


def timed_run(
    live: Live,
    graph: Graph,
    *,
    source: str,
    last: str,
    seconds: float,
    interval: float | None,
    workers: int,
    page: bool = False,
    watch: Callable[[Run], AbstractContextManager[None]] = lambda run: nullcontext(),
) -> Timed:
    """Run `graph` to its end with local files as backend.

    States must be those of `benchmarks.keyed_nodes`: (when it began, rounds, rounds by stretch) of `source`, (when it
    ended, what it computed) of `last`. `watch` accompanies the run.

    Raises
    ------
    RuntimeError
        if it took far longer than its sources send, or restarted: its times mean nothing then.
    """
    with scratch(live) as folder:
        submitted_at = time.monotonic()
        backend = FileSystemBackend(folder)
        run = live.run(graph, backend=backend, snapshotInterval=interval, workers=workers, page=page)
        with watch(run):
            has_ended = run.awaitTermination(seconds + MARGIN_SECONDS)
        if not has_ended:
            raise RuntimeError(f"{graph.name} has not ended: {run.status}")
        if run.status["restarts"]:
            raise RuntimeError(f"{graph.name} restarted: {run.status['restarts']}")
        return _timed(submitted_at, run.snapshots()[-1], source, last)


def _timed(submitted_at: float, final: Snapshot, source: str, last: str) -> Timed:
    began = final.node(source).states
    ended = final.node(last).states
    first_at, last_at = min(at for at, _, _ in began), max(at for at, _ in ended)
    return Timed(
        startup_seconds=first_at - submitted_at,
        seconds=last_at - first_at,
        rounds=[rounds for _, rounds, _ in began],
        by_stretch=sum((Counter(by_stretch) for _, _, by_stretch in began), Counter()),
        results=[result for _, result in ended],
        snapshots=final.id - first_snapshot_id(1) + 1,
    )
