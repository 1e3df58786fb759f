"""Messages per second through a keyed running sum in Python, with snapshots off, seldom and often.

Beside it, in turn with it, a bare loop: as many processes, the same codec, one socket each, no runtime.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import Any, NamedTuple

from benchmarks.asking import Stretches
from benchmarks.bare_loop import bare_messages_per_second
from benchmarks.effort import Effort
from benchmarks.keyed_nodes import Messages, RunningSum
from benchmarks.keyed_rows import BURST_MESSAGES, KEY_COUNT, require_equal, sums_of_bursts
from benchmarks.result import Result, metric, paired_ratio
from benchmarks.session import Place
from benchmarks.stretches import compared, stretches_of
from benchmarks.timed_run import Timed, timed_run
from snapshot import Graph
from tests.system.live import Live

PARALLELISMS = (1, 2)
#: Seconds between snapshots; None: off.
INTERVALS = (None, 1.0, 0.1)


class Case(NamedTuple):
    """One configuration; sources send their bursts as lists, or each message by itself."""

    parallelism: int
    interval: float | None
    is_single: bool = False


def measure(effort: Effort, place: Place) -> Iterator[Result]:
    """One result for each parallelism and interval."""
    live = place()
    for parallelism in effort.choose(PARALLELISMS, PARALLELISMS[-1:]):
        off, single = Case(parallelism, None), Case(parallelism, None, is_single=True)
        runs: dict[Case, list[Timed]] = {case: [] for case in (*(Case(parallelism, i) for i in INTERVALS), single)}
        stretched: dict[Case, list[Timed]] = {case: [] for case in runs}
        bare: list[float] = []
        for _ in range(effort.repeats):
            for case, timed in runs.items():
                timed.append(_run(live, case, Messages(effort.seconds, is_single=case.is_single)))
                if case.interval is not None:
                    stretched[case].append(_run_in_stretches(live, case, stretches_of(effort, case.interval)))
            bare.append(bare_messages_per_second(parallelism, effort.seconds))
        for case, timed in runs.items():
            yield _result(case, timed, stretched[case], runs[off], bare, effort)


def _run_in_stretches(live: Live, case: Case, stretches: Stretches) -> Timed:
    records = Messages(stretches.run_seconds, stretches.seconds)
    return _run(live, case._replace(interval=None), records, stretches)


def _run(live: Live, case: Case, records: Messages, stretches: Stretches | None = None) -> Timed:
    graph = Graph("keyed-messages")
    graph.add("records", records, parallelism=case.parallelism)
    graph.add("sums", RunningSum(), parallelism=case.parallelism)
    graph.connect("records", "sums", key=itemgetter(0))
    if stretches is not None:
        stretches.ask(graph)
    timed = timed_run(
        live,
        graph,
        source="records",
        last="sums",
        seconds=records.seconds,
        interval=case.interval,
        workers=case.parallelism,
    )
    found: dict[Any, Any] = {}
    for sums in timed.results:
        assert isinstance(sums, dict)
        found |= sums
    require_equal("keyed-messages", found, sums_of_bursts(timed.rounds))
    return timed


def _rate(timed: Timed) -> float:
    return sum(timed.rounds) * BURST_MESSAGES / timed.seconds


def _result(
    case: Case, timed: list[Timed], stretched: list[Timed], off: list[Timed], bare: list[float], effort: Effort
) -> Result:
    rates = [_rate(each) for each in timed]
    ratios_within, metrics_within = compared(stretched)
    ratios = {"bare_loop": paired_ratio(rates, bare), **ratios_within}
    if case.is_single:
        ratios["in_lists"] = paired_ratio(rates, [_rate(each) for each in off])
    return Result(
        "keyed-messages",
        {
            "parallelism": case.parallelism,
            "snapshot_interval_s": case.interval,
            "payload": "messages",
            "sent": "one by one" if case.is_single else "in lists",
            "keys": KEY_COUNT,
            **effort.configuration(),
        },
        {
            "records_per_s": metric("records/s", rates),
            "startup_s": metric("s", [each.startup_seconds for each in timed]),
            "snapshots": metric("snapshots", [each.snapshots for each in timed]),
            "bare_loop_records_per_s": metric("records/s", bare),
            **metrics_within,
        },
        ratios,
    )
