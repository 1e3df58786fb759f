"""Check that a graph gives the same output, whatever fails while the graph runs."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

from cutline.snapshot.testing.checkers import Verdict, judge, restoreEquivalence
from cutline.snapshot.testing.diagnosis.diagnose import Diagnosis
from cutline.snapshot.testing.history import History
from cutline.snapshot.testing.payload import unpack
from cutline.snapshot.testing.trial import GraphMaker, Judge, Run, Trial


def checkRecovery(
    graph: GraphMaker,
    *,
    output: Callable[[History], Any] | None = None,
    faults: int = 2,
    examples: int = 200,
) -> None:
    """Run a graph without faults, then by generated schedules with crashes, and check that each output is the same.

    All checkers judge every snapshot and every run, too. The schedules are short. For every six of them comes a longer
    one, whose snapshots lie anywhere in the run, so that late and large states are restored.

    A pass still warns of each attribute that changed and that a restore did not bring back: a `UserWarning` each, whose
    text has the filter for an attribute that needs no saving, such as a cache.

    Parameters
    ----------
    graph : Graph, or function that makes one
        A graph that ends by itself. A function is called before each run, so that the function can empty the places to
        which its nodes write.
    output : callable, optional
        Output of a run, compared by ``==``, and computed right after each run. Default: the same multiset at every
        sink and at every node without outputs.
    faults : int
        Maximum number of faults in one run.
    examples : int
        Number of short schedules that are tried.

    Raises
    ------
    CheckFailed
        if a checker finds something. The text has the verdict, the suspected mistake and its node, the shortest
        schedule to paste into a test, and a drawing of the run.
    GraphError
        if something is wrong with the graph.
    ValueError
        if the graph does not end by itself, or has no output.
    """
    trial = Trial(graph, output)
    trial.demand(recovers(trial), faults=faults, examples=examples)
    for suspicion in trial.suspicions() if faults else ():
        warnings.warn(_warning(suspicion), stacklevel=2)


def _warning(suspicion: Diagnosis) -> str:
    """Return the text of a warning, with the filter that leaves out this attribute of this node and no other."""
    pattern = f"{re.escape(suspicion.subtask.node)}.*attribute {suspicion.where!r}"
    return (
        f"{suspicion}. No output differs. {suspicion.advice} For a cache, which needs no saving, ignore this warning: "
        f'warnings.filterwarnings("ignore", "{pattern}")'
    )


def recovers(trial: Trial) -> Judge:
    """Return a judge: a run must give the output of the run without faults, and pass all other checkers."""

    def broken(run: Run) -> Verdict | None:
        verdicts = [_equivalence(run, trial), *judge(run.history)]
        return next((verdict for verdict in verdicts if not verdict.holds), None)

    return broken


def everHandled(history: History, node: str) -> list[Any]:
    """Return all messages that a node handled, including those that a rollback undid, in the order of handling.

    No rollback reaches a place outside, so that such a place has received all of these. Compare as a set where writing
    again does no harm.
    """
    received = history.handled_among([each for each in history.events if each.subtask and each.subtask.node == node])
    return [unpack(each.payload, history.codec) for each in received]


def _equivalence(run: Run, trial: Trial) -> Verdict:
    """Apply checker 6 to outputs that were computed right after their runs."""
    reference = trial.reference
    if not trial.has_output:
        return restoreEquivalence(run.history, reference.history)
    outputs = {id(run.history): run.output, id(reference.history): reference.output}
    return restoreEquivalence(run.history, reference.history, lambda history: outputs[id(history)])
