"""Runs other programs for tests: streams what they print, waits for lines, and leaves nothing of them behind.

Only one Spark context fits into a process, and a driver that is to be killed must not be the test's: such tests run
a script of their own. A program gets a session of its own; at the end whatever still carries that session's id is
killed, each process by its own id, JVMs and executors included.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

#: How long the kernel may take to end killed processes. JVMs with a full heap take a second.
_END_DEADLINE_S = 20.0
#: After its deadline a script gets so long to print the stacks of its threads.
_DUMP_S = 3.0
#: What a failure shows of a program's output.
_TAIL_LINES = 60


class Program:
    """A running program, used as a context manager.

    Parameters
    ----------
    arguments : sequence of str
        the command line.
    timeout_s : float
        its whole life. Waiting beyond it fails the test and shows the end of the output.
    environment : mapping
        added to the environment of this process.
    """

    def __init__(self, arguments: Sequence[str], *, timeout_s: float, environment: Mapping[str, str] | None = None):
        self._end = time.monotonic() + timeout_s
        self._lines: list[str] = []
        self._changed = threading.Condition()
        self._closed = False
        self._process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, **(environment or {})},
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, name=f"output of {self.pid}")
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()

    @property
    def pid(self) -> int:
        """Process id; also the id of the session that the program and its children form."""
        return self._process.pid

    @property
    def output(self) -> str:
        """All that was printed up to now."""
        return "\n".join(self._lines)

    def read_until(self, text: str) -> str:
        """Wait for a line that contains `text` and return it; fail when the program ends without it."""
        read = 0
        with self._changed:
            while True:
                for line in self._lines[read:]:
                    if text in line:
                        return line
                read = len(self._lines)
                if self._closed:
                    raise AssertionError(f"the program ended without printing {text!r}:\n{self._tail()}")
                if not self._changed.wait(self._end - time.monotonic()):
                    raise AssertionError(f"no line with {text!r} in time:\n{self._tail()}")

    def wait(self) -> int:
        """Wait for the end of the program and return its exit code."""
        try:
            code = self._process.wait(max(0.0, self._end - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the program did not end in time:\n{self._tail()}") from None
        self.end()
        return code

    def kill(self) -> None:
        """SIGKILL to the program alone; its children learn of it as they would in real life."""
        os.kill(self.pid, signal.SIGKILL)
        self._process.wait()

    def end(self) -> None:
        """Kill what is left of the session, and wait until it is gone. Does nothing the second time."""
        end = time.monotonic() + _END_DEADLINE_S
        while left := _members_of_session(self.pid):
            assert time.monotonic() < end, f"processes {left} do not end"
            for pid in left:
                _kill(pid)
            self._process.poll()  # reaps the program itself, which is in the list until then
            threading.Event().wait(0.01)
        self._process.wait()
        self._reader.join()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            for line in stream:
                print(line, end="", flush=True)
                with self._changed:
                    self._lines.append(line.rstrip("\n"))
                    self._changed.notify_all()
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _tail(self) -> str:
        return "\n".join(self._lines[-_TAIL_LINES:])


class Script(Program):
    """A Python script in a process of its own; when its time is over it prints the stacks of its threads."""

    def __init__(self, source: str, *, timeout_s: float, environment: Mapping[str, str] | None = None):
        self._directory = tempfile.TemporaryDirectory(prefix="script-")
        path = Path(self._directory.name, "script.py")
        prelude = f"import faulthandler; faulthandler.dump_traceback_later({timeout_s})\n"
        path.write_text(prelude + textwrap.dedent(source))
        command = [sys.executable, "-u", "-X", "faulthandler", str(path)]
        super().__init__(command, timeout_s=timeout_s + _DUMP_S, environment=environment)

    def end(self) -> None:
        """Also remove the script."""
        super().end()
        self._directory.cleanup()


def run_script(source: str, *, timeout_s: float, environment: Mapping[str, str] | None = None) -> str:
    """Run a Python script to its end and return what it printed; fail unless it exits with 0 in time."""
    with Script(source, timeout_s=timeout_s, environment=environment) as script:
        code = script.wait()
    assert code == 0, f"the script exited with {code}:\n{script._tail()}"
    return script.output


def _members_of_session(session: int) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                if os.getsid(int(name)) == session:
                    found.append(int(name))
            except ProcessLookupError:
                continue  # it ended while we were looking
    return [pid for pid in found if not _is_zombie(pid)]


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # it ended by itself
