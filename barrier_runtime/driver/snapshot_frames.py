"""DataFrames of the snapshots of a run, as `Run` and `BarrierRuntime` give them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cutline.barrier_runtime.dataframes.snapshot_source import read_snapshot
from cutline.barrier_runtime.driver.coordinator_client import CoordinatorMemory
from cutline.snapshot.stored.backend import StateBackend
from cutline.snapshot.stored.layout import run_folder
from cutline.snapshot.stored.memory_files import MemoryFiles
from cutline.snapshot.stored.signed import SignedBackend

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def snapshot_frame(spark: SparkSession, backend: StateBackend, run: str, snapshot_id: int | None) -> DataFrame:
    """Return the rows of a snapshot; None: of the newest one. The files of a memory backend go with the DataFrame."""
    return read_snapshot(spark, _portable(backend, run), run, snapshot_id)


def _portable(backend: StateBackend, run: str) -> StateBackend:
    """Return a backend that another process can use, because a pickled copy of a memory backend is empty."""
    inner = backend.unsigned if isinstance(backend, SignedBackend) else backend
    if not isinstance(inner, MemoryFiles | CoordinatorMemory):
        return backend
    return MemoryFiles({path: backend.get(path) for path in backend.files(run_folder(run))})
