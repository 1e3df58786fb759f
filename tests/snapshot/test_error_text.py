"""Texts of users' errors: bounded, printable, and never raising, whatever the error is."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cutline.snapshot.error_text import REPORT_CHARACTERS_MAX, TEXT_CHARACTERS_MAX, describe, headline, printable, shown
from tests.snapshot.testing.bad_user_code import CAUSES, NO_TIMES, RAISES, Unsayable


@given(st.text(st.characters(), max_size=200), st.integers(50, 300))
@example("0" * 15 + "\x1f" * 9, 50)  # no character is left beside the note
def test_any_text_becomes_printable(text: str, limit: int) -> None:
    """It can be encoded, steers no terminal, keeps the limit, and is unchanged where nothing had to change."""
    made = printable(text, limit)
    made.encode()
    assert len(made) <= limit
    assert not [each for each in made if each not in "\n\t" and (ord(each) < 32 or 127 <= ord(each) < 160)]
    if len(text) <= limit and text.isprintable():
        assert made == text


def _raised(name: str) -> BaseException:
    try:
        RAISES[name]()
    except BaseException as error:  # noqa: BLE001  # the errors of the fuzzer
        return error
    raise AssertionError


@pytest.mark.parametrize("name", RAISES)
def test_any_error_is_described(name: str) -> None:
    """Type and text stand in the first line, the traceback below, within the limit."""
    text = describe(_raised(name))
    assert text.startswith(f"{name.partition(',')[0]}: ")
    assert "Traceback (most recent call last):\n" in text and "bad_user_code.py" in text
    assert len(text) <= REPORT_CHARACTERS_MAX
    text.encode()


def test_both_ends_of_a_chain_are_described() -> None:
    """The root cause and the error itself matter most."""
    for name in ("ValueError, with causes", "ValueError, with contexts"):
        text = describe(_raised(name))
        assert "root cause" in text and f" {CAUSES - 1}" in text and " errors in between are left out" in text


def test_a_traceback_that_cannot_be_read_is_named() -> None:
    """A loader of the user's may raise anything when Python asks for a line of source."""

    class Loader:
        def get_source(self, name: str) -> str:
            raise RuntimeError(name)

    with pytest.raises(ValueError, match="bad") as raised:
        exec(compile("raise ValueError('bad')", "made.py", "exec"), {"__name__": "made", "__loader__": Loader()})
    text = describe(raised.value)
    assert text.startswith("ValueError: bad")
    assert "<no traceback, because reading it raises RuntimeError>" in text


def test_the_members_of_a_group_are_described() -> None:
    """They are what was raised."""
    text = describe(ExceptionGroup("two", [ValueError("one"), OSError("other")]))
    assert "ValueError: one" in text and "OSError: other" in text


def test_a_suppressed_context_stays_out() -> None:
    """As in Python, after ``raise ... from None``."""
    error = OSError("shown")
    error.__context__ = ValueError("secret")
    assert "secret" in describe(error)
    error.__suppress_context__ = True
    assert "secret" not in describe(error)


def test_any_value_is_shown() -> None:
    """Its repr may raise, or be of any size."""
    for value in (*NO_TIMES, Unsayable(), "\ud800", "x" * 100_000):
        assert 0 < len(shown(value)) <= TEXT_CHARACTERS_MAX


def test_a_headline_is_the_last_line_of_a_traceback() -> None:
    """As users know it."""
    assert headline(ValueError("bad")) == "ValueError: bad"


def test_a_traceback_that_cannot_be_read_is_left_out() -> None:
    """The source of a frame may come from a loader, which may fail. The error is described all the same."""

    class Loader:
        def get_source(self, name: str) -> str:
            raise RuntimeError(f"no source of {name}")

    code = compile("1 / 0", "made.py", "exec")
    try:
        exec(code, {"__name__": "made", "__loader__": Loader()})  # because a frame needs this loader
    except ZeroDivisionError as error:
        text = describe(error)
    assert "ZeroDivisionError: division by zero" in text
    assert "<no traceback, because reading it raises RuntimeError>" in text
