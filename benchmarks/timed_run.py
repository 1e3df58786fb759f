"""Run a bounded graph to its end, and measure from its first record to its last."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from benchmarks.live import Live
from benchmarks.run_size import MARGIN_SECONDS
from benchmarks.session import scratch
from cutline import FileSystemBackend, Graph, Run, Snapshot
from cutline.snapshot.ids import first_snapshot_id


class Timed(NamedTuple):
    """Times and results of a finished run."""

    #: seconds from submit to the first record of any source
    startup_seconds: float
    #: seconds from the first record to the last
    seconds: float
    #: rounds of each source subtask
    rounds: list[int]
    #: {number of the window: rounds of all source subtasks in it}
    by_window: Mapping[int, int]
    #: result of each subtask of the node that ends last
    results: list[Any]
    #: number of snapshots, aborted ones included
    snapshots: int
    #: {node: state of each subtask} of the nodes that the caller named
    states: Mapping[str, list[Any]]


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
    others: Sequence[str] = (),
    watch: Callable[[Run], AbstractContextManager[None]] = lambda run: nullcontext(),
) -> Timed:
    """Run `graph` to its end with local files as backend.

    States must be those of `benchmarks.keyed_nodes`. A subtask of `source` has (when it began, rounds, rounds by
    window). A subtask of `last` has (when it ended, its result). The states of the nodes in `others` may be any. The
    context manager `watch` is open during the run.

    Raises
    ------
    RuntimeError
        if the run took far longer than its sources send, or restarted. Its times mean nothing then.
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
        return _timed(submitted_at, run.snapshots()[-1], source, last, others)


def _timed(submitted_at: float, final: Snapshot, source: str, last: str, others: Sequence[str]) -> Timed:
    began = final.node(source).states
    ended = final.node(last).states
    first_at, last_at = min(at for at, _, _ in began), max(at for at, _ in ended)
    return Timed(
        startup_seconds=first_at - submitted_at,
        seconds=last_at - first_at,
        rounds=[rounds for _, rounds, _ in began],
        by_window=sum((Counter(by_window) for _, _, by_window in began), Counter()),
        results=[result for _, result in ended],
        snapshots=final.id - first_snapshot_id(1) + 1,
        states={name: list(final.node(name).states) for name in others},
    )
