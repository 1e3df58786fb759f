"""Run a graph again and again, without faults and by generated schedules, until a checker finds a failure.

The text of a failure has the shortest schedule that shows it, the mistakes that may cause it, and a drawing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis.errors import Flaky
from hypothesis.strategies import SearchStrategy

from cutline.snapshot.coordinator.run_state import Outcome
from cutline.snapshot.graph import Graph
from cutline.snapshot.testing.checkers import CheckFailed, Verdict
from cutline.snapshot.testing.diagnosis.diagnose import Diagnosis, diagnose, unsaved_attributes
from cutline.snapshot.testing.diagnosis.probe import Probe
from cutline.snapshot.testing.history import History
from cutline.snapshot.testing.late_schedules import late_schedules
from cutline.snapshot.testing.simulator import Mutation, Simulator
from cutline.snapshot.testing.steps import Step
from cutline.snapshot.testing.strategies import schedules

#: A graph, or a function that makes a new graph and all that its nodes use outside of themselves.
GraphMaker = Graph | Callable[[], Graph]

#: steps after which the run without faults is cut off: a longer run is too long to be run some hundred times
_REFERENCE_STEPS_MAX = 20_000
#: steps for each event of the run without faults, and at least, before other runs are cut off: faults repeat parts
_STEPS_FACTOR, _STEPS_MIN = 20, 5_000
#: short schedules for each late schedule, because late states need few examples, and each takes a whole run
_LATE_SHARE = 6
#: sound runs whose nodes are observed for suspicious attributes
_PROBED_RUNS = 4
#: number of the last events of a failure that are drawn
_EVENTS_DRAWN = 80
#: characters of a schedule on one line; a longer schedule takes a line a step
_LINE_CHARACTERS = 100


@dataclass(frozen=True, slots=True)
class Run:
    """One run of the graph."""

    history: History
    #: result of `output` right after the run, because the next run replaces what is outside the nodes; None without end
    output: Any
    #: verdict of a rule of Cutline that the run broke, or None
    violation: Verdict | None


#: Judges a run: returns a broken verdict, or None if the run is sound.
Judge = Callable[[Run], Verdict | None]


@dataclass(frozen=True, slots=True)
class Failing:
    """A run that a judge refuses."""

    verdict: Verdict
    schedule: Sequence[Step]
    #: whether the same failure happens without leaving out any step
    is_exact: bool


class _Found(Exception):
    """Reports to Hypothesis that an example fails."""


class Trial:
    """The runs of one graph.

    Parameters
    ----------
    graph : Graph or callable
    output : callable, optional
        Function of a history, called right after each run.

    Raises
    ------
    ValueError
        if the graph does not end by itself.
    CheckFailed
        if the graph fails without any fault.
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
        """Whether runs have an output."""
        return self._output is not None

    def simulator(
        self, schedule: Sequence[Step], *, skips: bool = False, mutation: Mutation | None = None
    ) -> Simulator:
        """Make a simulator of a new run that takes these steps."""
        return Simulator(self._make(), schedule, skipsImpossible=skips, mutation=mutation, maxSteps=self._max_steps)

    def run(self, schedule: Sequence[Step], *, skips: bool = False, mutation: Mutation | None = None) -> Run:
        """Run the graph by a schedule, to its end."""
        simulator = self.simulator(schedule, skips=skips, mutation=mutation)
        return self.ended(simulator, simulator.run)

    def ended(self, simulator: Simulator, to_the_end: Callable[[], History]) -> Run:
        """Let a simulator go on to the end of its run, and return the run."""
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
        """Judge the run without faults, then runs by `examples` schedules: first with one fault, then with more.

        Raises
        ------
        CheckFailed
            if the judge refuses a run. The text has all that helps to find the cause.
        """
        failing = self.attempt((), judge)
        rounds = list(range(1, faults + 1)) or [0]
        for most in rounds:
            # A failure that needs one fault is found, and shrinks, best where there are no other faults.
            failing = failing or self._search(schedules(self.graph, faults=most), judge, -(-examples // len(rounds)))
        failing = failing or self._search_late(judge, faults, examples // _LATE_SHARE)
        if failing is not None:
            raise self.failure(failing, judge)

    def suspicions(self) -> list[Diagnosis]:
        """Return the attributes that changed and that a restore does not bring back, though no judge refuses a run."""
        found: dict[tuple[str, str], Diagnosis] = {}
        for schedule in late_schedules(self.graph, self.reference.history, 1, _PROBED_RUNS):
            probe = Probe()
            history = self.run(schedule, skips=True, mutation=probe.mutation).history
            for diagnosis in unsaved_attributes(history, probe):
                found.setdefault((diagnosis.subtask.node, diagnosis.where), diagnosis)
        return list(found.values())

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
            phases=(Phase.generate, Phase.shrink),  # Phase.explain would trace every line of every run
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
        except (_Found, Flaky):  # flaky: the nodes are not deterministic, which is their mistake
            return found[-1]
        return None

    def _search_late(self, judge: Judge, faults: int, examples: int) -> Failing | None:
        schedules = late_schedules(self.graph, self.reference.history, faults, examples)
        attempts = (self.attempt(schedule, judge) for schedule in schedules)
        return next((failing for failing in attempts if failing is not None), None)

    def attempt(self, schedule: Sequence[Step], judge: Judge) -> Failing | None:
        """Run by a schedule, and return a failing run, or None if nothing is wrong."""
        run = self.run(schedule, skips=True)
        verdict = run.violation or judge(run)
        if verdict is None:
            return None
        taken = list(run.history.schedule)
        if taken == list(schedule):
            return Failing(verdict, schedule, is_exact=True)
        # Steps that were left out may have brought things forward. As a rule leaving them out makes no difference.
        exact = self.run(taken, skips=True)
        again = exact.violation or judge(exact)
        if again is not None and exact.history.schedule == taken:
            return Failing(again, taken, is_exact=True)
        return Failing(verdict, schedule, is_exact=False)

    # ---------------------------------------------------------------- the text of a failure

    def failure(self, failing: Failing, judge: Judge) -> CheckFailed:
        """Make the error whose text has all that helps to find the cause."""
        shortest = self._shortest(failing, judge)
        return CheckFailed(shortest.verdict.checker, self._described(shortest))

    def _shortest(self, failing: Failing, judge: Judge) -> Failing:
        """Leave out the steps that the failure does not need: many at a time, then step by step."""
        size = max(1, len(failing.schedule) // 2)
        while True:
            shorter = self._without(failing, size, judge)
            if size == 1 and len(shorter.schedule) == len(failing.schedule):
                return shorter
            failing, size = shorter, max(1, size // 2)

    def _without(self, failing: Failing, size: int, judge: Judge) -> Failing:
        """Leave out, from the end, each group of `size` adjacent steps that the failure does not need."""
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
    """Return a schedule as Python source."""
    line = repr(list(steps))
    if len(line) <= _LINE_CHARACTERS:
        return line
    return "[\n" + "".join(f"      {step!r},\n" for step in steps) + "  ]"
