"""A source of a DataFrame without Spark: which log a submission reads or writes, and what a subtask reads of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, StructType

from cutline.barrier_runtime.dataframes import nodes
from cutline.barrier_runtime.dataframes.input_log import InputLog, LogPlace, complete, find_log, place_of
from cutline.barrier_runtime.dataframes.log_writing import arrow_schema_of
from cutline.barrier_runtime.dataframes.nodes import DataFrameSource
from cutline.barrier_runtime.dataframes.unread import PARTITIONS, share
from cutline.snapshot.coordinator.partition_assignment import assign_afresh
from cutline.snapshot.errors import SnapshotCorrupt
from cutline.snapshot.ids import Subtask
from cutline.snapshot.node import END
from tests.barrier_runtime.dataframes.test_input_log import ids_of, make_log
from tests.barrier_runtime.hand_context import HandContext


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
        complete(place, log)
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


def read(root: Path, index: int, parallelism: int, state: Any = None) -> list[int]:
    """The ids that a subtask sends, from its share or from a state on."""
    source = DataFrameSource(Columns())
    source.prepare(str(root), "run", "node")
    context = HandContext(Subtask("node", index), parallelism=parallelism)
    context.partitions = assign_afresh(source.partitions(), parallelism)[index]
    if state is not None:
        source.restoreState(state)
    source.open(context)
    while source.poll(context) is not END:
        pass
    source.close()
    return ids_of(context.sent)


@pytest.mark.parametrize("index", [0, 1])
def test_a_state_goes_on_in_its_own_share(tmp_path: Path, index: int) -> None:
    """With the rows behind its offsets. A state without the offset of a partition is refused."""
    log, groups = make_log(str(tmp_path), [[10, 5], [10, 7, 3]])
    complete(log.place, log)
    rows = [row for place in sorted(groups)[index::2] for row in groups[place]]
    assert read(tmp_path, index, 2) == rows
    names = assign_afresh(PARTITIONS, 2)[index]
    state = {name: None if each is None else each.as_offset() for name, each in share(log, names, index, 2).items()}
    first = state[names[0]]
    assert first is not None
    first["row"] = 4
    assert read(tmp_path, index, 2, state) == rows[4:]
    del state[names[1]]
    with pytest.raises(SnapshotCorrupt, match=rf"no offset of its partitions \['{names[1]}'\]"):
        read(tmp_path, index, 2, state)
