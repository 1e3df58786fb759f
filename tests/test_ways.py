"""The ways of a message and of a snapshot do not grow by accident."""

from __future__ import annotations

from tests.ways import ways

#: {what is followed: (files, functions)} that it passes at most; the numbers may only fall. Turns and acts are files of
#: their own, because a replay has other turns and the same acts.
_LIMITS = {"message": (16, 73), "snapshot": (35, 173), "alignment time-out": (9, 39)}


def test_ways_do_not_grow() -> None:
    """`python -m tests.ways` prints what is counted."""
    for what, way in ways().items():
        files, functions = len(way), sum(map(len, way.values()))
        assert files <= _LIMITS[what][0] and functions <= _LIMITS[what][1], f"{what}: {files} files, {functions}"
