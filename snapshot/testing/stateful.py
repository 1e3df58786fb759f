"""Free exploration: Hypothesis takes each step of one simulated run, and checks the run after each step.

::

    TestBank = explorationMachine(graph).TestCase
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from hypothesis.strategies import SearchStrategy

from cutline.snapshot.ids import Subtask
from cutline.snapshot.stored.snapshot import Snapshot
from cutline.snapshot.testing.checkers import CheckFailed, Verdict, causality, completeness, conservation, exactCut
from cutline.snapshot.testing.history import History
from cutline.snapshot.testing.recovery import recovers
from cutline.snapshot.testing.simulator import Impossible
from cutline.snapshot.testing.steps import Fault, Initiate, Quiesce, Step, Tick
from cutline.snapshot.testing.steps_of import StepsOf
from cutline.snapshot.testing.trial import Failing, GraphMaker, Run, Trial

#: snapshots that one run initiates: enough to overlap, and too few for given-up snapshots to fail the run
_SNAPSHOTS_MAX = 3


def explorationMachine(
    graph: GraphMaker,
    *,
    measure: Callable[[Snapshot], Any] | None = None,
    output: Callable[[History], Any] | None = None,
    faults: int = 2,
) -> type[ExplorationMachine]:
    """Make a state machine whose rules are the steps of a run, and whose invariants are the checkers.

    Parameters
    ----------
    graph : Graph, or function that makes one
        The graph, as for `checkRecovery`.
    measure : callable, optional
        Function of a snapshot, as for `checkConservation`. None: nothing is measured.
    output : callable, optional
        Output of a run, as for `checkRecovery`.
    faults : int
        Maximum number of faults in one run.

    Returns
    -------
    type
        Class whose ``TestCase`` runs under unittest and pytest, with Hypothesis' settings. The settings need no
        shrinking, because the schedule in a failure is short already.
    """
    trial = Trial(graph, output)
    plan = _Plan(trial, StepsOf(trial.graph), measure, faults)
    machine: type[ExplorationMachine] = type("Exploration", (ExplorationMachine,), {"plan": plan})
    machine.TestCase.settings = settings(deadline=None, phases=(Phase.generate,), print_blob=False)
    return machine


@dataclass(frozen=True, slots=True)
class _Plan:
    """Graph, checks and limits of an exploration."""

    trial: Trial
    own: StepsOf
    measure: Callable[[Snapshot], Any] | None
    faults: int
    #: the first failure, kept because its text took some hundred runs
    found: list[CheckFailed] = field(default_factory=list)

    def judge(self, run: Run) -> Verdict | None:
        """Return the first broken rule of a run, or None."""
        verdict = recovers(self.trial)(run)
        if verdict is None and self.measure is not None:
            verdict = conservation(run.history, self.measure)
        return None if verdict is None or verdict.holds else verdict


def _own(steps: Callable[[Any], SearchStrategy[Any]]) -> SearchStrategy[Any]:
    """Draw from the steps of the machine's own graph."""
    return st.runner().flatmap(steps)


class ExplorationMachine(RuleBasedStateMachine):
    """A run of the graph in `plan`. `explorationMachine` makes the subclass that has a plan."""

    plan: ClassVar[_Plan]

    def __init__(self) -> None:
        super().__init__()
        self.simulator = self.plan.trial.simulator(())
        self.initiated = 0
        self.faulted = 0
        self.checked = 0
        self.has_failed = False

    @rule(step=_own(lambda self: st.sampled_from(self.plan.own.polls)))
    @precondition(lambda self: bool(self.plan.own.polls))
    def poll(self, step: Step) -> None:
        """Poll a source."""
        self._take(step)

    @rule(step=_own(lambda self: st.sampled_from(self.plan.own.deliveries)))
    @precondition(lambda self: bool(self.plan.own.deliveries))
    def deliver(self, step: Step) -> None:
        """Handle the next message of a channel."""
        self._take(step)

    @precondition(lambda self: self.initiated < _SNAPSHOTS_MAX)
    @rule(at=_own(lambda self: st.sampled_from(self.plan.own.subtasks)))
    def initiate(self, at: Subtask) -> None:
        """Start a snapshot."""
        self.initiated += 1
        self._take(Initiate(self.initiated, at))

    @rule(step=_own(lambda self: st.sampled_from(self.plan.own.markers())))
    @precondition(lambda self: self.initiated > 0)
    def deliver_marker(self, step: Step) -> None:
        """Deliver the next marker of a channel."""
        self._take(step)

    @rule()
    @precondition(lambda self: self.initiated > 0)
    def publish(self) -> None:
        """Deliver the markers that are on their way along the graph, and publish every complete snapshot."""
        for step in (Quiesce(), *self.plan.own.markers(), Quiesce()):
            self._take(step)

    @rule()
    def quiesce(self) -> None:
        """Let everything happen that needs neither data nor time."""
        self._take(Quiesce())

    @rule()
    def tick(self) -> None:
        """Let time pass until a step is due."""
        self._take(Tick())

    @rule(fault=_own(lambda self: st.sampled_from([*self.plan.own.plain_faults, *self.plan.own.rare_faults])))
    @precondition(lambda self: self.faulted < self.plan.faults)
    def crash(self, fault: Fault) -> None:
        """Let a fault happen."""
        self.faulted += 1
        self._take(fault)

    @invariant()
    def snapshots_are_exact(self) -> None:
        """Check that each snapshot published since the last check is a consistent cut and conserves the measure."""
        history = self.simulator.history
        new, self.checked = history.snapshots[self.checked :], len(history.snapshots)
        verdicts = [check(history, each) for each in new for check in (exactCut, causality, completeness)]
        if new and self.plan.measure is not None:
            verdicts.append(conservation(history, self.plan.measure))
        self._demand(verdicts)

    def teardown(self) -> None:
        """Let the run go on to its end, and judge the whole run."""
        if self.has_failed:
            return
        run = self.plan.trial.ended(self.simulator, self.simulator.finish)
        verdict = run.violation or self.plan.judge(run)
        self._demand([] if verdict is None else [verdict])

    def _take(self, step: Step) -> None:
        try:
            self.simulator.take(step)
        except Impossible:
            return  # rules have no precondition on the run, so a rule may draw a step that is not possible now
        except CheckFailed as error:
            self._demand([Verdict(error.checker, False, error.text)])

    def _demand(self, verdicts: list[Verdict]) -> None:
        broken = next((verdict for verdict in verdicts if not verdict.holds), None)
        if broken is None:
            return
        self.has_failed = True
        if not self.plan.found:
            schedule = list(self.simulator.history.schedule)
            failing = self.plan.trial.attempt(schedule, self.plan.judge) or Failing(broken, schedule, is_exact=False)
            self.plan.found.append(self.plan.trial.failure(failing, self.plan.judge))
        raise self.plan.found[0]
