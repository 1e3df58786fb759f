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
)
from snapshot.graph import Graph, Stream
from snapshot.ids import Subtask
from snapshot.node import END, Context, Node, Sink, Source
from snapshot.operators.aggregate import KeyedAggregate, PartialAggregate
from snapshot.stored.snapshot import Snapshot

__all__ = [
    "END",
    "ChannelError",
    "Context",
    "CutlineError",
    "Fenced",
    "Graph",
    "GraphError",
    "KeyedAggregate",
    "Node",
    "NodeError",
    "PartialAggregate",
    "RestoreRefused",
    "RunFailed",
    "Sink",
    "Snapshot",
    "SnapshotAborted",
    "SnapshotCorrupt",
    "SnapshotInUse",
    "Source",
    "Stream",
    "Subtask",
]
