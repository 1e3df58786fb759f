"""A source of a DataFrame without Spark: which log a submission reads, and which it writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StructType

from barrier_runtime.dataframes import input_log, nodes
from barrier_runtime.dataframes.input_log import InputLog, LogPlace, arrow_schema_of, find_log, place_of
from barrier_runtime.dataframes.nodes import DataFrameSource


class Columns(DataFrame):
    """A DataFrame of one column, of which Spark knows nothing."""

    def __new__(cls) -> Any:
        return object.__new__(cls)

    def __init__(self) -> None: ...

    @property
    def isStreaming(self) -> bool:
        return False

    @property
    def schema(self) -> StructType:
        return StructType().add("id", LongType())


def test_a_log_is_written_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later submission of the run, and a fork that repeats its steps, read the log of the first submission."""
    written: list[LogPlace] = []

    def write(df: DataFrame, place: LogPlace) -> InputLog:
        log = InputLog(place, "log", arrow_schema_of(df), ())
        input_log._complete(place, log)
        written.append(place)
        return log

    monkeypatch.setattr(nodes, "write_log", write)
    place, of_fork, of_other = (place_of(str(tmp_path), run, "rows") for run in ("run", "fork", "other"))
    for _ in range(2):
        DataFrameSource(Columns()).prepare(str(tmp_path), "run", "rows")
    DataFrameSource(Columns()).prepare(str(tmp_path), "fork", "rows", origin="run")
    assert written == [place]
    forked = find_log(of_fork)
    assert forked is not None and forked.place == place
    DataFrameSource(Columns()).prepare(str(tmp_path), "other", "rows", origin="nowhere")
    assert written == [place, of_other]
