"""Texts of keys and values: each value has one of a bounded length, and none raises."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cutline.barrier_runtime.dataframes.json_text import REPEATED_CHARACTERS_MAX, text_of_key, text_of_value

LARGE = 7**6000


def shared(levels: int) -> Any:
    found: Any = [0]
    for _ in range(levels):
        found = [found, found]
    return found


class Odd:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


class NoText:
    def __repr__(self) -> Any:
        return 5


@pytest.mark.parametrize(
    "value", [LARGE, {"n": LARGE}, (LARGE,), {LARGE}, Odd(), [Odd()], NoText()], ids=lambda v: type(v).__name__
)
def test_a_value_without_a_text_names_the_reason(value: Any) -> None:
    """Integers of many digits, and objects whose `repr` raises or returns no text."""
    text = text_of_value(value)
    assert text.startswith("<no text, because of ")
    assert len(text) < 500


def test_shared_parts_are_not_shown_without_bound() -> None:
    """Few bytes in the store would be millions of characters. Many bytes in the store are shown."""
    assert json.loads(text_of_value(shared(3))) == shared(3)
    assert text_of_value(shared(60)) == "<no text, because it would show parts of a list many times>"
    text = "x" * 1_000
    assert text_of_value({"texts": [text] * 1_000}).startswith("<no text")
    distinct = [str(number) for number in range(REPEATED_CHARACTERS_MAX)]
    assert json.loads(text_of_value(distinct)) == distinct


def test_a_value_that_holds_itself_has_a_text() -> None:
    """As `repr` shows it."""
    value: list[Any] = [1]
    value.append(value)
    assert text_of_value(value) == "[1, [...]]"


def test_keys_have_json_whatever_their_size() -> None:
    """Integers of many digits are written in hex."""
    assert json.loads(text_of_key(("a", LARGE)))[1] == {"hex": hex(LARGE)}
    assert json.loads(text_of_key(-(10**3_000))) == -(10**3_000)
