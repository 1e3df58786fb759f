"""Rows per second through the vectorised keyed aggregate, with snapshots off, seldom and often.

Beside it, in turn with it, DuckDB and Polars grouping the same rows all at once on as many cores.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pyarrow as pa

from benchmarks.asking import Stretches
from benchmarks.effort import Effort
from benchmarks.group_by import group_by_rows_per_second
from benchmarks.keyed_nodes import Batches, Collected
from benchmarks.keyed_rows import KEY_COUNT, batches, groups_of_batches, require_equal
from benchmarks.result import Metric, Result, metric, paired_ratio
from benchmarks.session import Place
from benchmarks.stretches import compared, stretches_of
from benchmarks.timed_run import Timed, timed_run
from snapshot import Graph, KeyedAggregate, PartialAggregate
from tests.system.live import Live

ENGINES = ("duckdb", "polars")


class Case(NamedTuple):
    """One configuration."""

    parallelism: int
    key_type: str
    rows_per_batch: int
    #: seconds between snapshots; None: off
    interval: float | None
    #: aggregated by each source's worker first, or only where the key belongs
    is_partial: bool = True


#: What takes turns and is compared: each group shares its parallelism and its keys, so one limit serves it. With one
#: subtask all rows are where their key belongs.
GROUPS = (
    [Case(1, "int64", 65_536, interval, is_partial=False) for interval in (None, 1.0, 0.1)],
    [
        *(Case(2, "int64", 65_536, interval) for interval in (None, 1.0, 0.1)),
        Case(2, "int64", 8_192, 1.0),
        Case(2, "int64", 65_536, 1.0, is_partial=False),
    ],
    [Case(2, "string", 65_536, 1.0), Case(2, "string", 65_536, 1.0, is_partial=False)],
)
_QUICK = Case(2, "string", 65_536, None)
QUICK_GROUPS = ([_QUICK, _QUICK._replace(interval=0.1), Case(2, "string", 8_192, 0.1, is_partial=False)],)

AGGREGATES = {"count": ("value", "count"), "total": ("value", "sum")}


def measure(effort: Effort, place: Place) -> Iterator[Result]:
    """One result for each case."""
    live = place()
    for group in effort.choose(GROUPS, QUICK_GROUPS):
        runs: dict[Case, list[Timed]] = {case: [] for case in group}
        stretched: dict[Case, list[Timed]] = {case: [] for case in group}
        limits: list[Mapping[str, float]] = []
        for _ in range(effort.repeats):
            for case, timed in runs.items():
                timed.append(_run(live, case, Batches(effort.seconds, case.key_type, case.rows_per_batch)))
                if case.interval is not None and case._replace(interval=None) in group:
                    stretched[case].append(_run_in_stretches(live, case, stretches_of(effort, case.interval)))
            limits.append(group_by_rows_per_second(group[0].key_type, group[0].parallelism, effort.seconds))
        for case in runs:
            yield _result(case, runs[case], stretched[case], limits, effort)


def _run_in_stretches(live: Live, case: Case, stretches: Stretches) -> Timed:
    rows = Batches(stretches.run_seconds, case.key_type, case.rows_per_batch, stretches.seconds)
    return _run(live, case._replace(interval=None), rows, stretches)


def _run(live: Live, case: Case, rows: Batches, stretches: Stretches | None = None) -> Timed:
    graph = _graph(case, rows)
    if stretches is not None:
        stretches.ask(graph)
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
    case: Case, timed: list[Timed], stretched: list[Timed], limits: list[Mapping[str, float]], effort: Effort
) -> Result:
    rates = [_rate(each, case) for each in timed]
    ratios_within, metrics_within = compared(stretched)
    ratios = {engine: paired_ratio(rates, [limit[engine] for limit in limits]) for engine in ENGINES}
    ratios |= ratios_within
    metrics: dict[str, Metric] = {
        "rows_per_s": metric("rows/s", rates),
        "startup_s": metric("s", [each.startup_seconds for each in timed]),
        "snapshots": metric("snapshots", [each.snapshots for each in timed]),
        **metrics_within,
    }
    for engine in ENGINES:
        metrics[f"{engine}_rows_per_s"] = metric("rows/s", [limit[engine] for limit in limits])
    configuration = {
        "parallelism": case.parallelism,
        "snapshot_interval_s": case.interval,
        "payload": "arrow",
        "rows_per_batch": case.rows_per_batch,
        "key_type": case.key_type,
        "aggregated": "in two steps" if case.is_partial else "in one step",
        "keys": KEY_COUNT,
        **effort.configuration(),
    }
    return Result("keyed-batches", configuration, metrics, ratios)
