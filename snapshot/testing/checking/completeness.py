"""Checker 4: everybody contributed to a snapshot, once, in one incarnation."""

from __future__ import annotations

from collections.abc import Iterator

from snapshot.snapshot import Snapshot
from snapshot.stored.certificate import problems
from snapshot.testing.checking.values import named
from snapshot.testing.checking.verdict import Verdict, verdict_of
from snapshot.testing.history import History
from snapshot.trace import Kind


def completeness(history: History, snapshot: Snapshot) -> Verdict:
    """One state from every subtask and one entry from each end of every channel, all of one incarnation.

    Judged by the graph that ran, not by what the manifest says of it; and the witness saw each of its subtasks record
    its state once.

    Returns
    -------
    Verdict
        A problem names the subtask or the channel, and the snapshot.
    """
    topology, manifest = history.topology, snapshot.manifest
    found = problems(topology.channels, topology.subtasks, manifest.records, manifest.incarnation)
    found += _cut_problems(history, snapshot)
    counts = f"{len(topology.subtasks)} states, {len(topology.channels)} channels, both ends each"
    return verdict_of(
        "completeness", [f"{named(snapshot)}: {problem}" for problem in found], f"{named(snapshot)}: {counts}"
    )


def _cut_problems(history: History, snapshot: Snapshot) -> Iterator[str]:
    counts = dict.fromkeys(history.topology.subtasks, 0)
    for event in history.events:
        if event.kind is Kind.CUT and event.snapshot_id == snapshot.id and event.subtask is not None:
            counts[event.subtask] += event.incarnation == snapshot.manifest.incarnation
    for subtask, count in counts.items():
        if count != 1:
            yield f"{subtask} recorded its state {count} times instead of once"
