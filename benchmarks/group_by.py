"""The limit of keyed batches: DuckDB and Polars counting and adding up the same rows by key, all at once.

Each query runs in a process that has as many cores as the run has subtasks, on rows that are in memory already.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from statistics import median

import pyarrow as pa

from benchmarks.keyed_rows import groups_of_batches, require_equal, table_of_rows
from benchmarks.processes import at_one_time
from benchmarks.timed_run import MARGIN_SECONDS

#: How often the rows of one source are in the table: large enough that starting a query's threads counts for nothing.
_TIMES = 32

Query = Callable[[], pa.Table]


def group_by_rows_per_second(key_type: str, cores: int, seconds: float) -> Mapping[str, float]:
    """Rows per second: ``{"duckdb": …, "polars": …}``.

    Raises
    ------
    RuntimeError
        if an answer is wrong.
    """
    [rates] = at_one_time([(measure_queries, (key_type, cores, seconds))], seconds + MARGIN_SECONDS)
    found: Mapping[str, float] = rates
    return found


def measure_queries(key_type: str, cores: int, seconds: float) -> dict[str, float]:
    """In a process of its own: the thread pools that Polars and DuckDB make are as large as there are cores."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    rows = pa.concat_tables([table_of_rows(key_type)] * _TIMES)
    return {
        "duckdb": rows.num_rows / _seconds(_duckdb_query(rows, cores), key_type, seconds / 2),
        "polars": rows.num_rows / _seconds(_polars_query(rows), key_type, seconds / 2),
    }


def _duckdb_query(rows: pa.Table, cores: int) -> Query:
    import duckdb

    database = duckdb.connect(config={"threads": cores})
    database.register("rows", rows)
    sql = "SELECT key, count(value) AS count, sum(value)::BIGINT AS total FROM rows GROUP BY key"
    return lambda: database.sql(sql).to_arrow_table()


def _polars_query(rows: pa.Table) -> Query:
    import polars as pl

    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    aggregates = pl.col("value").count().alias("count"), pl.col("value").sum().alias("total")
    return lambda: frame.group_by("key").agg(*aggregates).to_arrow()


def _seconds(query: Query, key_type: str, seconds: float) -> float:
    """The median of as many queries as fit in `seconds`, after one that warms up and is checked."""
    expected = groups_of_batches(key_type, rows_per_batch=1 << 20, rounds=[_TIMES])
    answer = query()
    columns = (answer.column(name).to_pylist() for name in ("key", "count", "total"))
    found = {key: (count, total) for key, count, total in zip(*columns, strict=True)}
    require_equal("group-by", found, expected)
    until = time.monotonic() + seconds
    taken: list[float] = []
    while not taken or time.monotonic() < until:
        began_at = time.perf_counter()
        query()
        taken.append(time.perf_counter() - began_at)
    return median(taken)
