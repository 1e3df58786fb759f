"""One mutant, and the tests that try to kill it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import NamedTuple

import pytest

from tests.mutants.covering import PYTEST_ARGUMENTS, ConfigureHypothesis, CoveringTest, has_lines
from tests.mutants.mutations import Mutant
from tests.mutants.tree import Fork, Message, Tree

#: Seconds that the tests of one mutant may take together, by their measured times. Who is not killed then survives.
TRIAL_MAX_S = 20.0
#: tests of the first fork of a mutant; nearly all mutants are killed by the nearest tests
_NEAREST = 30
#: seconds that a fork may take until its first test runs
_COLLECTION_MAX_S = 60.0


class Verdict(StrEnum):
    """What became of a mutant."""

    KILLED = "killed"
    SURVIVED = "survived"
    NOT_COVERED = "not covered"
    #: no test kills it, and the type checker refuses it, as a compiler would; so it is no program, and does not count
    REFUSED = "refused"


class Outcome(NamedTuple):
    """The verdict, and the test that decided or the number of tests that passed."""

    verdict: Verdict
    why: str


class Covering:
    """The tests that cover a mutant, the best first."""

    def __init__(self, tests: list[CoveringTest], importers: dict[str, set[str]], import_lines: dict[str, int]) -> None:
        self._tests = tests
        #: {file: bits of the lines that run at import}
        self._import_lines = import_lines
        #: {file: files that import from it}
        self._importers = importers

    def of(self, mutant: Mutant) -> list[CoveringTest]:
        """Return the tests of the mutant's lines, the nearest first.

        Tests in the mirrored file come first, then those that execute the mutant's file, or stand beside such tests,
        then those in the mirrored folder, then the fastest.

        A statement that runs at import is covered by all tests of a file of which one executes its module, or a module
        that imports it. A test of constants, or of a help text, executes no line of ours itself.
        """
        place = (mutant.file, mutant.first, mutant.last)
        folder, _, name = mutant.file.rpartition("/")
        mirrored = f"tests/{folder}/test_{name}"
        if mutant.is_import_time or has_lines(self._import_lines, *place):
            files = {mutant.file, *self._importers.get(mutant.file, ())}
            near = {mirrored, *(test.file for test in self._tests if not files.isdisjoint(test.lines))}
            found = [test for test in self._tests if test.file in near]
        else:
            found = [test for test in self._tests if test.executes(*place)]
        executing = {test.file for test in self._tests if mutant.file in test.lines}
        found.sort(
            key=lambda test: (
                test.file != mirrored,
                test.file not in executing,
                mutant.file not in test.lines,
                not test.file.startswith(f"tests/{folder}/"),
                test.seconds,
            )
        )
        return list(_within(found, TRIAL_MAX_S))


def _within(tests: list[CoveringTest], seconds: float) -> Iterator[CoveringTest]:
    """Yield those tests, in order, that fit into `seconds` together."""
    for test in tests:
        if test.seconds <= seconds:
            seconds -= test.seconds
            yield test


def try_mutant(tree: Tree, mutant: Mutant, tests: list[CoveringTest]) -> Outcome:
    """Run the tests until one fails. Then ask the type checker about a mutant that is not killed."""
    with tree.mutated(mutant.file, mutant.code()):
        for chosen in filter(None, (tests[:_NEAREST], tests[_NEAREST:])):
            if killer := _killer(tree, chosen):
                return Outcome(Verdict.KILLED, killer)
        if error := tree.type_error(mutant.file):
            return Outcome(Verdict.REFUSED, error)
    if not tests:
        return Outcome(Verdict.NOT_COVERED, "no test that is not live executes this line")
    return Outcome(Verdict.SURVIVED, f"{len(tests)} tests pass")


def _killer(tree: Tree, tests: list[CoveringTest]) -> str | None:
    """Run tests in a fork. Return what fails, or None."""
    seconds = {test.name: test.seconds for test in tests}
    fork = Fork(tree, lambda send: _run_tests(tests, send))
    try:
        limit, running = _COLLECTION_MAX_S, "the import"
        begun_at = time.monotonic()
        while message := fork.receive(limit):
            if "failed" in message:
                return str(message["failed"])
            if "passed" in message:
                return None
            running = message["begun"]
            limit = 6.0 + 10.0 * seconds[running]
        if message is None:
            return f"{running} (no end within {time.monotonic() - begun_at:.0f} s)"
        return f"{running} (the process ended)"
    finally:
        fork.end()


def _run_tests(tests: list[CoveringTest], send: Callable[[Message], None]) -> None:
    files = list(dict.fromkeys(test.file for test in tests))
    order = {test.name: position for position, test in enumerate(tests)}
    status = pytest.main([*PYTEST_ARGUMENTS, "-x", *files], plugins=[ConfigureHypothesis(), _Report(order, send)])
    # Without tests, the mutant has changed the parameters of all of them, and none of them sees that.
    passed = status in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)
    send({"passed": True} if passed else {"failed": f"pytest: {pytest.ExitCode(status).name}"})


class _Report:
    """Chooses the tests, and sends what each does."""

    def __init__(self, order: dict[str, int], send: Callable[[Message], None]) -> None:
        self._order = order
        self._send = send

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Keep the wanted tests, in the wanted order."""
        items[:] = sorted(
            (item for item in items if item.nodeid in self._order), key=lambda item: self._order[item.nodeid]
        )

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """Send which test runs."""
        self._send({"begun": nodeid})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send the first failure."""
        if report.outcome == "failed":
            self._send({"failed": report.nodeid})

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Send an import that fails."""
        if report.outcome == "failed":
            self._send({"failed": f"import of {report.nodeid}"})
