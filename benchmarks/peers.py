"""Measure a keyed sum that sends one result for each record, with a snapshot each second, beside Bytewax.

Both sides make the same records in bursts of the same size, keep one sum for each key, and count the results in a
further node. A rate counts from the first record of a source to the last result. The sums and the number of results of
each run are compared with those of a plain loop over the bursts that the run sent.

Bytewax runs in turn with Cutline, on one core and on two (`benchmarks.bytewax_peer`). A loop that calls the same nodes
without a runtime is the limit (`benchmarks.emitting_loop`).

Experiments with Bytewax, in runs of 2 s in turn:

* Forms of the keyed step, medians in 1,000 records/s: 710 with `stateful_batch`, 640 with `stateful`, 570 with
  `stateful_map`, and 520 with `key_on` before `stateful_map`. So the benchmark has `stateful_batch`.
* Records that the source returns in a call of `next_batch`: 710 with 256, 570 with 10, 180 with 1, which is the default
  of Bytewax's `TestingSource`. Returning 1,024 made no clear difference.
* Two workers: 360 as threads of one process, and 530 as two processes. Bytewax's documentation advises processes,
  because threads share the interpreter's lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.bytewax_peer import SNAPSHOT_SECONDS, VERSION, installed, run_peer
from benchmarks.emitting_loop import loop_records_per_second
from benchmarks.emitting_nodes import SENDS, Send, nodes_of
from benchmarks.keyed_rows import BURST_MESSAGES, KEY_COUNT, require_equal, sums_of_bursts
from benchmarks.live import Live
from benchmarks.result import Result, metric, paired_ratio
from benchmarks.run_size import Cases, Configuration, RunSize, show_progress
from benchmarks.session import Place, scratch
from benchmarks.timed_run import Timed, timed_run
from cutline import Graph


class Case(NamedTuple):
    """Parameters of one configuration."""

    parallelism: int
    send: Send


CASES = tuple(Case(parallelism, send) for parallelism in (1, 2) for send in SENDS)
QUICK_CASES = (Case(1, "list"), Case(2, "hook"))


class Round(NamedTuple):
    """Records per second of one round of one configuration, measured in turn."""

    ours: float
    loop: float
    #: {workers: records per second of Bytewax}
    peer: dict[int, float]
    #: records per second of Bytewax on one core, one by one
    peer_one_by_one: float


def configurations(size: RunSize) -> Cases:
    """Return one case for each parallelism and way of sending."""
    return {
        case: {
            "parallelism": case.parallelism,
            "send": case.send,
            "peer": f"bytewax {VERSION}",
            "snapshot_interval_s": float(SNAPSHOT_SECONDS),
            "keys": KEY_COUNT,
            **size.configuration(),
        }
        for case in size.choose(CASES, QUICK_CASES)
    }


def measure(cases: Cases, size: RunSize, place: Place) -> Iterator[Result]:
    """Yield one result for each case."""
    python = installed()
    live = place()
    rounds: dict[Case, list[Round]] = {case: [] for case in cases}
    for number in range(size.repeats):
        for case, found in rounds.items():
            show_progress("peers", cases[case], number + 1, size.repeats)
            # Both run for each case, although cases could share a run of Bytewax, because the machine drifts.
            peer = {each: _peer(live, python, each, size.seconds) for each in range(1, case.parallelism + 1)}
            one_by_one = _peer(live, python, 1, size.seconds, is_single=True)
            ours = rate_of(run_case(live, case, size.seconds))
            bare_loop = loop_records_per_second(case.send, case.parallelism, size.seconds)
            found.append(Round(ours, bare_loop, peer, one_by_one))
    for case, found in rounds.items():
        yield result_of(cases[case], found)


def _peer(live: Live, python: Path, workers: int, seconds: float, *, is_single: bool = False) -> float:
    with scratch(live) as folder:
        return run_peer(python, folder, workers, seconds, is_single=is_single).records_per_second


def run_case(live: Live, case: Case, seconds: float) -> Timed:
    """Run the job on Cutline, and compare its sums and its number of results with those of a plain loop."""
    nodes = nodes_of(case.send, seconds)
    graph = Graph("peers")
    for name, node in nodes._asdict().items():
        graph.add(name, node, parallelism=case.parallelism)
    graph.connect("source", "sums", key=itemgetter(0))
    graph.connect("sums", "results")
    timed = timed_run(
        live,
        graph,
        source="source",
        last="results",
        seconds=seconds,
        interval=SNAPSHOT_SECONDS,
        workers=case.parallelism,
        others=("sums",),
    )
    found: dict[Any, Any] = {}
    for _, sums in timed.states["sums"]:
        found |= sums
    require_equal("peers", found, sums_of_bursts(timed.rounds))
    require_equal("peers", {"results": sum(timed.results)}, {"results": sum(timed.rounds) * BURST_MESSAGES})
    return timed


def rate_of(timed: Timed) -> float:
    """Return records sent, by the seconds from the first record to the last result."""
    return sum(timed.rounds) * BURST_MESSAGES / timed.seconds


def result_of(configuration: Configuration, rounds: list[Round]) -> Result:
    """Make the result of one configuration. Bytewax's faster number of cores counts in each round."""
    ours, loop = [each.ours for each in rounds], [each.loop for each in rounds]
    best, one_by_one = [max(each.peer.values()) for each in rounds], [each.peer_one_by_one for each in rounds]
    metrics = {
        "records_per_s": metric("records/s", ours),
        "peer_records_per_s": metric("records/s", best),
        "peer_one_by_one_records_per_s": metric("records/s", one_by_one),
        "loop_records_per_s": metric("records/s", loop),
    }
    if configuration["parallelism"] > 1:
        for workers in rounds[0].peer:
            rates = [each.peer[workers] for each in rounds]
            metrics[f"peer_on_{workers}_records_per_s"] = metric("records/s", rates)
    ratios = {
        "bytewax": paired_ratio(ours, best),
        "bytewax_one_by_one": paired_ratio(ours, one_by_one),
        "bare_loop": paired_ratio(ours, loop),
    }
    return Result("peers", configuration, metrics, ratios)
