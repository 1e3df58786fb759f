"""Checker 3: a sum that the application conserves is the same in every snapshot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from snapshot.drawing.labels import shortened
from snapshot.snapshot import Snapshot
from snapshot.testing.checking.values import named
from snapshot.testing.checking.verdict import Verdict, verdict_of
from snapshot.testing.history import History


def conservation(history: History, measure: Callable[[Snapshot], Any]) -> Verdict:
    """`measure` gives the same for all snapshots of a run; the last one of a finished run is its end.

    Parameters
    ----------
    history : History
    measure : callable
        Of a snapshot: as a rule a sum over node states *and* channel states. Compared by ``==``.

    Returns
    -------
    Verdict
        A problem names both snapshots and what they measure.
    """
    measured = [(snapshot, measure(snapshot)) for snapshot in history.snapshots]
    if not measured:
        return Verdict("conservation", True, "nothing to measure: no snapshot was published")
    first, due = measured[0]
    was = f"{shortened(repr(due))} in {named(first)}"
    problems = [
        f"{named(snapshot)} measures {shortened(repr(value))}, but it was {was}"
        for snapshot, value in measured
        if value != due
    ]
    return verdict_of("conservation", problems, f"{shortened(repr(due))} in each of {len(measured)} snapshots")
