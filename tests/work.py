"""Count the work of each test, and refuse what a unit test may not do (a plugin of `tests/conftest.py`).

Work is what does not depend on the machine: examples of Hypothesis, simulated steps, processes started, and files
written through to the disk. Seconds of processor are counted beside it. The counts of a test travel in its report.
"""

from __future__ import annotations

import _posixsubprocess
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from hypothesis.internal.conjecture.engine import ConjectureRunner

from tests.tiers import Tier, tier_of

#: seconds of processor that a unit test may take
LIMIT_S = 0.25

#: audit events of the interpreter
_PROCESSES = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system")
_SOCKETS = ("socket.connect", "socket.bind")

#: Programs that only live tests may start.
_LIVE_PROGRAMS = ("java", "spark-submit", "spark-class", "gcs_server", "raylet", "chrom", "uvicorn")


class NotUnit(RuntimeError):
    """A test does what the tests of its tier may not do."""


@dataclass(slots=True)
class Work:
    """What one test did, or all tests of a tier."""

    items: int = 0
    examples: int = 0
    steps: int = 0
    processes: int = 0
    syncs: int = 0
    seconds: float = 0.0

    def add(self, other: Work) -> None:
        """Add the counts of `other`."""
        for name, count in asdict(other).items():
            setattr(self, name, getattr(self, name) + count)


class Guard:
    """Counts what the running test does. Refuses what its tier does not allow."""

    def __init__(self) -> None:
        self.work = Work()
        self.refusals: list[NotUnit] = []
        self._test: str | None = None
        self._began_at = 0.0

    def install(self) -> None:
        """Watch this process until its end, because audit hooks stay."""
        from cutline.snapshot.testing.simulation import simulated_coordinator, worker

        sys.addaudithook(self._audit)
        _before(_posixsubprocess, "fork_exec", self._process)  # of multiprocessing, which has no audit event
        _before(os, "fsync", self._sync)
        _before(os, "fdatasync", self._sync)
        _before(simulated_coordinator.SimulatedCoordinator, "step", self._step)
        _before(worker.Worker, "step", self._step)
        _before(ConjectureRunner, "test_function", self._example)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Begin a test."""
        self.work, self.refusals = Work(items=1), []
        self._began_at = time.process_time()
        self._test = item.nodeid
        try:
            return (yield)
        finally:
            self._test = None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        """Put the work of a test into its last report."""
        if call.excinfo is not None:
            self.refusals.clear()
        if call.when == "teardown":
            self.work.seconds = time.process_time() - self._began_at
            item.user_properties.append(("work", asdict(self.work)))
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_teardown(self) -> Iterator[None]:
        """Fail a test whose code has swallowed the refusal."""
        yield
        if self.refusals:
            raise self.refusals[0]

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._test is None:
            return
        if event in _PROCESSES:
            self._process()
            if event == "subprocess.Popen":
                self._refuse_live_program(Path(os.fsdecode(arguments[0] or arguments[1][0])))
        elif event in _SOCKETS and not _is_importing():
            self._refuse(f"calls {event}")

    def _refuse_live_program(self, program: Path) -> None:
        is_the_tests_own = any(part.startswith("pytest-of-") for part in program.parts)  # a script in its tmp_path
        is_live = program.name.startswith(_LIVE_PROGRAMS) and not is_the_tests_own
        if is_live and self._test is not None and tier_of(self._test) is not Tier.LIVE:
            raise NotUnit(f"{self._test} starts {program.name}: list it in LIVE of tests/tiers.py")

    def _process(self) -> None:
        self._refuse("starts a process")
        self.work.processes += 1

    def _sync(self) -> None:
        self._refuse("writes a file through to the disk")
        self.work.syncs += 1

    def _step(self) -> None:
        self.work.steps += 1

    def _example(self) -> None:
        self.work.examples += 1

    def _refuse(self, deed: str) -> None:
        if self._test is not None and tier_of(self._test) is Tier.UNIT:
            refusal = NotUnit(f"{self._test} {deed}: list it in FULL of tests/tiers.py")
            self.refusals.append(refusal)
            raise refusal


def _is_importing() -> bool:
    """Return whether a library does it while it is imported, by whichever test of the process is the first."""
    frame = sys._getframe()
    while frame.f_back is not None:
        frame = frame.f_back
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return True
    return False


def _before(owner: Any, name: str, note: Callable[[], None]) -> None:
    """Call `note` before each call of a function."""
    call = getattr(owner, name)

    @wraps(call)
    def noted(*arguments: Any, **options: Any) -> Any:
        note()
        return call(*arguments, **options)

    setattr(owner, name, noted)


#: the guard of this process
GUARD = Guard()
