"""Measure rows per second through the vectorised keyed aggregate, without snapshots, every second and every 0.1 s.

DuckDB and Polars group the same rows at once on as many cores, in turn with the aggregate (`benchmarks.group_by`). The
cost of snapshots is measured within one run (`benchmarks.interleaved_windows`).

With two workers rows are split by key, and half of them change the worker. The threads of DuckDB move groups. With
everything in the caches a row takes 12 ns: 5.0 to split, 1.2 to encode, and 5.4 to group in halves of a batch. A single
process that plays both workers takes 21 ns, and two processes take 29. Each step touches memory that the step before
drove out of the second-level cache. No step has above 13 %. `PartialAggregate` groups where the rows are, and sends
groups: 4 M rows become 10,000. Partial aggregation needs keys that repeat, and a target that adds up.

Two batches of a MiB wait on each channel within a worker, and up to six between two workers. All of them are in every
unaligned snapshot.

Experiments:

* Give a channel within a worker room for one large frame, not three, because its two sides take turns anyway. Ten
  snapshots a second left 0.71 to 0.79 of the throughput before, 0.79 to 0.89 after (five runs each, in turn).
* Set ``alignment=0.1`` on the edge between source and partial aggregate. While six batches waited on every channel,
  0.81 instead of 0.72 of the batches were left (three runs of 3 s each, in turn). With two batches on a channel an
  alignment gained nothing: 0.75 and 0.77, without alignment 0.81 and 0.82 (two runs each, in turn).
* Encode the batches of a state into memory of the C library, because the pool of Arrow returns memory that another
  thread frees. From a MiB on encode into memory that is kept. The loop spent 3.8 instead of 6.8 % of its samples in
  snapshots.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa

from benchmarks.group_by import group_by_rows_per_second
from benchmarks.interleaved_windows import compared, windows_of
from benchmarks.keyed_nodes import Batches, Collected
from benchmarks.keyed_rows import KEY_COUNT, batches, groups_of_batches, require_equal
from benchmarks.live import Live
from benchmarks.result import Metric, Result, metric, paired_ratio
from benchmarks.run_size import Cases, Configuration, RunSize, show_progress
from benchmarks.session import Place
from benchmarks.snapshot_trigger_source import InterleavedWindows
from benchmarks.timed_run import Timed, timed_run
from cutline import Graph, KeyedAggregate, PartialAggregate

ENGINES = ("duckdb", "polars")


class Case(NamedTuple):
    """Parameters of one configuration."""

    parallelism: int
    key_type: str
    rows_per_batch: int
    #: seconds between snapshots, or None for no snapshots
    interval: float | None
    #: whether each source's worker aggregates first, and not only the subtask to which the key belongs
    is_partial: bool = True

    @property
    def group(self) -> tuple[int, str]:
        """The group of the case. A group runs in turn, because one run of DuckDB and Polars serves all of its cases."""
        return self.parallelism, self.key_type


#: With one subtask every row is where its key belongs, so a first step would gain nothing.
CASES = (
    *(Case(1, "int64", 65_536, interval, is_partial=False) for interval in (None, 1.0, 0.1)),
    *(Case(2, "int64", 65_536, interval) for interval in (None, 1.0, 0.1)),
    Case(2, "int64", 8_192, 1.0),
    Case(2, "int64", 65_536, 1.0, is_partial=False),
    Case(2, "string", 65_536, 1.0),
    Case(2, "string", 65_536, 1.0, is_partial=False),
)
#: Cases in which the cost of snapshots is measured within one run. With one subtask a snapshot a second is left out,
#: because its cost was below the noise.
INTERLEAVED = (
    Case(1, "int64", 65_536, 0.1, is_partial=False),
    Case(2, "int64", 65_536, 1.0),
    Case(2, "int64", 65_536, 0.1),
)
QUICK_CASES = (Case(2, "string", 65_536, 0.1), Case(2, "string", 8_192, None, is_partial=False))
QUICK_INTERLEAVED = QUICK_CASES[:1]

AGGREGATES = {"count": ("value", "count"), "total": ("value", "sum")}


def configurations(size: RunSize) -> Cases:
    """Return one case for each parallelism, type of key, size of a batch, interval, and number of steps."""
    return {
        case: {
            "parallelism": case.parallelism,
            "snapshot_interval_s": case.interval,
            "payload": "arrow",
            "rows_per_batch": case.rows_per_batch,
            "key_type": case.key_type,
            "aggregated": "in two steps" if case.is_partial else "in one step",
            "keys": KEY_COUNT,
            **size.configuration(),
        }
        for case in size.choose(CASES, QUICK_CASES)
    }


def measure(cases: Cases, size: RunSize, place: Place) -> Iterator[Result]:
    """Yield one result for each case."""
    live = place()
    for group in dict.fromkeys(case.group for case in cases):
        runs: dict[Case, list[Timed]] = {case: [] for case in cases if case.group == group}
        interleaved: dict[Case, list[Timed]] = {case: [] for case in runs}
        baselines: list[Mapping[str, float]] = []
        for number in range(size.repeats):
            for case, timed in runs.items():
                show_progress("keyed-batches", cases[case], number + 1, size.repeats)
                timed.append(_run(live, case, Batches(size.seconds, case.key_type, case.rows_per_batch)))
                if case.interval is not None and case in size.choose(INTERLEAVED, QUICK_INTERLEAVED):
                    interleaved[case].append(_run_in_windows(live, case, windows_of(size, case.interval)))
            parallelism, key_type = group
            baselines.append(group_by_rows_per_second(key_type, parallelism, size))
        for case, timed in runs.items():
            yield _result(case, cases[case], timed, interleaved[case], baselines)


def _run_in_windows(live: Live, case: Case, windows: InterleavedWindows) -> Timed:
    rows = Batches(windows.run_seconds, case.key_type, case.rows_per_batch, windows.seconds)
    return _run(live, case._replace(interval=None), rows, windows)


def _run(live: Live, case: Case, rows: Batches, windows: InterleavedWindows | None = None) -> Timed:
    graph = _graph(case, rows)
    if windows is not None:
        windows.add_trigger(graph)
    timed = timed_run(
        live,
        graph,
        source="rows",
        last="collected",
        seconds=rows.seconds,
        interval=case.interval,
        workers=case.parallelism,
    )
    found: dict[object, tuple[int, int]] = {}
    for collected in timed.results:
        assert isinstance(collected, list)
        found |= {row["key"]: (row["count"], row["total"]) for batch in collected for row in batch.to_pylist()}
    require_equal("keyed-batches", found, groups_of_batches(case.key_type, case.rows_per_batch, timed.rounds))
    return timed


def _graph(case: Case, rows: Batches) -> Graph:
    schema = batches(case.key_type, case.rows_per_batch)[0].schema
    graph = Graph("keyed-batches")
    graph.add("rows", rows, parallelism=case.parallelism)
    graph.add("groups", KeyedAggregate("key", aggregates=AGGREGATES), parallelism=case.parallelism)
    graph.add("collected", Collected(), parallelism=case.parallelism)
    graph.connect("groups", "collected", schema=_result_schema(case.key_type))
    if not case.is_partial:
        return graph.connect("rows", "groups", key="key", schema=schema)
    partial = PartialAggregate("key", aggregates=AGGREGATES)
    graph.add("partial", partial, parallelism=case.parallelism)
    graph.connect("rows", "partial", schema=schema)
    return graph.connect("partial", "groups", key="key", schema=partial.schemaOf(schema))


def _result_schema(key_type: str) -> pa.Schema:
    return pa.schema([("key", key_type), ("count", pa.int64()), ("total", pa.int64())])


def _rate(timed: Timed, case: Case) -> float:
    return sum(timed.rounds) * case.rows_per_batch / timed.seconds


def _result(
    case: Case,
    configuration: Configuration,
    timed: list[Timed],
    interleaved: list[Timed],
    baselines: list[Mapping[str, float]],
) -> Result:
    rates = [_rate(each, case) for each in timed]
    ratios_within, metrics_within = compared(interleaved)
    ratios = {engine: paired_ratio(rates, [each[engine] for each in baselines]) for engine in ENGINES}
    ratios |= ratios_within
    metrics: dict[str, Metric] = {
        "rows_per_s": metric("rows/s", rates),
        "startup_s": metric("s", [each.startup_seconds for each in timed]),
        "snapshots": metric("snapshots", [each.snapshots for each in timed]),
        **metrics_within,
    }
    for engine in ENGINES:
        metrics[f"{engine}_rows_per_s"] = metric("rows/s", [each[engine] for each in baselines])
    return Result("keyed-batches", configuration, metrics, ratios)
