"""Events of subtasks as they travel to the coordinator, wait there, and are opened in the driver.

The coordinator never opens them: it keeps bytes, so a trace costs it next to nothing. A chunk holds records
``[serial, at, kind, channel, number, snapshot_id, payload]``; `kind` is an index in `Kind`, `channel` one in
`Topology.channels` or -1.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgpack

from snapshot.ids import Subtask
from snapshot.plan.topology import Topology
from snapshot.trace_events import Event, Kind

#: Messages, polls and timers that are kept of one subtask. A picture shows a few hundred; these are all of a slow
#: example, the last 0.1 s of a busy subtask, and 20 ms of its worker's time whenever they are sent off.
FREQUENT_EVENTS_MAX = 10_000

#: The same of all subtasks together: what the coordinator and the driver hold without a thought, 10 MB at most.
FREQUENT_EVENTS_TOTAL_MAX = 100_000

#: Cuts, markers, commits, starts and ends of one subtask, kept apart so that no flood of messages drives them out.
RARE_EVENTS_MAX = 1_000

#: Kinds in the order of their numbers. Both ends are of one version of Cutline.
KINDS = tuple(Kind)


@dataclass(frozen=True, slots=True)
class TraceChunk:
    """Events of one subtask, of one incarnation and sort, since the chunk before."""

    subtask: Subtask
    incarnation: int
    #: messages, polls and timers; else all others
    is_frequent: bool
    event_count: int
    records: bytes


@dataclass(frozen=True, slots=True)
class WorkerTrace:
    """Events of a worker's subtasks since the last chunk. Sent to the coordinator with the progress."""

    worker: int
    chunks: tuple[TraceChunk, ...]


def frequent_events_max(topology: Topology) -> int:
    """Messages, polls and timers that are kept of each subtask of this graph; one at least."""
    return max(1, min(FREQUENT_EVENTS_MAX, FREQUENT_EVENTS_TOTAL_MAX // len(topology.subtasks)))


def chunk_of(
    subtask: Subtask, incarnation: int, records: Sequence[Sequence[object]], *, is_frequent: bool
) -> TraceChunk:
    """The records of one sort, in the order of their serials."""
    return TraceChunk(subtask, incarnation, is_frequent, len(records), msgpack.packb(records))


def events_in(chunks: Iterable[TraceChunk], topology: Topology) -> Iterator[Event]:
    """The events of all chunks; those of a subtask in one incarnation in their order."""
    logs: defaultdict[tuple[Subtask, int], list[Any]] = defaultdict(list)
    for chunk in chunks:
        logs[chunk.subtask, chunk.incarnation] += msgpack.unpackb(chunk.records)
    for (subtask, incarnation), records in logs.items():
        records.sort(key=lambda record: record[0])  # the two sorts come apart
        for _, at, kind, channel, number, snapshot_id, payload in records:
            link = None if channel < 0 else topology.channels[channel]
            yield Event(at, KINDS[kind], incarnation, subtask, (), link, number, snapshot_id, payload)
