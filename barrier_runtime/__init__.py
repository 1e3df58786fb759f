"""The runtime: barrier stages of Spark, workers, the coordinator's Ray actor, the supervisor, the command line.

`__all__` lists the users' names, and all other modules are internal. Names are loaded at first use, because a worker
needs neither Spark nor Ray, whose import takes a second and hundreds of megabytes.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barrier_runtime.dataframes.line_source import LineSource
    from barrier_runtime.dataframes.nodes import DataFrameSource, ParquetSink
    from barrier_runtime.dataframes.snapshot_source import SnapshotDataSource
    from barrier_runtime.driver.run import Run
    from barrier_runtime.driver.runtime import BarrierRuntime
    from barrier_runtime.driver.snapshot_editor import SnapshotEditor
    from barrier_runtime.page.settings import Page
    from snapshot.coordinator.restart_policy import RestartPolicy

__all__ = [
    "BarrierRuntime",
    "DataFrameSource",
    "LineSource",
    "Page",
    "ParquetSink",
    "RestartPolicy",
    "Run",
    "SnapshotDataSource",
    "SnapshotEditor",
]

_HOMES = {
    "BarrierRuntime": "barrier_runtime.driver.runtime",
    "DataFrameSource": "barrier_runtime.dataframes.nodes",
    "LineSource": "barrier_runtime.dataframes.line_source",
    "Page": "barrier_runtime.page.settings",
    "ParquetSink": "barrier_runtime.dataframes.nodes",
    "RestartPolicy": "snapshot.coordinator.restart_policy",
    "Run": "barrier_runtime.driver.run",
    "SnapshotDataSource": "barrier_runtime.dataframes.snapshot_source",
    "SnapshotEditor": "barrier_runtime.driver.snapshot_editor",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
