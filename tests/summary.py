"""Gather the reports of a run of tests, and show its figures at the end (a plugin of `tests/conftest.py`).

With `--figures FILE` they are written to a file instead, for the program that started the run and adds them up.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.figures import Figures
from tests.run_size import FACTOR
from tests.tiers import Tier, tier_of
from tests.work import Work


def add_options(parser: pytest.Parser) -> None:
    """Add the options of this plugin."""
    group = parser.getgroup("cutline")
    group.addoption("--figures", type=Path, metavar="FILE", help="write the figures of the run to FILE")
    group.addoption("--keep", action="store_true", help="write tests/seconds.json and tests/work.json anew")


class Summary:
    """Adds up the reports of the tests."""

    def __init__(self, config: pytest.Config) -> None:
        self._figures = Figures()
        self._file: Path | None = config.getoption("--figures")
        self._keeps: bool = config.getoption("--keep")
        is_whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS and not config.getoption("keyword")
        if self._keeps and not (is_whole and FACTOR == 1):
            raise pytest.UsageError("--keep is for a run of all tests at full strength")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Count the tests that will run."""
        self._figures.selected = len(session.items)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add one phase of a test."""
        tier = tier_of(report.nodeid)
        properties: list[tuple[str, Any]] = report.user_properties
        found = [Work(**value) for name, value in properties if name == "work"]
        for work in found:
            self._figures.work[tier].add(work)
        if report.failed:
            self._figures.failed.append(report.nodeid)
        # Unit tests only compute, and other programs change seconds of processor least. Other tests wait, too.
        seconds = sum(work.seconds for work in found) if tier is Tier.UNIT else report.duration
        self._figures.seconds[tier][report.nodeid.partition("::")[0]] += seconds
        self._figures.tests[report.nodeid] += seconds

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the figures."""
        if self._file is not None:
            self._figures.write(self._file)
        elif self._keeps:
            self._figures.keep_work(Tier.FULL)
            self._figures.keep_work(Tier.LIVE)
            self._figures.keep_seconds(Tier.FULL)
            self._figures.keep_seconds(Tier.LIVE)
        elif self._grown():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Show the figures."""
        if self._file is None:
            terminalreporter.section("figures")
            for line in self._figures.lines():
                terminalreporter.write_line(line)
            for line in self._grown():
                terminalreporter.write_line(line, red=True)

    def _grown(self) -> list[str]:
        """Return what has grown of the work of full and live tests, when searches have their kept size."""
        return [line for tier in (Tier.FULL, Tier.LIVE) for line in self._figures.grown(tier)] if FACTOR == 1 else []
