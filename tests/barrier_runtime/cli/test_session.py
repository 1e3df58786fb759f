"""Log of a session: what Spark writes while it starts, and what is said where it does not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from cutline.barrier_runtime.cli import session


def test_the_start_of_spark_is_in_its_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Also what its processes write, behind what the log has already; the terminal gets what follows."""
    log = tmp_path / "log"
    log.write_text("before\n")
    with session._standard_error_to(log):
        os.write(2, b"starting\n")
    os.write(2, b"running\n")
    assert log.read_text() == "before\nstarting\n"
    assert capfd.readouterr().err == "running\n"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(" no java \n"), "no java"),
        (
            OSError("An error occurred.\n: java.net.BindException: in use\n\tat java.base\n"),
            "java.net.BindException: in use",
        ),
    ],
)
def test_an_error_of_java_is_said_without_its_stack(error: Exception, said: str) -> None:
    """Py4J puts the line of Java between its own line and the stack."""
    assert session._said(error) == said


def test_the_log_is_readable_by_its_owner_alone() -> None:
    """Each session has one of its own, with a name that tells what it is."""
    one, other = session._temporary_log(), session._temporary_log()
    try:
        assert one != other and (one.name[:8], one.suffix) == ("cutline-", ".log")
        assert one.stat().st_mode & 0o777 == 0o600
    finally:
        one.unlink()
        other.unlink()
