"""`make quick`: check a change in about a minute.

    python -m tests.quick [--keep] [PLACE ...] [OPTION OF PYTEST ...]

Format, lint and types are checked beside two plain processes of pytest, which share the unit tests by their seconds.
When these have passed, full tests near the changed files run, the nearest and the fastest first. They have the rest of
a minute, at least 15 s and at most 30 s.

Places are files, folders or tests. Then their unit and full tests run, and no others. `--keep` writes
tests/seconds.json and tests/work.json anew.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from tests.figures import UNKNOWN_S, Figures, kept_seconds
from tests.near import changed_files, near_tests
from tests.source_files import ROOT, name_of, python_files
from tests.tiers import Tier, has_tests
from tests.work import LIMIT_S

#: Seconds of the whole command, and for tests near the changed files at least and at most.
_WHOLE_S, _NEAR_S_MIN, _NEAR_S_MAX = 60.0, 15.0, 30.0

#: seconds in which a program must end after an interrupt
_END_S = 5.0

_POLL_S = 0.05

#: seconds of processor that the import of a file of tests takes
_IMPORT_S = 0.1

#: factors of examples: ten of Hypothesis in a unit test
_EXAMPLES = {Tier.UNIT: "0.1", Tier.FULL: "0.2"}

#: Plugins that share work or keep outcomes are left out, because they take time.
_PYTEST = ("pytest", "-q", "--no-header", "-p", "no:xdist", "-p", "no:cacheprovider")

_NO_TESTS = 5


class Part:
    """One program, in a session of its own, with its output in a file."""

    def __init__(self, name: str, folder: Path, command: Sequence[str], tier: Tier | None = None) -> None:
        self._figures = Figures()
        self._name = name
        self._log = folder / f"{name}.log"
        self._figures_file = folder / f"{name}.json"
        self._status: int | None = None
        self._is_stopped = False
        self._began_at = time.monotonic()
        options = ("-m", tier, "--figures", str(self._figures_file)) if tier else ()
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *command, *options],
                cwd=ROOT,
                env=os.environ | ({"CUTLINE_EXAMPLES": _EXAMPLES[tier]} if tier else {}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def has_failed(self) -> bool:
        """Return whether the program has failed, or a test of a program that was stopped."""
        return bool(self._figures.failed) if self._is_stopped else self._status not in (0, _NO_TESTS)

    def has_ended(self) -> bool:
        """Check whether the program has ended. Show its line when it has."""
        if self._status is None:
            pid, status, usage = os.wait4(self._process.pid, os.WNOHANG)
            if pid:
                self._status = self._process.returncode = os.waitstatus_to_exitcode(status)
                self.add_figures(self._figures)
                self._show(usage.ru_utime + usage.ru_stime)
        return self._status is not None

    def add_figures(self, total: Figures) -> None:
        """Add the figures that the program has written."""
        if self._figures_file.exists():
            total.add(self._figures_file)

    def show_failure(self) -> None:
        """Show all that the program has printed."""
        _show(f"\n==== {self._name} ====\n{self._output()}")

    def interrupt(self) -> None:
        """Interrupt the program."""
        if self._status is None:
            self._is_stopped = True
            os.kill(self._process.pid, signal.SIGINT)  # Popen.send_signal would take the exit status first

    def kill(self) -> None:
        """Kill what an interrupted program has left in its session."""
        if not self._is_stopped:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _output(self) -> str:
        return self._log.read_text(errors="replace").strip()

    def _show(self, processor_s: float) -> None:
        seconds = time.monotonic() - self._began_at
        did = self._output().rpartition("\n")[2]
        if self._figures_file.exists():
            did = f"{len(self._figures.tests):,} of {self._figures.selected:,} tests"
        verdict = "FAILED" if self.has_failed else "stopped" if self._is_stopped else "passed"
        _show(f"{self._name:<8}{seconds:>6.1f} s, {processor_s:>5.1f} s of processor  {verdict:<8}{did}")


class Quick:
    """The parts of one run."""

    def __init__(self, folder: Path, arguments: Sequence[str]) -> None:
        self._folder = folder
        self._places = [each for each in arguments if (ROOT / each.partition("::")[0]).exists()]
        self._options = [each for each in arguments if each not in (*self._places, "--keep")]
        self._keeps = "--keep" in arguments
        self._parts: list[Part] = []
        self._is_interrupted = False
        self._began_at = time.monotonic()

    @property
    def seconds(self) -> float:
        """Seconds since the begin."""
        return time.monotonic() - self._began_at

    def run(self) -> int:
        """Run all parts. Return the status of the command."""
        checks = {"format": ("ruff", "format", "--check", "."), "lint": ("ruff", "check", "."), "types": ("mypy",)}
        self._parts = [Part(name, self._folder, command) for name, command in checks.items()]
        unit = self._pytest(Tier.UNIT, deal(self._places or files_of(Tier.UNIT)))
        self._wait(self._parts)
        if not self._has_failed():
            self._run_full()
        for part in self._parts:
            if part.has_failed:
                part.show_failure()
        return max(self._has_failed(), self._judge(unit))

    def interrupt(self) -> None:
        """End the run as soon as it waits."""
        self._is_interrupted = True

    def stop(self) -> None:
        """Stop what runs still."""
        self._is_interrupted = False
        for part in self._parts:
            part.interrupt()
        try:
            self._wait(self._parts, _END_S)
        finally:
            for part in self._parts:
                part.kill()

    def _wait(self, parts: Iterable[Part], seconds: float = float("inf")) -> None:
        """Wait until the parts have ended, for at most so many seconds. Each part of the run shows its end."""
        deadline_at = time.monotonic() + seconds
        while time.monotonic() < deadline_at:
            if self._is_interrupted:
                raise KeyboardInterrupt
            ended = {part for part in self._parts if part.has_ended()}
            if ended.issuperset(parts):
                return
            threading.Event().wait(_POLL_S)

    def _has_failed(self) -> bool:
        return any(part.has_failed for part in self._parts)

    def _run_full(self) -> None:
        """Run the full tests of the places, or those near the changed files."""
        if self._places:
            self._wait(self._pytest(Tier.FULL, deal(self._places)))
            return
        changed = changed_files()
        files = in_order(near_tests(changed))
        seconds = min(max(_WHOLE_S - self.seconds, _NEAR_S_MIN), _NEAR_S_MAX)
        _show(f"{len(files)} files of full tests are near {len(changed)} changed files; {seconds:.0f} s for them:")
        self._wait(self._pytest(Tier.FULL, [files[::2], files[1::2]]), seconds)
        self.stop()

    def _pytest(self, tier: Tier, dealt: Iterable[Sequence[str]]) -> list[Part]:
        parts = [
            Part(f"{tier} {number}", self._folder, (*_PYTEST, *files, *self._options), tier)
            for number, files in enumerate(dealt, 1)
            if files
        ]
        self._parts += parts
        return parts

    def _judge(self, unit: Sequence[Part]) -> bool:
        """Show the figures of the unit tests. Return whether their work has grown."""
        total = Figures()
        for part in unit:
            part.add_figures(total)
        for line in total.lines():
            _show(line)
        # Named, and no failure: the first test that needs a library pays for its import.
        slow = [test for test, seconds in total.tests.items() if seconds > LIMIT_S]
        _show(f"{len(slow)} unit tests take more than {LIMIT_S} s; those that do so alone belong in FULL")
        if self._keeps and not (self._places or self._options or self._has_failed()):
            total.keep_work(Tier.UNIT)
            total.keep_seconds(Tier.UNIT)
        grown = total.grown(Tier.UNIT)
        for line in grown:
            _show(line)
        return bool(grown)


def files_of(tier: Tier) -> list[str]:
    """Return the files that have tests of a tier."""
    files = (name_of(path) for path in python_files("tests") if path.name.startswith("test_"))
    return [file for file in files if has_tests(file, tier)]


def deal(files: Sequence[str]) -> list[list[str]]:
    """Share files between two processes: the longest first, each to the process that has less."""
    kept = kept_seconds(Tier.UNIT)
    seconds = {file: kept.get(file, UNKNOWN_S) + _IMPORT_S for file in files}
    dealt: list[list[str]] = [[], []]
    for file in sorted(files, key=lambda file: -seconds[file]):
        min(dealt, key=lambda each: sum(seconds[file] for file in each)).append(file)
    return [sorted(each) for each in dealt]


def in_order(near: Mapping[str, int]) -> list[str]:
    """Return the files with full tests: the nearest and the fastest first, those that take all the time last."""
    kept = kept_seconds(Tier.FULL)
    seconds = {file: kept.get(file, UNKNOWN_S) for file in near if has_tests(file, Tier.FULL)}
    return sorted(seconds, key=lambda file: (seconds[file] > _NEAR_S_MAX, near[file], seconds[file]))


def _show(text: str) -> None:
    print(text, flush=True)


def main() -> int:
    """Run the command."""
    with tempfile.TemporaryDirectory(prefix="cutline-quick-") as folder:
        quick = Quick(Path(folder), sys.argv[1:])
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: quick.interrupt())
        try:
            return quick.run()
        except KeyboardInterrupt:
            return 130
        finally:
            quick.stop()
            _show(f"{quick.seconds:.0f} s in all")


if __name__ == "__main__":
    sys.exit(main())
