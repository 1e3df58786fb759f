"""Measure messages per second through a keyed running sum in Python, without snapshots, every second and every 0.1 s.

A plain loop runs in turn with the sum (`benchmarks.baseline_loop`). The cost of snapshots is measured within one run
(`benchmarks.interleaved_windows`). The steps of a message are measured alone by `benchmarks.message_floor`.

Messages are sent in lists of 256 by default. A single message costs a call, a search for the target of its key, a list
made of its tuple, and a call of MessagePack. `Context.sendAll` needs a few calls for 256 messages to each subtask.

Experiments:

* Encode flat tuples (numbers, text, bytes, bools and None only) in frames of their own kind. The receiver need not
  convert lists to tuples, because the kind of the frame means tuples. Decoding fell from 115 to 69 ns a message.
* Encode lists of flat tuples by msgspec: 24 ns a message, and 96 by msgpack, to the same bytes. Other messages go
  through msgpack, because msgspec knows no extensions. From source to sum in one process took 0.78 of the time (median
  of four runs of each, in turn). Sending fell from 357 to 262 ns.
* Send fewer than 16 messages to each subtask as a list: no gain, so such messages are sent one by one.
* Hold single messages until several can be encoded together: rejected. A tuple that holds a list may be changed by its
  sender. Restricted to flat tuples it cost 10 %, for a loop over the values of each message.
* Send lists of 64 or 128 messages instead of 256: 5 to 10 % slower.
* Fill frames of 16 KiB instead of 32 KiB: 2 % faster.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from typing import Any, NamedTuple

from benchmarks.baseline_loop import baseline_messages_per_second
from benchmarks.interleaved_windows import compared, windows_of
from benchmarks.keyed_nodes import Messages, RunningSum
from benchmarks.keyed_rows import BURST_MESSAGES, KEY_COUNT, require_equal, sums_of_bursts
from benchmarks.live import Live
from benchmarks.result import Result, metric, paired_ratio
from benchmarks.run_size import Cases, Configuration, RunSize, show_progress
from benchmarks.session import Place
from benchmarks.snapshot_trigger_source import InterleavedWindows
from benchmarks.timed_run import Timed, timed_run
from cutline import Graph


class Case(NamedTuple):
    """Parameters of one configuration."""

    parallelism: int
    #: seconds between snapshots, or None for no snapshots
    interval: float | None
    #: whether sources send each message by itself, and not their bursts as lists
    is_single: bool = False


CASES = tuple(
    case
    for parallelism in (1, 2)
    for case in (
        *(Case(parallelism, interval) for interval in (None, 1.0, 0.1)),
        Case(parallelism, None, is_single=True),
    )
)
QUICK_CASES = (Case(2, None), Case(2, 0.1), Case(2, None, is_single=True))


def configurations(size: RunSize) -> Cases:
    """Return one case for each parallelism and interval, and one with messages sent one by one."""
    return {
        case: {
            "parallelism": case.parallelism,
            "snapshot_interval_s": case.interval,
            "payload": "messages",
            "sent": "one by one" if case.is_single else "in lists",
            "keys": KEY_COUNT,
            **size.configuration(),
        }
        for case in size.choose(CASES, QUICK_CASES)
    }


def measure(cases: Cases, size: RunSize, place: Place) -> Iterator[Result]:
    """Yield one result for each case."""
    live = place()
    for parallelism in dict.fromkeys(case.parallelism for case in cases):
        runs: dict[Case, list[Timed]] = {case: [] for case in cases if case.parallelism == parallelism}
        interleaved: dict[Case, list[Timed]] = {case: [] for case in runs}
        baseline: list[float] = []
        for number in range(size.repeats):
            for case, timed in runs.items():
                show_progress("keyed-messages", cases[case], number + 1, size.repeats)
                timed.append(_run(live, case, Messages(size.seconds, is_single=case.is_single)))
                if case.interval is not None:
                    interleaved[case].append(_run_in_windows(live, case, windows_of(size, case.interval)))
            baseline.append(baseline_messages_per_second(parallelism, size.seconds))
        for case, timed in runs.items():
            in_lists = runs.get(case._replace(is_single=False), []) if case.is_single else []
            yield _result(cases[case], timed, interleaved[case], in_lists, baseline)


def _run_in_windows(live: Live, case: Case, windows: InterleavedWindows) -> Timed:
    records = Messages(windows.run_seconds, windows.seconds)
    return _run(live, case._replace(interval=None), records, windows)


def _run(live: Live, case: Case, records: Messages, windows: InterleavedWindows | None = None) -> Timed:
    graph = Graph("keyed-messages")
    graph.add("records", records, parallelism=case.parallelism)
    graph.add("sums", RunningSum(), parallelism=case.parallelism)
    graph.connect("records", "sums", key=itemgetter(0))
    if windows is not None:
        windows.add_trigger(graph)
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
    configuration: Configuration,
    timed: list[Timed],
    interleaved: list[Timed],
    in_lists: list[Timed],
    baseline: list[float],
) -> Result:
    rates = [_rate(each) for each in timed]
    ratios_within, metrics_within = compared(interleaved)
    ratios = {"bare_loop": paired_ratio(rates, baseline), **ratios_within}
    if in_lists:
        ratios["in_lists"] = paired_ratio(rates, [_rate(each) for each in in_lists])
    metrics = {
        "records_per_s": metric("records/s", rates),
        "startup_s": metric("s", [each.startup_seconds for each in timed]),
        "snapshots": metric("snapshots", [each.snapshots for each in timed]),
        "bare_loop_records_per_s": metric("records/s", baseline),
        **metrics_within,
    }
    return Result("keyed-messages", configuration, metrics, ratios)
