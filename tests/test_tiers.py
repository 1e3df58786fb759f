"""Tiers: the lists name tests that there are, and the guard refuses in a unit test what makes tests slow."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.source_files import ROOT
from tests.tiers import ALONE, FULL, LIVE, NIGHT, Tier, has_tests, shares_session, tier_of
from tests.work import GUARD, NotUnit


def test_each_entry_names_tests() -> None:
    """An entry that no test begins with is old, and one that begins with another entry says nothing."""
    assert [entry for entry in (*NIGHT, *LIVE, *ALONE, *FULL) if not _names_tests(entry)] == []
    for listed in (NIGHT, LIVE, ALONE, FULL):
        assert [
            entry for place, entry in enumerate(listed) if entry.startswith(listed[:place] + listed[place + 1 :])
        ] == []


def _names_tests(entry: str) -> bool:
    file, _, test = entry.partition("::")
    if test:
        return re.search(rf"^def {test}", (ROOT / file).read_text(), re.MULTILINE) is not None
    folder, _, name = file.rpartition("/")
    return any(path.suffix in ("", ".py") for path in (ROOT / folder).glob(f"{name}*"))


def test_the_tier_of_a_test() -> None:
    """All that is not listed is a unit test. A file may have tests of several tiers."""
    assert tier_of("tests/snapshot/new/test_new.py::test_new") is Tier.UNIT
    assert tier_of("tests/snapshot/new/test_new_mutants.py::test_new") is Tier.FULL
    assert tier_of("tests/system/test_runs.py::test_new") is Tier.LIVE
    assert [tier for tier in Tier if has_tests("tests/barrier_runtime/cli/test_cli.py", tier)] == [
        "unit",
        "full",
        "live",
    ]


def test_only_live_tests_share_the_session() -> None:
    """A live test does unless it is listed. A file may have tests of both kinds."""
    assert shares_session("tests/system/test_runs.py::test_new")
    assert not shares_session("tests/spark/test_runs.py::test_connect")
    assert not shares_session("tests/snapshot/new/test_new.py::test_new")
    assert shares_session("tests/benchmarks/test_benchmarks.py::test_scale")
    assert not shares_session("tests/benchmarks/test_benchmarks.py::test_simulation")


def _connect_unix() -> None:
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as client:
        client.connect("/nowhere")


def _bind() -> None:
    with contextlib.closing(socket.socket()) as server:
        server.bind(("127.0.0.1", 0))


def _spawn() -> None:
    multiprocessing.get_context("spawn").Process(target=print).start()


@pytest.mark.parametrize(
    ("act", "deed"),
    [
        (lambda: subprocess.run([sys.executable, "-c", ""], check=False), "starts a process"),
        (lambda: os.fork(), "starts a process"),
        (lambda: os.posix_spawn(sys.executable, [sys.executable, "-c", ""], {}), "starts a process"),
        (lambda: os.system("true"), "starts a process"),
        (_spawn, "starts a process"),
        (_bind, "calls socket.bind"),
        (_connect_unix, "calls socket.connect"),
    ],
)
def test_a_unit_test_is_refused(act: Callable[[], object], deed: str) -> None:
    """The error names the test, the deed, and the list."""
    with pytest.raises(NotUnit, match=rf"^{re.escape(__file__.removeprefix(f'{ROOT}/'))}::.* {deed}: list it in FULL"):
        act()
    GUARD.refusals.clear()


@pytest.mark.parametrize("sync", [os.fsync, os.fdatasync])
def test_a_sync_is_refused(sync: Callable[[int], None], tmp_path: Path) -> None:
    """A sync has no audit event, so the functions are wrapped."""
    with (tmp_path / "file").open("w") as file, pytest.raises(NotUnit, match="writes a file through to the disk"):
        sync(file.fileno())
    GUARD.refusals.clear()


def test_a_refusal_that_is_swallowed_fails_the_test() -> None:
    """Code that retries whatever fails hides the refusal, so it is raised again at the end."""
    with contextlib.suppress(Exception):
        _bind()
    teardown = GUARD.pytest_runtest_teardown()
    next(teardown)
    with pytest.raises(NotUnit, match=r"calls socket\.bind"):
        next(teardown)
    GUARD.refusals.clear()


def test_a_pair_of_sockets_is_allowed() -> None:
    """It needs no other process."""
    for end in socket.socketpair():
        end.close()


def test_examples_are_counted() -> None:
    """A search inside a test counts."""
    before, seen = GUARD.work.examples, []

    @settings(max_examples=7, database=None)
    @given(st.integers())
    def search(number: int) -> None:
        seen.append(number)

    search()
    assert GUARD.work.examples - before == len(seen) == 7
