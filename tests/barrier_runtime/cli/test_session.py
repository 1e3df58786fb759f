"""What Spark writes while it starts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from barrier_runtime.cli import session


def test_the_start_of_spark_is_in_its_log(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Also what its processes write, behind what the log has already; the terminal gets what follows."""
    log = tmp_path / "log"
    log.write_text("before\n")
    with session._standard_error_to(log):
        os.write(2, b"starting\n")
    os.write(2, b"running\n")
    assert log.read_text() == "before\nstarting\n"
    assert capfd.readouterr().err == "running\n"
