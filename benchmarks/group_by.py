"""The baseline of keyed batches: DuckDB and Polars count and add up the same rows by key, all at once.

Each query runs in a process with as many cores as the run has subtasks. The rows are in memory before the query.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from statistics import median

import pyarrow as pa

from benchmarks.keyed_rows import groups_of_batches, require_equal, table_of_rows
from benchmarks.processes import at_one_time
from benchmarks.run_size import MARGIN_SECONDS, RunSize

#: Copies of the rows of one source in the table, so that starting the threads of a query counts for nothing.
_COPIES = 32

Query = Callable[[], pa.Table]


def group_by_rows_per_second(key_type: str, cores: int, size: RunSize) -> Mapping[str, float]:
    """Measure rows per second: ``{"duckdb": …, "polars": …}``.

    Raises
    ------
    RuntimeError
        if an answer is wrong.
    """
    arguments = key_type, cores, size.seconds, size.choose(_COPIES, 1)
    [rates] = at_one_time([(measure_queries, arguments)], size.seconds + MARGIN_SECONDS)
    found: Mapping[str, float] = rates
    return found


def measure_queries(key_type: str, cores: int, seconds: float, copies: int) -> dict[str, float]:
    """Measure both engines. The process must be fresh, because the thread pools are as large as there are cores."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
    rows = pa.concat_tables([table_of_rows(key_type)] * copies)
    return {
        "duckdb": rows.num_rows / _seconds(_duckdb_query(rows, cores), key_type, copies, seconds / 2),
        "polars": rows.num_rows / _seconds(_polars_query(rows), key_type, copies, seconds / 2),
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


def _seconds(query: Query, key_type: str, copies: int, seconds: float) -> float:
    """Return the median of as many queries as fit in `seconds`, after a first query that warms up and is checked."""
    expected = groups_of_batches(key_type, rows_per_batch=1 << 20, rounds=[copies])
    answer = query()
    columns = (answer.column(name).to_pylist() for name in ("key", "count", "total"))
    found = {key: (count, total) for key, count, total in zip(*columns, strict=True)}
    require_equal("group-by", found, expected)
    until = time.monotonic() + seconds
    durations: list[float] = []
    while not durations or time.monotonic() < until:
        began_at = time.perf_counter()
        query()
        durations.append(time.perf_counter() - began_at)
    return median(durations)
