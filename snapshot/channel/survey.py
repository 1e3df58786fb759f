"""Survey a value before it is encoded: the types that it consists of, and whether it is a tree.

A tree is a value whose containers are each reached once. MessagePack writes a tree as it is, and writes everything else
wrongly: a list that is reached twice would come back as two lists, and a bytearray as bytes.

A survey goes level by level, with one call of the interpreter's C functions for a whole level, because a state may have
millions of containers. A container that is referred to once only is reached once. Whether one that has more references
is reached twice is not found out, because pickle, which encodes whatever is no tree, takes as long as finding out.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable
from itertools import chain
from operator import countOf
from sys import getrefcount
from types import NoneType
from typing import Any, Final, NamedTuple

#: Types of values that nobody can change and that refer to nothing.
ATOMS: Final = frozenset({bool, int, float, str, bytes, NoneType})

#: Types whose content is surveyed. Subclasses are not, because they may hold more than their content.
CONTAINERS: Final = frozenset({list, dict, tuple, set, frozenset})

#: Most levels of containers, the outermost included. Decoders of nested values need stack for each level.
DEPTH_MAX: Final = 200


class TooDeep(ValueError):
    """Containers are nested more than `DEPTH_MAX` deep."""


class Survey(NamedTuple):
    """What was found in a value, without the value itself."""

    #: types of everything inside the containers
    types: frozenset[type]
    #: no container is reached twice
    is_tree: bool
    #: the objects whose content was not surveyed: neither containers nor atoms
    others: list[Any]


def survey(*values: Any) -> Survey:
    """Survey the content of values together.

    Raises
    ------
    TooDeep
        if containers are nested more than `DEPTH_MAX` deep.
    """
    types: set[type] = set()
    others: list[Any] = []
    seen: set[int] = set()
    is_tree = True
    level = [each for each in values if type(each) in CONTAINERS]
    for _ in range(DEPTH_MAX):
        level = _content(level)
        found = set(map(type, level))
        types |= found
        if found <= ATOMS:
            return Survey(frozenset(types), is_tree, others)
        if not found <= CONTAINERS:
            if not found <= _SURVEYED:
                others += [each for each in level if type(each) not in _SURVEYED]
            level = [each for each in level if type(each) in CONTAINERS]
        if countOf(map(getrefcount, level), _ALONE) != len(level):
            is_tree = False
            level = _unseen(level, seen)  # because a cycle has no last level
    raise TooDeep(f"containers are nested more than {DEPTH_MAX} deep")


_SURVEYED: Final = ATOMS | CONTAINERS

#: Containers whose content is listed one by one.
_FEW: Final = 16


def _content(containers: list[Any]) -> list[Any]:
    """Return what containers hold. The keys of a dict may be missing if all are atoms."""
    if len(containers) > _FEW:
        return gc.get_referents(*containers)
    content: list[Any] = []
    for each in containers:
        if type(each) is dict:
            # Without its keys the content of a large dict is often of one kind, and needs no search for containers.
            content += each.values() if ATOMS.issuperset(map(type, each)) else chain(each, each.values())
        else:
            content += each
    return content


def _unseen(level: Iterable[Any], seen: set[int]) -> list[Any]:
    by_id = {id(each): each for each in level}
    unseen = [each for number, each in by_id.items() if number not in seen]
    seen.update(by_id)
    return unseen


def _references_of_one() -> int:
    """Return the reference count that `survey` finds for a container which only its own container refers to."""
    outer: list[Any] = [[]]
    level = _content([outer])
    return next(map(getrefcount, level))


_ALONE: Final = _references_of_one()
