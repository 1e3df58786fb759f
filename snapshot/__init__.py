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
from snapshot.plan.modes import ChannelLogs, Deltas, InputLogging, PersistentState
from snapshot.replayable_source import ReplayableSource
from snapshot.state import ListState, MapState, ReducingState, ValueState
from snapshot.stored.snapshot import Snapshot

__all__ = [
    "END",
    "FULL",
    "ChannelError",
    "ChannelLogs",
    "Context",
    "CutlineError",
    "Deltas",
    "Fenced",
    "Graph",
    "GraphError",
    "InputLogging",
    "KeyedAggregate",
    "ListState",
    "MapState",
    "Node",
    "NodeError",
    "PartialAggregate",
    "PersistentState",
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
    "ValueState",
    "keyGroup",
]
