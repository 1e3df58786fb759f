"""Demands that a graph gives the same output, whatever fails while it runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from snapshot.testing.checkers import Verdict, judge, restoreEquivalence
from snapshot.testing.history import History
from snapshot.testing.payload import unpack
from snapshot.testing.trial import GraphMaker, Judge, Run, Trial
from snapshot.trace_events import Kind


def checkRecovery(
    graph: GraphMaker,
    *,
    output: Callable[[History], Any] | None = None,
    faults: int = 2,
    examples: int = 200,
) -> None:
    """Run a graph without faults, then by generated schedules with crashes, and demand the same output each time.

    Every snapshot and every run is shown to all checkers too.

    Parameters
    ----------
    graph : Graph, or function that makes one
        It must end by itself. A function is called before each run: there it can empty what its nodes write to.
    output : callable, optional
        What must be equal, compared by ``==``; asked behind each run. Default: the same multiset at every sink and at
        every node without outputs.
    faults : int
        At most so many in one run.
    examples : int
        Schedules that are tried.

    Raises
    ------
    CheckFailed
        The text says what is wrong, which mistake in which node is suspected, the shortest schedule that shows it, to
        be pasted into a test, and draws the run.
    GraphError
        if something is wrong with the graph.
    ValueError
        if it does not end by itself, or has no output.
    """
    trial = Trial(graph, output)
    trial.demand(recovers(trial), faults=faults, examples=examples)


def recovers(trial: Trial) -> Judge:
    """Whether a run gives what the run without faults gives, and is sound besides."""

    def broken(run: Run) -> Verdict | None:
        verdicts = [_equivalence(run, trial), *judge(run.history)]
        return next((verdict for verdict in verdicts if not verdict.holds), None)

    return broken


def everHandled(history: History, node: str) -> list[Any]:
    """All messages that a node handled, those that a rollback undid among them, in the order of handling.

    What a place outside has seen that no rollback reaches: to be compared as a set where writing again does no harm.
    """
    received = (event for event in history.events if event.kind is Kind.RECEIVE)
    return [unpack(each.payload, history.codec) for each in received if each.subtask and each.subtask.node == node]


def _equivalence(run: Run, trial: Trial) -> Verdict:
    """Checker 6, of outputs that were asked for when it was time."""
    reference = trial.reference
    if not trial.has_output:
        return restoreEquivalence(run.history, reference.history)
    outputs = {id(run.history): run.output, id(reference.history): reference.output}
    return restoreEquivalence(run.history, reference.history, lambda history: outputs[id(history)])
