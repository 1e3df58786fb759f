"""Snapshots, and the classes by which users declare graphs. Pure: no sockets, files, threads, clocks, Spark or Ray."""

from snapshot.errors import (
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
from snapshot.graph import Graph, Stream
from snapshot.ids import Subtask
from snapshot.key_groups import keyGroup
from snapshot.node import END, FULL, Context, Node, Sink, Source
from snapshot.operators.aggregate import KeyedAggregate, PartialAggregate
from snapshot.operators.aggregate_store import AggregateStore
from snapshot.operators.monoid import Monoid
from snapshot.operators.monoids import Count, First, Last, Max, Min, Sum, TopK
from snapshot.operators.persistent_aggregate import PersistentAggregate
from snapshot.operators.sketches import HyperLogLog, Quantiles, Theta
from snapshot.plan.modes import ChannelLogs, Deltas, InputLogging, MonoidClocks, PersistentState
from snapshot.replayable_source import ReplayableSource
from snapshot.state import ListState, MapState, ReducingState, ValueState
from snapshot.stored.snapshot import Snapshot

__all__ = [
    "END",
    "FULL",
    "AggregateStore",
    "ChannelError",
    "ChannelLogs",
    "Context",
    "Count",
    "CutlineError",
    "Deltas",
    "Fenced",
    "First",
    "Graph",
    "GraphError",
    "HyperLogLog",
    "InputLogging",
    "KeyedAggregate",
    "Last",
    "ListState",
    "MapState",
    "Max",
    "Min",
    "Monoid",
    "MonoidClocks",
    "Node",
    "NodeError",
    "PartialAggregate",
    "PersistentAggregate",
    "PersistentState",
    "Quantiles",
    "ReducingState",
    "ReplayableSource",
    "RestoreRefused",
    "RunFailed",
    "Sink",
    "Snapshot",
    "SnapshotAborted",
    "SnapshotCorrupt",
    "SnapshotInUse",
    "Source",
    "StateError",
    "Stream",
    "Subtask",
    "Sum",
    "Theta",
    "TopK",
    "ValueState",
    "keyGroup",
]
