"""Schedules whose snapshots and faults lie anywhere in a run, however long the run is.

Schedules of `snapshot.testing.strategies` are short, because short schedules shrink well. Their snapshots hold the
state after a few messages. A restore that is wrong only for a large or a late state needs these schedules.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from cutline.snapshot.graph import Graph
from cutline.snapshot.testing.history import History
from cutline.snapshot.testing.steps import Fault, Initiate, Quiesce, Step, Tick
from cutline.snapshot.testing.steps_of import StepsOf
from cutline.snapshot.trace_events import Kind

#: rounds between a snapshot and its fault, so that the fault undoes messages
_UNDONE_ROUNDS = (0, 1, 3)
#: rounds of one schedule at most; a longer run takes too long to be repeated
_ROUNDS_MAX = 2_000


def late_schedules(graph: Graph, reference: History, faults: int, count: int) -> Iterator[list[Step]]:
    """Yield schedules for ``Simulator(graph, schedule, skipsImpossible=True)``, the same at each call.

    Parameters
    ----------
    graph : Graph
    reference : History
        A run without faults, whose length is divided evenly.
    faults : int
        Maximum number of faults of one schedule, each after a snapshot of its own.
    count : int
        Number of schedules.
    """
    own = StepsOf(graph)
    rounds = _rounds_of(reference)
    for number in range(count if faults else 0):
        most = 1 + number % faults
        schedule: list[Step] = []
        for fault in range(most):
            schedule += _round(own) * max(1, rounds * (number + 1) // (count * most))
            schedule += _snapshot(own, fault + 1)
            schedule += _round(own) * _UNDONE_ROUNDS[(number + fault) % len(_UNDONE_ROUNDS)]
            schedule.append(_fault(own, number + fault))
        yield schedule


def _rounds_of(reference: History) -> int:
    """Return how often the busiest input or source of the run acted."""
    acts = Counter(
        (event.subtask, event.channel) for event in reference.events if event.kind in (Kind.POLL, Kind.RECEIVE)
    )
    return min(_ROUNDS_MAX, max(acts.values(), default=1))


def _round(own: StepsOf) -> list[Step]:
    """Return steps that move each channel's next message, and let time pass where nothing else happens."""
    return [*own.polls, *own.deliveries, *own.timers, Tick()]


def _snapshot(own: StepsOf, snapshot_id: int) -> list[Step]:
    """Return the steps of a whole snapshot, up to its commit."""
    initiators = own.initiators
    return [*(Initiate(snapshot_id, each) for each in initiators), Quiesce(), *own.markers(initiators), Quiesce()]


def _fault(own: StepsOf, number: int) -> Fault:
    return own.plain_faults[number % len(own.plain_faults)]
