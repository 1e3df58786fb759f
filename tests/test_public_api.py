"""Names, arguments and defaults that users rely on stay as they are."""

from __future__ import annotations

from tests.public_api import EXPECTED, lines


def test_what_users_call_is_as_it_was() -> None:
    """`public_api` tells how to accept a change."""
    assert lines() == EXPECTED.read_text().splitlines()
