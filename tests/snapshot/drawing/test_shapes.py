"""The pictures are those that were looked at."""

from __future__ import annotations

from tests.snapshot.drawing.shapes import EXPECTED, lines


def test_pictures_are_as_they_were() -> None:
    """Every shape, place, style and word of a graph, a diagram and a card. `shapes` tells how to accept a new look."""
    assert lines() == EXPECTED.read_text().splitlines()
