"""Runs a graph again and again, without faults and by generated schedules, until a checker finds something.

What it finds is told with the shortest schedule that shows it, with the mistakes that may be behind it, and drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis.errors import Flaky
from hypothesis.strategies import SearchStrategy

from snapshot.coordinator.run_state import Outcome
from snapshot.graph import Graph
from snapshot.testing.checkers import CheckFailed, Verdict
from snapshot.testing.diagnosis.diagnose import diagnose
from snapshot.testing.diagnosis.probe import Probe
from snapshot.testing.history import History
from snapshot.testing.simulator import Mutation, Simulator
from snapshot.testing.steps import Step
from snapshot.testing.strategies import schedules

#: A graph, or a function that makes it anew, and with it all that its nodes use outside of themselves.
GraphMaker = Graph | Callable[[], Graph]

#: Steps after which the run without faults is cut off: what takes longer is too long to be run some hundred times.
_REFERENCE_STEPS_MAX = 20_000
#: Steps after which others are, for each of its events: every fault makes a run repeat a part.
_STEPS_FACTOR, _STEPS_MIN = 20, 5_000
#: The last events of a failure that are drawn.
_EVENTS_DRAWN = 80
#: A schedule that is longer than this takes a line a step.
_LINE_CHARACTERS = 100


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the graph."""

    history: History
    #: what `output` gave, at once: what is outside of the nodes is gone with the next run; None where it did not end
    output: Any
    #: a rule of Cutline that was broken while it ran
    violation: Verdict | None


#: What is wrong with a run; None: nothing.
Judge = Callable[[Run], Verdict | None]


@dataclass(frozen=True, slots=True)
class Failing:
    """A run in which something is wrong."""

    verdict: Verdict
    schedule: Sequence[Step]
    #: the same happens without leaving anything out
    is_exact: bool


class _Found(Exception):
    """Tells Hypothesis that an example fails."""


class Trial:
    """The runs of one graph.

    Parameters
    ----------
    graph : Graph or callable
    output : callable, optional
        Asked behind each run.

    Raises
    ------
    ValueError
        if the graph does not come to its end by itself.
    CheckFailed
        if it fails without any fault.
    """

    def __init__(self, graph: GraphMaker, output: Callable[[History], Any] | None = None) -> None:
        self._make = graph if callable(graph) else lambda: graph
        self._output = output
        self._max_steps = _REFERENCE_STEPS_MAX
        self.graph = self._make()
        self.reference = self.run(())
        if self.reference.history.outcome is None:
            raise ValueError(
                f"graph {self.graph.name!r} does not end by itself, so there is nothing to compare with "
                f"({self.reference.history.reason}). Give it sources that end"
            )
        if self.reference.history.outcome is Outcome.FAILED:
            raise CheckFailed("liveness", f"the run without any fault fails: {self.reference.history.reason}")
        self._max_steps = max(_STEPS_MIN, _STEPS_FACTOR * len(self.reference.history.events))

    @property
    def has_output(self) -> bool:
        """Runs are asked for their output."""
        return self._output is not None

    def simulator(
        self, schedule: Sequence[Step], *, skips: bool = False, mutation: Mutation | None = None
    ) -> Simulator:
        """A new run that takes these steps."""
        return Simulator(self._make(), schedule, skipsImpossible=skips, mutation=mutation, maxSteps=self._max_steps)

    def run(self, schedule: Sequence[Step], *, skips: bool = False, mutation: Mutation | None = None) -> Run:
        """One run by a schedule, to its end."""
        simulator = self.simulator(schedule, skips=skips, mutation=mutation)
        return self.ended(simulator, simulator.run)

    def ended(self, simulator: Simulator, to_the_end: Callable[[], History]) -> Run:
        """The run of a simulator, whose rest is done now."""
        violation = None
        try:
            to_the_end()
        except CheckFailed as error:
            violation = Verdict(error.checker, False, error.text)
        history = simulator.history
        if self._output is None or history.outcome in (None, Outcome.FAILED):
            return Run(history, None, violation)
        return Run(history, self._output(history), violation)

    def demand(self, judge: Judge, *, faults: int, examples: int) -> None:
        """Judge the run without faults, then runs by so many schedules: with one fault first, then with more.

        Raises
        ------
        CheckFailed
            if one is not as it should be: its text says all that helps to find out why.
        """
        failing = self.attempt((), judge)
        rounds = list(range(1, faults + 1)) or [0]
        for most in rounds:
            # What one fault is enough for is found, and shrinks, best where there are no others.
            failing = failing or self._search(schedules(self.graph, faults=most), judge, -(-examples // len(rounds)))
        if failing is not None:
            raise self.failure(failing, judge)

    # ---------------------------------------------------------------- the search

    def _search(self, drawn: SearchStrategy[list[Step]], judge: Judge, examples: int) -> Failing | None:
        found: list[Failing] = []

        @settings(
            max_examples=examples,
            database=None,
            deadline=None,
            derandomize=True,
            verbosity=Verbosity.quiet,
            report_multiple_bugs=False,
            phases=(Phase.generate, Phase.shrink),  # to explain, Hypothesis would trace every line of every run
            suppress_health_check=list(HealthCheck),
        )
        @given(drawn)
        def attempt(schedule: list[Step]) -> None:
            failing = self.attempt(schedule, judge)
            if failing is not None:
                found.append(failing)
                raise _Found

        try:
            attempt()
        except (_Found, Flaky):  # flaky: the nodes do not do the same again, which is what is wrong with them
            return found[-1]
        return None

    def attempt(self, schedule: Sequence[Step], judge: Judge) -> Failing | None:
        """Run by a schedule; None: nothing is wrong."""
        run = self.run(schedule, skips=True)
        verdict = run.violation or judge(run)
        if verdict is None:
            return None
        taken = list(run.history.schedule)
        if taken == list(schedule):
            return Failing(verdict, schedule, is_exact=True)
        # What was left out may have brought things forward. As a rule it makes no difference.
        exact = self.run(taken, skips=True)
        again = exact.violation or judge(exact)
        if again is not None and exact.history.schedule == taken:
            return Failing(again, taken, is_exact=True)
        return Failing(verdict, schedule, is_exact=False)

    # ---------------------------------------------------------------- what is told

    def failure(self, failing: Failing, judge: Judge) -> CheckFailed:
        """The error that says all that helps to find out why."""
        shortest = self._shortest(failing, judge)
        return CheckFailed(shortest.verdict.checker, self._described(shortest))

    def _shortest(self, failing: Failing, judge: Judge) -> Failing:
        """Leave out what is not needed: much at a time, then step by step."""
        size = max(1, len(failing.schedule) // 2)
        while True:
            shorter = self._without(failing, size, judge)
            if size == 1 and len(shorter.schedule) == len(failing.schedule):
                return shorter
            failing, size = shorter, max(1, size // 2)

    def _without(self, failing: Failing, size: int, judge: Judge) -> Failing:
        """Leave out, from the end, so many steps side by side, wherever they are not needed."""
        for place in range(len(failing.schedule) - size, -1, -size):
            fewer = [*failing.schedule[:place], *failing.schedule[place + size :]]
            shorter = self.attempt(fewer, judge)
            if shorter is not None and len(shorter.schedule) <= len(fewer):
                failing = shorter
        return failing

    def _described(self, failing: Failing) -> str:
        plain, probe = Probe(), Probe()
        reference = self.run((), mutation=plain.mutation).history
        history = self.run(failing.schedule, skips=True, mutation=probe.mutation).history
        named = [f"  {diagnosis}.\n    {diagnosis.advice}" for diagnosis in diagnose(history, probe, reference, plain)]
        skips = "" if failing.is_exact else ", skipsImpossible=True"
        return "\n".join(
            [
                failing.verdict.text,
                "",
                "Look here first:" if named else "No usual mistake is seen in the nodes; the diagram shows the run.",
                *named,
                "",
                "The shortest schedule found that shows it:",
                f"  Simulator(graph, {_listed(failing.schedule)}{skips}).run()",
                "",
                history.diagram(-_EVENTS_DRAWN).text(),
            ]
        )


def _listed(steps: Sequence[Step]) -> str:
    """A schedule as it is written."""
    line = repr(list(steps))
    if len(line) <= _LINE_CHARACTERS:
        return line
    return "[\n" + "".join(f"      {step!r},\n" for step in steps) + "  ]"
