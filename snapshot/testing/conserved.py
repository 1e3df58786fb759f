"""Check that a measure is the same in every snapshot of a graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cutline.snapshot.drawing.labels import shortened
from cutline.snapshot.stored.snapshot import Snapshot
from cutline.snapshot.testing.checkers import Verdict, conservation
from cutline.snapshot.testing.checking.values import named
from cutline.snapshot.testing.trial import GraphMaker, Run, Trial

#: faults of a schedule: conservation must hold after a restore, too
_FAULTS = 1


def checkConservation(graph: GraphMaker, measure: Callable[[Snapshot], Any], *, examples: int = 200) -> None:
    """Take snapshots of a graph at generated moments, and check that `measure` gives the same value for all.

    Parameters
    ----------
    graph : Graph, or function that makes one
        The graph, as for `checkRecovery`.
    measure : callable
        Function of a snapshot, as a rule a sum over node states *and* channel states. Each value is compared by ``==``
        with the value of the last snapshot of a run without faults.
    examples : int
        Number of schedules that are tried. Some of the schedules have a crash.

    Raises
    ------
    CheckFailed, GraphError, ValueError
        as `checkRecovery`.
    """
    trial = Trial(graph)
    due = measure(trial.reference.history.snapshots[-1])

    def broken(run: Run) -> Verdict | None:
        verdict = conservation(run.history, measure)
        if not verdict.holds or not run.history.snapshots:
            return None if verdict.holds else verdict
        first = run.history.snapshots[0]
        measured = measure(first)
        if measured == due:
            return None
        was = f"{shortened(repr(due))} at the end of a run without faults"
        return Verdict("conservation", False, f"{named(first)} measures {shortened(repr(measured))}, but it is {was}")

    trial.demand(broken, faults=_FAULTS, examples=examples)
