"""Consistent snapshots and recovery for graphs of Python classes, inside the Spark that people already run.

`__all__` lists what users write programs with, and `cutline.testing` lists what users test them with. All other modules
are internal. Names are loaded at first use, because a worker needs neither Spark nor Ray, whose import takes a second
and hundreds of megabytes.

In a checkout the packages of this folder are links to the folders beside it.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cutline.barrier_runtime.dataframes.line_source import LineSource
    from cutline.barrier_runtime.dataframes.nodes import DataFrameSource, ParquetSink
    from cutline.barrier_runtime.dataframes.snapshot_source import SnapshotDataSource
    from cutline.barrier_runtime.driver.run import Run
    from cutline.barrier_runtime.driver.runtime import BarrierRuntime
    from cutline.barrier_runtime.driver.snapshot_editor import SnapshotEditor
    from cutline.barrier_runtime.page.settings import Page
    from cutline.snapshot.channel.undecodable import Undecodable
    from cutline.snapshot.coordinator.restart_policy import RestartPolicy
    from cutline.snapshot.errors import (
        ChannelError,
        CutlineError,
        Fenced,
        GraphError,
        NodeError,
        RestoreRefused,
        RunFailed,
        SnapshotAborted,
        SnapshotCorrupt,
        SnapshotInUse,
        StateError,
    )
    from cutline.snapshot.graph import Graph, Stream
    from cutline.snapshot.ids import Subtask
    from cutline.snapshot.key_groups import keyGroup
    from cutline.snapshot.node import END, FULL, Context, Node, Sink, Source
    from cutline.snapshot.operators.aggregate import KeyedAggregate, PartialAggregate
    from cutline.snapshot.operators.aggregate_store import AggregateStore, StoreClaim
    from cutline.snapshot.operators.monoid import Monoid
    from cutline.snapshot.operators.monoids import Count, First, Last, Max, Min, Sum, TopK
    from cutline.snapshot.operators.persistent_aggregate import PersistentAggregate
    from cutline.snapshot.operators.sketches import HyperLogLog, Quantiles, Theta
    from cutline.snapshot.plan.modes import ChannelLogs, Deltas, InputLogging, MonoidClocks, PersistentState
    from cutline.snapshot.replayable_source import ReplayableSource
    from cutline.snapshot.state import ListState, MapState, ReducingState, ValueState
    from cutline.snapshot.stored.backend import StateBackend, StoreRefused
    from cutline.snapshot.stored.snapshot import Snapshot
    from cutline.state_backends.aggregate_stores.memory import MemoryStore
    from cutline.state_backends.aggregate_stores.postgresql import PostgreSQLStore
    from cutline.state_backends.aggregate_stores.redis import RedisStore
    from cutline.state_backends.aggregate_stores.rocksdb import RocksDBStore
    from cutline.state_backends.aggregate_stores.sqlite import SQLiteStore
    from cutline.state_backends.filesystem import FileSystemBackend
    from cutline.state_backends.fsspec import FsspecBackend
    from cutline.state_backends.keyed_state import HeapState, RocksDBState
    from cutline.state_backends.memory import MemoryBackend
    from cutline.state_backends.object_store import ObjectStoreBackend

__all__ = [
    "AggregateStore",
    "BarrierRuntime",
    "ChannelError",
    "ChannelLogs",
    "Context",
    "Count",
    "CutlineError",
    "DataFrameSource",
    "Deltas",
    "END",
    "FULL",
    "Fenced",
    "FileSystemBackend",
    "First",
    "FsspecBackend",
    "Graph",
    "GraphError",
    "HeapState",
    "HyperLogLog",
    "InputLogging",
    "KeyedAggregate",
    "Last",
    "LineSource",
    "ListState",
    "MapState",
    "Max",
    "MemoryBackend",
    "MemoryStore",
    "Min",
    "Monoid",
    "MonoidClocks",
    "Node",
    "NodeError",
    "ObjectStoreBackend",
    "Page",
    "ParquetSink",
    "PartialAggregate",
    "PersistentAggregate",
    "PersistentState",
    "PostgreSQLStore",
    "Quantiles",
    "RedisStore",
    "ReducingState",
    "ReplayableSource",
    "RestartPolicy",
    "RestoreRefused",
    "RocksDBState",
    "RocksDBStore",
    "Run",
    "RunFailed",
    "SQLiteStore",
    "Sink",
    "Snapshot",
    "SnapshotAborted",
    "SnapshotCorrupt",
    "SnapshotDataSource",
    "SnapshotEditor",
    "SnapshotInUse",
    "Source",
    "StateBackend",
    "StateError",
    "StoreClaim",
    "StoreRefused",
    "Stream",
    "Subtask",
    "Sum",
    "Theta",
    "TopK",
    "Undecodable",
    "ValueState",
    "keyGroup",
]

#: {name: module below this package}
_HOMES = {
    "AggregateStore": "snapshot.operators.aggregate_store",
    "BarrierRuntime": "barrier_runtime.driver.runtime",
    "ChannelError": "snapshot.errors",
    "ChannelLogs": "snapshot.plan.modes",
    "Context": "snapshot.node",
    "Count": "snapshot.operators.monoids",
    "CutlineError": "snapshot.errors",
    "DataFrameSource": "barrier_runtime.dataframes.nodes",
    "Deltas": "snapshot.plan.modes",
    "END": "snapshot.node",
    "FULL": "snapshot.node",
    "Fenced": "snapshot.errors",
    "FileSystemBackend": "state_backends.filesystem",
    "First": "snapshot.operators.monoids",
    "FsspecBackend": "state_backends.fsspec",
    "Graph": "snapshot.graph",
    "GraphError": "snapshot.errors",
    "HeapState": "state_backends.keyed_state",
    "HyperLogLog": "snapshot.operators.sketches",
    "InputLogging": "snapshot.plan.modes",
    "KeyedAggregate": "snapshot.operators.aggregate",
    "Last": "snapshot.operators.monoids",
    "LineSource": "barrier_runtime.dataframes.line_source",
    "ListState": "snapshot.state",
    "MapState": "snapshot.state",
    "Max": "snapshot.operators.monoids",
    "MemoryBackend": "state_backends.memory",
    "MemoryStore": "state_backends.aggregate_stores.memory",
    "Min": "snapshot.operators.monoids",
    "Monoid": "snapshot.operators.monoid",
    "MonoidClocks": "snapshot.plan.modes",
    "Node": "snapshot.node",
    "NodeError": "snapshot.errors",
    "ObjectStoreBackend": "state_backends.object_store",
    "Page": "barrier_runtime.page.settings",
    "ParquetSink": "barrier_runtime.dataframes.nodes",
    "PartialAggregate": "snapshot.operators.aggregate",
    "PersistentAggregate": "snapshot.operators.persistent_aggregate",
    "PersistentState": "snapshot.plan.modes",
    "PostgreSQLStore": "state_backends.aggregate_stores.postgresql",
    "Quantiles": "snapshot.operators.sketches",
    "RedisStore": "state_backends.aggregate_stores.redis",
    "ReducingState": "snapshot.state",
    "ReplayableSource": "snapshot.replayable_source",
    "RestartPolicy": "snapshot.coordinator.restart_policy",
    "RestoreRefused": "snapshot.errors",
    "RocksDBState": "state_backends.keyed_state",
    "RocksDBStore": "state_backends.aggregate_stores.rocksdb",
    "Run": "barrier_runtime.driver.run",
    "RunFailed": "snapshot.errors",
    "SQLiteStore": "state_backends.aggregate_stores.sqlite",
    "Sink": "snapshot.node",
    "Snapshot": "snapshot.stored.snapshot",
    "SnapshotAborted": "snapshot.errors",
    "SnapshotCorrupt": "snapshot.errors",
    "SnapshotDataSource": "barrier_runtime.dataframes.snapshot_source",
    "SnapshotEditor": "barrier_runtime.driver.snapshot_editor",
    "SnapshotInUse": "snapshot.errors",
    "Source": "snapshot.node",
    "StateBackend": "snapshot.stored.backend",
    "StateError": "snapshot.errors",
    "StoreClaim": "snapshot.operators.aggregate_store",
    "StoreRefused": "snapshot.stored.backend",
    "Stream": "snapshot.graph",
    "Subtask": "snapshot.ids",
    "Sum": "snapshot.operators.monoids",
    "Theta": "snapshot.operators.sketches",
    "TopK": "snapshot.operators.monoids",
    "Undecodable": "snapshot.channel.undecodable",
    "ValueState": "snapshot.state",
    "keyGroup": "snapshot.key_groups",
}

if find_spec(f"{__name__}.snapshot") is None:
    raise ImportError(
        f"{__path__[0]} has no package 'snapshot', because its links are missing: copy a checkout with its links "
        "(git clone, cp -a), or install a wheel"
    )


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
