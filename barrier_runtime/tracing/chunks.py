"""Trace chunks: encoded events of subtasks, sent to the coordinator, kept there, and decoded in the driver.

The coordinator keeps bytes and never decodes chunks, because a trace must cost the coordinator almost nothing. A chunk
holds records ``[serial, at, kind, channel, number, snapshot_id, payload]``. `kind` is an index in `Kind`. `channel` is
an index in `Topology.channels`, or -1 without a channel.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgpack

from cutline.snapshot.ids import Subtask
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.trace_events import Event, Kind

#: Messages, polls and timers kept of one subtask. A picture shows a few hundred. The limit holds all events of a slow
#: example, or the last 0.1 s of a busy subtask. Sending so many takes 20 ms of the worker's time.
FREQUENT_EVENTS_MAX = 10_000

#: Messages, polls and timers kept of all subtasks together: at most 10 MB in the coordinator and in the driver.
FREQUENT_EVENTS_TOTAL_MAX = 100_000

#: Cuts, markers, commits, starts and ends kept of one subtask. Kept apart, because many messages would displace them.
RARE_EVENTS_MAX = 1_000

#: kinds in the order of their numbers, which sender and receiver share, because both run one version of Cutline
KINDS = tuple(Kind)


@dataclass(frozen=True, slots=True)
class TraceChunk:
    """Events of one subtask, of one incarnation and sort, since the chunk before."""

    subtask: Subtask
    incarnation: int
    #: True for messages, polls and timers; False for all other events
    is_frequent: bool
    event_count: int
    records: bytes


@dataclass(frozen=True, slots=True)
class WorkerTrace:
    """Events of a worker's subtasks since the last chunk. Sent to the coordinator with the progress."""

    worker: int
    chunks: tuple[TraceChunk, ...]


def frequent_events_max(topology: Topology) -> int:
    """Return how many messages, polls and timers are kept of each subtask of this graph: at least 1."""
    return max(1, min(FREQUENT_EVENTS_MAX, FREQUENT_EVENTS_TOTAL_MAX // len(topology.subtasks)))


def chunk_of(
    subtask: Subtask, incarnation: int, records: Sequence[Sequence[object]], *, is_frequent: bool
) -> TraceChunk:
    """Pack the records of one sort, given in the order of their serials."""
    return TraceChunk(subtask, incarnation, is_frequent, len(records), msgpack.packb(records))


def events_in(chunks: Iterable[TraceChunk], topology: Topology) -> Iterator[Event]:
    """Decode the events of all chunks. Events of one subtask and incarnation are in their order."""
    logs: defaultdict[tuple[Subtask, int], list[Any]] = defaultdict(list)
    for chunk in chunks:
        logs[chunk.subtask, chunk.incarnation] += msgpack.unpackb(chunk.records)
    for (subtask, incarnation), records in logs.items():
        records.sort(key=lambda record: record[0])  # because frequent and rare events come in separate chunks
        for _, at, kind, channel, number, snapshot_id, payload in records:
            link = None if channel < 0 else topology.channels[channel]
            yield Event(at, KINDS[kind], incarnation, subtask, (), link, number, snapshot_id, payload)
