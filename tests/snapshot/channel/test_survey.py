"""The survey finds every type, and calls nothing a tree that is none."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from cutline.snapshot.channel.survey import ATOMS, CONTAINERS, TooDeep, survey
from tests.run_size import scaled
from tests.snapshot.channel.strange_values import Box, Maker, nested


def _walk(value: Any) -> tuple[set[type], bool]:
    """The types inside a value, and whether each container is reached once: found slowly."""
    types: set[type] = set()
    reached: list[int] = []

    def visit(each: Any) -> None:
        if type(each) in CONTAINERS:
            reached.append(id(each))
            if reached.count(id(each)) == 1:
                for part in [*each, *each.values()] if type(each) is dict else each:
                    types.add(type(part))
                    visit(part)

    visit(value)
    return types, len(set(reached)) == len(reached)


def test_the_survey_agrees_with_a_walk() -> None:
    """No type is missing but atoms that are keys; a tree is a tree."""
    trees = 0
    for seed in range(scaled(4_000)):
        maker = Maker(Random(seed))
        value = maker.value()
        maker.made.clear()  # these references would make each container one that may be shared
        found = survey(value)
        types, is_tree = _walk(value)
        assert found.types | ATOMS == types | ATOMS
        assert found.types <= types
        assert is_tree or not found.is_tree
        assert {type(each) for each in found.others} == types - ATOMS - CONTAINERS
        trees += found.is_tree and bool(types & CONTAINERS)
    assert trees > scaled(100)


@pytest.mark.parametrize("count", [1, 100])
def test_what_is_reached_once_is_a_tree(count: int) -> None:
    """So that it costs no pickle; also where a whole level is listed at once."""
    assert survey({number: [{"a": [number]}, [[]]] for number in range(count)}).is_tree


@pytest.mark.parametrize("count", [1, 100])
def test_what_is_reached_twice_is_no_tree(count: int) -> None:
    """From one container or from two, on one level or on two, and from itself."""
    for twice in (shared := [1]), {"a": shared}:
        rest: list[Any] = [[number] for number in range(count)]
        assert not survey([*rest, twice, twice]).is_tree
        assert not survey([*rest, [twice], {0: twice}]).is_tree
        assert not survey([*rest, twice, [[twice]]]).is_tree
    cycle: list[Any] = [[number] for number in range(count)]
    cycle.append([cycle])
    assert not survey(cycle).is_tree


def test_several_values_are_surveyed_together() -> None:
    """The values themselves are no part of their content."""
    found = survey((1, "a"), (2, [Box()]), 7)
    assert found.types == {int, str, list, Box}
    assert found.is_tree
    assert [type(each) for each in found.others] == [Box]


@pytest.mark.parametrize("kind", [list, tuple, dict])
def test_depth_has_a_limit(kind: type) -> None:
    """The API names it, and the outermost container counts."""
    survey(nested(kind, 200))
    with pytest.raises(TooDeep, match="more than 200 deep"):
        survey(nested(kind, 201))
