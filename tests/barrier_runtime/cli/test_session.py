"""What the command says of a session that does not start."""

from __future__ import annotations

import pytest

from barrier_runtime.cli.session import _said, _temporary_log


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
    assert _said(error) == said


def test_the_log_is_readable_by_its_owner_alone() -> None:
    """Each session has one of its own, with a name that tells what it is."""
    one, other = _temporary_log(), _temporary_log()
    try:
        assert one != other and (one.name[:8], one.suffix) == ("cutline-", ".log")
        assert one.stat().st_mode & 0o777 == 0o600
    finally:
        one.unlink()
        other.unlink()
