"""The checkers of RELIABILITY for simulated runs: functions of a history and its snapshots that return a verdict.

::

    1  exactCut             a channel's state is what was in flight at the cut
    2  causality            no cut depends on events after another cut
    3  conservation         a sum is the same in every snapshot
    4  completeness         every subtask contributed, once
    5  integrity            every byte is proved; flippedBits: every single bit
    6  restoreEquivalence   faults do not change the output
    7  delivery             nothing lost, doubled, out of order, changed; numberedDelivery: at a sink
    8  fencing              an older incarnation changes nothing that is published
    9  liveness             when faults stop, a snapshot is published and the run ends

`judge` applies all checkers that apply. ``verdict.demand()`` raises if a checker failed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cutline.snapshot.stored.snapshot import Snapshot
from cutline.snapshot.testing.checking.delivery import conservation, delivery
from cutline.snapshot.testing.checking.equivalence import restoreEquivalence
from cutline.snapshot.testing.checking.exact_cut import causality, completeness, exactCut
from cutline.snapshot.testing.checking.fencing import fencing
from cutline.snapshot.testing.checking.integrity import flippedBits, integrity
from cutline.snapshot.testing.checking.liveness import liveness
from cutline.snapshot.testing.checking.numbered import numberedDelivery, numberedRecord
from cutline.snapshot.testing.checking.verdict import CheckFailed, Verdict
from cutline.snapshot.testing.history import History

__all__ = [
    "CheckFailed",
    "Verdict",
    "causality",
    "completeness",
    "conservation",
    "delivery",
    "exactCut",
    "fencing",
    "flippedBits",
    "integrity",
    "judge",
    "liveness",
    "numberedDelivery",
    "numberedRecord",
    "restoreEquivalence",
]


def judge(
    history: History,
    *,
    measure: Callable[[Snapshot], Any] | None = None,
    reference: History | None = None,
    output: Callable[[History], Any] | None = None,
) -> list[Verdict]:
    """Apply every checker that applies.

    Parameters
    ----------
    history : History
    measure : callable, optional
        Measure that `conservation` compares. None, or a broken snapshot: `conservation` is left out.
    reference : History, optional
        The run without faults, for `restoreEquivalence`. None: `restoreEquivalence` is left out.
    output : callable, optional
        Output that `restoreEquivalence` compares.

    Returns
    -------
    list of Verdict
        First the verdicts of the snapshots, in the order of publishing, then the verdicts of the run.
    """
    verdicts = [verdict for snapshot in history.snapshots for verdict in _of_snapshot(history, snapshot)]
    if measure is not None and all(verdict.holds for verdict in verdicts):
        verdicts.append(conservation(history, measure))
    verdicts += [delivery(history), fencing(history), liveness(history)]
    if reference is not None:
        verdicts.append(restoreEquivalence(history, reference, output))
    return verdicts


def _of_snapshot(history: History, snapshot: Snapshot) -> list[Verdict]:
    """Apply the checkers of one snapshot.

    A damaged snapshot has the verdict of `integrity` only, because it cannot be read. So has a snapshot with which the
    store began, because the history has no events of it.
    """
    whole = integrity(snapshot)
    if not whole.holds or snapshot.id in history.adopted:
        return [whole]
    if history.topology.row.divides:  # whose cut is no moment of a subtask
        return [whole, completeness(history, snapshot)]
    return [whole, exactCut(history, snapshot), causality(history, snapshot), completeness(history, snapshot)]
