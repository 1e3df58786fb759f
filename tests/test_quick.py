"""`make quick`: what it runs, its status, and its end."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from tests.figures import kept_seconds
from tests.leaks import LeakCheck
from tests.programs import Program
from tests.quick import deal, files_of, in_order
from tests.tiers import Tier

_FILE = "tests/snapshot/test_ends.py"


def test_two_processes_share_the_seconds() -> None:
    """Each file is dealt once, and neither process has much more than the other."""
    files = files_of(Tier.UNIT)
    dealt = deal(files)
    assert sorted(file for each in dealt for file in each) == files
    seconds = [sum(kept_seconds(Tier.UNIT).get(file, 0.5) for file in each) for each in dealt]
    assert max(seconds) < 1.3 * min(seconds)


def test_full_tests_come_by_distance_then_by_seconds() -> None:
    """What takes more than all the time comes last."""
    slowest = max(kept_seconds(Tier.FULL).items(), key=lambda each: each[1])[0]
    near = {slowest: 0, "tests/test_tidy.py": 1, "tests/page/test_access.py": 2, "tests/snapshot/test_none.py": 0}
    assert in_order(near) == ["tests/test_tidy.py", "tests/page/test_access.py", slowest]


@pytest.mark.parametrize(("option", "status"), [("--strict-markers", 0), ("--no-such-option", 1)])
def test_the_status_is_that_of_the_parts(option: str, status: int, leak_check: LeakCheck) -> None:
    """A part that fails fails the command, and is shown."""
    with Program([sys.executable, "-m", "tests.quick", _FILE, option], timeout_s=100) as quick:
        assert quick.wait() == status
        assert ("unrecognized arguments: --no-such-option" in quick.output) == bool(status)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_all_parts(number: signal.Signals, leak_check: LeakCheck) -> None:
    """Whatever runs is interrupted, and what does not end is killed."""
    with Program([sys.executable, "-m", "tests.quick"], timeout_s=60) as quick:
        quick.read_until("format")
        os.kill(quick.pid, number)
        assert quick.wait() == 130
