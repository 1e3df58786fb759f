"""Programs that tests run can be followed, fail loudly, and leave nothing behind."""

from __future__ import annotations

import pytest

from tests.leaks import LeakCheck
from tests.programs import Script, run_script


def test_lines_are_followed_while_the_script_runs(leak_check: LeakCheck) -> None:
    """A line can be waited for; a program that has more to do is ended with the block."""
    with Script("print('ready', flush=True)\nimport threading\nthreading.Event().wait()", timeout_s=20) as script:
        assert script.read_until("read") == "ready"


def test_children_of_a_script_do_not_survive_it(leak_check: LeakCheck) -> None:
    """A script that leaves a child in a process group of its own behind is cleaned up after."""
    source = """
        import subprocess, sys
        child = "import os; os.setpgid(0, 0); print('child up', flush=True); import threading; threading.Event().wait()"
        process = subprocess.Popen([sys.executable, "-c", child], stdout=subprocess.PIPE)
        print(process.stdout.readline().decode())
    """
    assert "child up" in run_script(source, timeout_s=20)


def test_a_failing_script_fails_the_test(leak_check: LeakCheck) -> None:
    """The exit code is looked at, and the output is in the message."""
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        run_script("1 / 0", timeout_s=20)


def test_a_hanging_script_shows_its_stacks(leak_check: LeakCheck) -> None:
    """When the time is over, what every thread was doing is in the message."""
    source = """
        import threading
        def forever():
            threading.Event().wait()
        forever()
    """
    with pytest.raises(AssertionError, match="in forever"):
        run_script(source, timeout_s=1)
