"""Equal states have equal hashes in every process; different ones have different hashes."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cutline.snapshot.modes.steps.state_hash import rows_hash, value_hash
from tests.run_size import scaled
from tests.snapshot.channel.test_message_hash import VALUES


@dataclass
class Pair:
    """A value of a user's class."""

    one: Any
    two: Any = None


@settings(max_examples=scaled(200), deadline=None)
@given(rows=st.lists(VALUES, max_size=6), chance=st.randoms())
def test_the_sequence_of_rows_does_not_count(rows: list[Any], chance: Any) -> None:
    """But each row, and how often there is one."""
    other = [*rows]
    chance.shuffle(other)
    assert rows_hash(rows) == rows_hash(other)
    assert rows_hash([*rows, "more"]) != rows_hash(rows)
    assert rows_hash([*rows, *rows]) != rows_hash(rows) or not rows


@settings(max_examples=scaled(200), deadline=None)
@given(items=st.dictionaries(st.text(max_size=3), VALUES, max_size=5), chance=st.randoms())
def test_the_sequence_of_dict_items_does_not_count(items: dict[str, Any], chance: Any) -> None:
    """At any depth, because equal dicts are equal states."""
    shuffled = [*items.items()]
    chance.shuffle(shuffled)
    assert value_hash([items, {"inner": (items,)}]) == value_hash([dict(shuffled), {"inner": (dict(shuffled),)}])


class Couple(Pair):
    """A value of another class with the same attributes."""


DIFFERENT = [
    *(None, 0, 1, -1, 2**70, 0.5, "", "a", b"a", "\ud800", True),
    *([], [1], [[1]], [1, 2], [2, 1], {}, {1: 2}, {2: 1}, {1: [2]}, set(), {1}, {1, 2}, {"a"}, {"a": 1}),
    *(Pair(1), Pair(2), Pair(1, [2]), Pair(1, [3]), Pair({"a": 1}), Pair(Pair(1)), Couple(1)),
]


def test_different_values_have_different_hashes() -> None:
    """The class and the attributes of a user's object among them, and the sequence of a list."""
    assert len({value_hash(each) for each in DIFFERENT}) == len(DIFFERENT)
    assert value_hash(Pair(1, {"a": 1, "b": 2})) == value_hash(Pair(1, {"b": 2, "a": 1}))


def test_a_value_in_itself_has_a_hash() -> None:
    """Its parts beyond some depth do not count."""
    knot: list[Any] = [1]
    knot.append(knot)
    assert value_hash(knot) == value_hash(knot) != value_hash([2, knot])


def test_another_process_has_the_same_hashes() -> None:
    """Whose sets have another order."""
    value = "[{'one', 'two', 'three', 'four'}, {'a': frozenset({'five', 'six'}), 'b': (1, 2.5)}]"
    code = f"from cutline.snapshot.modes.steps.state_hash import value_hash; print(value_hash({value}).hex())"
    found = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert found == {
        value_hash([{"one", "two", "three", "four"}, {"a": frozenset({"five", "six"}), "b": (1, 2.5)}]).hex() + "\n"
    }
