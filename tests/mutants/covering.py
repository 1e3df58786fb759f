"""Which tests that are not live execute which lines, measured once by coverage.py, and kept for each test file.

What is kept of a test file stands as long as neither the file nor anything but test files changes.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.mutants.tree import MUTATED, Fork, Message, Tree
from tests.source_files import ROOT, python_files

#: seconds within which the measured tests must send their next message
_SILENCE_MAX_S = 900.0

#: Tests that read our code, because each mutant that changes its text would fail them. Importers of ROOT alone are
#: measured, because ROOT leads to pages and to the modules of child processes.
_READS_CODE = re.compile(
    r"^from tests\.mutation import|inspect\.getsource|^from tests\.source_files import (?!ROOT$)", re.MULTILINE
)


class CoveringTest(NamedTuple):
    """One test that is not live."""

    name: str
    seconds: float
    #: {file: bits, the lowest of which is line 0}
    lines: dict[str, int]

    @property
    def file(self) -> str:
        """The file of the test."""
        return self.name.partition("::")[0]

    def executes(self, file: str, first: int, last: int) -> bool:
        """Whether the test executes one of the lines `first` to `last` of `file`."""
        return has_lines(self.lines, file, first, last)


def has_lines(lines: Mapping[str, int], file: str, first: int, last: int) -> bool:
    """Whether one of the lines `first` to `last` of `file` is among `lines`."""
    return bool(lines.get(file, 0) >> first & (1 << last - first + 1) - 1)


def covering_tests(tree: Tree, kept: Path, show: Callable[[str], None]) -> list[CoveringTest]:
    """Return all tests that pass and are not live, with their lines; measure those of which nothing valid is kept."""
    kept.mkdir(parents=True, exist_ok=True)
    found = {path.relative_to(ROOT).as_posix(): path for path in python_files("tests") if _is_measured(path)}
    stale = [name for name, path in found.items() if not _is_fresh(kept / _key(name), path)]
    if stale:
        _measure(tree, stale, kept, show)
    return [test for name in found for test in _load(kept / _key(name))]


def import_lines(tree: Tree) -> dict[str, int]:
    """Return the lines that run while the modules are imported, also in functions that are called there, as bits."""
    fork = Fork(tree, _run_imports)
    try:
        message = fork.receive(_SILENCE_MAX_S)
        if not message:
            raise RuntimeError(f"a module cannot be imported; output: {tree.folder / 'log'}")
        return {file: int(bits, 16) for file, bits in message.items()}
    finally:
        fork.end()


def _run_imports(send: Callable[[Message], None]) -> None:
    """Import all modules under coverage.py (in the fork)."""
    measured = _new_coverage()
    measured.start()
    for path in python_files(*MUTATED):
        if path.name != "__main__.py":
            importlib.import_module(path.relative_to(ROOT).with_suffix("").as_posix().replace("/", "."))
    measured.stop()
    data = measured.get_data()
    send({path: f"{_bits(data.lines(path)):x}" for path in data.measured_files()})


def _is_measured(path: Path) -> bool:
    if not path.name.startswith("test_") or path.parent == ROOT / "tests":
        return False
    return not _READS_CODE.search(path.read_text())


def _key(name: str) -> str:
    return name.replace("/", ".") + ".json"


@cache
def _digest_of_rest() -> bytes:
    """The digest of all Python files that are no test files."""
    digest = hashlib.sha256()
    for path in python_files(*MUTATED, "tests", "demos", "benchmarks"):
        if not path.name.startswith("test_") and path.parent != ROOT / "tests" / "mutants":
            digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.digest()


def _digest(path: Path) -> str:
    return hashlib.sha256(_digest_of_rest() + path.read_bytes()).hexdigest()


def _is_fresh(kept: Path, path: Path) -> bool:
    return kept.exists() and json.loads(kept.read_text())["digest"] == _digest(path)


def _load(kept: Path) -> Iterator[CoveringTest]:
    if kept.exists():
        for name, (seconds, lines) in json.loads(kept.read_text())["tests"].items():
            # Files without lines are left out, because coverage.py also names files that no test executed.
            yield CoveringTest(name, seconds, {file: int(bits, 16) for file, bits in lines.items() if bits != "0"})


def _measure(tree: Tree, files: list[str], kept: Path, show: Callable[[str], None]) -> None:
    """Run the tests of `files` in one fork, and keep what each file's tests executed when its last test ends."""
    begun_at = time.monotonic()
    show(f"measuring which lines the tests of {len(files)} files execute")
    fork = Fork(tree, lambda send: _run_measured(tree, files, send))
    try:
        done = 0
        while message := fork.receive(_SILENCE_MAX_S):
            if "failed" in message:
                show(f"  {message['failed']} fails without a mutant, and is left out")
            elif "file" in message:
                done += 1
                name = message["file"]
                entry = {"digest": _digest(ROOT / name), "tests": message["tests"]}
                (kept / _key(name)).write_text(json.dumps(entry))
                show(f"  {done} of {len(files)} files, {time.monotonic() - begun_at:.0f} s: {name}")
        if message is None or done < len(files):
            why = "ended before its last file" if message is not None else f"ended no test for {_SILENCE_MAX_S:.0f} s"
            raise RuntimeError(f"pytest {why}: {(tree.folder / 'log').read_text(errors='replace')[-2000:]}")
    finally:
        fork.end()


def _run_measured(tree: Tree, files: list[str], send: Callable[[Message], None]) -> None:
    """Run pytest under coverage.py (in the fork)."""
    settings = tree.folder / "coverage.rc"
    # Programs that tests start are measured too: coverage.py is started in each by its .pth file.
    settings.write_text(
        f"[run]\nparallel = true\npatch = _exit\ndata_file = {tree.folder}/data\nsource = {','.join(MUTATED)}\n"
        "context = ${CUTLINE_TEST}\nrelative_files = true\nsigterm = true\n"
        "disable_warnings = no-data-collected,module-not-imported\n"
    )
    os.environ |= {"COVERAGE_PROCESS_START": str(settings), "CUTLINE_TEST": ""}
    pytest.main([*PYTEST_ARGUMENTS, *files], plugins=[ConfigureHypothesis(), _Measurement(tree, files, send)])


#: Settings of each run of pytest in a fork.
PYTEST_ARGUMENTS = (
    *("-q", "-m", "not live and not night", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-seed=0"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning", "--durations=0"),
)


class ConfigureHypothesis:
    """Makes searches repeatable, and ends a search at its first failure."""

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        """Change the profile that tests/conftest.py has loaded."""
        from hypothesis import Phase, settings

        # The database is left out, because a failure of one mutant must not be tried with the next.
        phases = (Phase.explicit, Phase.generate)
        settings.register_profile("mutants", settings(), database=None, phases=phases, derandomize=False)
        settings.load_profile("mutants")


class _Measurement:
    """Sends for each test file its tests, their seconds and their lines."""

    def __init__(self, tree: Tree, files: list[str], send: Callable[[Message], None]) -> None:
        self._tree = tree
        self._send = send
        self._files = files
        self._seconds: dict[str, float] = {}
        self._failed: set[str] = set()
        self._coverage = _new_coverage()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
        """Measure one test in the context of its name."""
        os.environ["CUTLINE_TEST"] = item.nodeid
        self._coverage.start()
        self._coverage.switch_context(item.nodeid)
        begun_at = time.perf_counter()
        try:
            return (yield)
        finally:
            self._seconds[item.nodeid] = time.perf_counter() - begun_at
            self._coverage.stop()
            file = item.nodeid.partition("::")[0]
            if nextitem is None or nextitem.nodeid.partition("::")[0] != file:
                self._end_file(file)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Leave out tests that do not pass."""
        if report.outcome == "failed":
            self._failed.add(report.nodeid)
            self._send({"failed": report.nodeid})

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        """Send the files that have only live tests, unless pytest itself has failed."""
        if exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED):
            for file in self._files:
                self._send({"file": file, "tests": {}})

    def _end_file(self, file: str) -> None:
        import coverage

        lines: dict[str, dict[str, int]] = {name: {} for name in self._seconds if name not in self._failed}
        _add_lines(lines, self._coverage.get_data())
        self._coverage.erase()
        for path in self._tree.folder.glob("data.*"):
            data = coverage.CoverageData(basename=str(path))
            with contextlib.suppress(coverage.exceptions.DataError):  # of a process that was killed while it wrote
                data.read()
                _add_lines(lines, data)
            path.unlink()
        tests = {
            name: (self._seconds[name], {path: f"{bits:x}" for path, bits in found.items()})
            for name, found in lines.items()
        }
        self._send({"file": file, "tests": tests})
        self._seconds.clear()
        self._files.remove(file)


def _add_lines(lines: dict[str, dict[str, int]], data: Any) -> None:
    for name in data.measured_contexts():
        if name in lines:
            data.set_query_context(name)
            for path in data.measured_files():
                lines[name][path] = lines[name].get(path, 0) | _bits(data.lines(path))


def _bits(lines: Iterable[int] | None) -> int:
    return sum(1 << line for line in lines or ())


def _new_coverage() -> Any:
    import coverage

    made = coverage.Coverage(data_file=None, source=list(MUTATED), config_file=False)
    made.set_option("run:relative_files", True)
    made.set_option("run:disable_warnings", ["no-data-collected", "module-not-imported"])
    return made
