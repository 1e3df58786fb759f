"""Free exploration: Hypothesis takes step after step of one simulated run itself, and looks at it after each.

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

from snapshot.ids import Subtask
from snapshot.stored.snapshot import Snapshot
from snapshot.testing.checkers import CheckFailed, Verdict, causality, completeness, conservation, exactCut
from snapshot.testing.history import History
from snapshot.testing.recovery import recovers
from snapshot.testing.simulator import Impossible
from snapshot.testing.steps import Fault, Initiate, Quiesce, Step, Tick
from snapshot.testing.steps_of import StepsOf
from snapshot.testing.trial import Failing, GraphMaker, Run, Trial

#: Snapshots that one run is asked for: enough to overlap, and too few to fail the run by being given up.
_SNAPSHOTS_MAX = 3


def explorationMachine(
    graph: GraphMaker,
    *,
    measure: Callable[[Snapshot], Any] | None = None,
    output: Callable[[History], Any] | None = None,
    faults: int = 2,
) -> type[ExplorationMachine]:
    """A state machine whose rules are the steps of a run, and whose invariants are the checkers.

    Parameters
    ----------
    graph : Graph, or function that makes one
        As for `checkRecovery`.
    measure : callable, optional
        As for `checkConservation`; None: nothing is measured.
    output : callable, optional
        As for `checkRecovery`.
    faults : int
        At most so many in one run.

    Returns
    -------
    type
        Its ``TestCase`` is what unittest and pytest run, and takes Hypothesis' settings. They need no shrinking: the
        schedule that a failure tells is short already.
    """
    trial = Trial(graph, output)
    plan = _Plan(trial, StepsOf(trial.graph), measure, faults)
    machine: type[ExplorationMachine] = type("Exploration", (ExplorationMachine,), {"plan": plan})
    machine.TestCase.settings = settings(deadline=None, phases=(Phase.generate,), print_blob=False)
    return machine


@dataclass(frozen=True, slots=True)
class _Plan:
    """What is explored."""

    trial: Trial
    own: StepsOf
    measure: Callable[[Snapshot], Any] | None
    faults: int
    #: the first failure, which took some hundred runs to tell
    found: list[CheckFailed] = field(default_factory=list)

    def judge(self, run: Run) -> Verdict | None:
        """What is wrong with a run; None: nothing."""
        verdict = recovers(self.trial)(run)
        if verdict is None and self.measure is not None:
            verdict = conservation(run.history, self.measure)
        return None if verdict is None or verdict.holds else verdict


def _own(steps: Callable[[Any], SearchStrategy[Any]]) -> SearchStrategy[Any]:
    """Drawn from what belongs to the machine's own graph."""
    return st.runner().flatmap(steps)


class ExplorationMachine(RuleBasedStateMachine):
    """One run. Made by `explorationMachine`, which says of which graph."""

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
        """A source is polled."""
        self._take(step)

    @rule(step=_own(lambda self: st.sampled_from(self.plan.own.deliveries)))
    @precondition(lambda self: bool(self.plan.own.deliveries))
    def deliver(self, step: Step) -> None:
        """The next message of a channel is handled."""
        self._take(step)

    @precondition(lambda self: self.initiated < _SNAPSHOTS_MAX)
    @rule(at=_own(lambda self: st.sampled_from(self.plan.own.subtasks)))
    def initiate(self, at: Subtask) -> None:
        """A snapshot is started."""
        self.initiated += 1
        self._take(Initiate(self.initiated, at))

    @rule(step=_own(lambda self: st.sampled_from(self.plan.own.markers())))
    @precondition(lambda self: self.initiated > 0)
    def deliver_marker(self, step: Step) -> None:
        """The next marker of a channel comes through."""
        self._take(step)

    @rule()
    @precondition(lambda self: self.initiated > 0)
    def publish(self) -> None:
        """The markers that are on their way come through along the graph, and what is whole is published."""
        for step in (Quiesce(), *self.plan.own.markers(), Quiesce()):
            self._take(step)

    @rule()
    def quiesce(self) -> None:
        """All that needs neither data nor time happens."""
        self._take(Quiesce())

    @rule()
    def tick(self) -> None:
        """Time passes, until something is due."""
        self._take(Tick())

    @rule(fault=_own(lambda self: st.sampled_from([*self.plan.own.plain_faults, *self.plan.own.rare_faults])))
    @precondition(lambda self: self.faulted < self.plan.faults)
    def crash(self, fault: Fault) -> None:
        """A fault happens."""
        self.faulted += 1
        self._take(fault)

    @invariant()
    def snapshots_are_exact(self) -> None:
        """What was published since the last look is a consistent cut, and measures what it should."""
        history = self.simulator.history
        new, self.checked = history.snapshots[self.checked :], len(history.snapshots)
        verdicts = [check(history, each) for each in new for check in (exactCut, causality, completeness)]
        if new and self.plan.measure is not None:
            verdicts.append(conservation(history, self.plan.measure))
        self._demand(verdicts)

    def teardown(self) -> None:
        """The run goes on to its end, and is looked at as a whole."""
        if self.has_failed:
            return
        run = self.plan.trial.ended(self.simulator, self.simulator.finish)
        verdict = run.violation or self.plan.judge(run)
        self._demand([] if verdict is None else [verdict])

    def _take(self, step: Step) -> None:
        try:
            self.simulator.take(step)
        except Impossible:
            return  # rules are not asked in advance: some ask for what is not possible now
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
