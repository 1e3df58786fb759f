"""Where two plain values differ, path by path: dicts by key, lists and tuples by index, all else as a whole."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from snapshot.drawing.labels import brief

#: Levels that are looked into; what lies deeper differs as a whole.
_DEPTH_MAX = 20

#: Stands for what is not there on one side.
_ABSENT = object()


class Change(NamedTuple):
    """One place that differs, in few words."""

    path: str  #: as in Python, below the value: ``['balance']``, ``[3]``; "" for the value itself
    before: str | None  #: None: not there
    after: str | None


def changes(before: Any, after: Any, path: str = "", depth: int = 0) -> Iterator[Change]:
    """All places, in order; take as many as can be shown."""
    if depth < _DEPTH_MAX and type(before) is type(after):
        if isinstance(before, dict):
            for key in dict.fromkeys([*before, *after]):
                below = f"{path}[{brief(key)}]"
                yield from changes(before.get(key, _ABSENT), after.get(key, _ABSENT), below, depth + 1)
            return
        if isinstance(before, list | tuple):
            for index in range(max(len(before), len(after))):
                old, new = (each[index] if index < len(each) else _ABSENT for each in (before, after))
                yield from changes(old, new, f"{path}[{index}]", depth + 1)
            return
    if not _is_same(before, after):
        yield Change(path, _text(before), _text(after))


def _is_same(before: Any, after: Any) -> bool:
    if type(before) is not type(after):
        return False
    return bool(before == after) or (before != before and after != after)  # NaN is unlike itself


def _text(value: Any) -> str | None:
    return None if value is _ABSENT else brief(value)
