"""Keyed rows against a dict: captures, merges, pieces and clips, for all kinds of states and all types of keys."""

from __future__ import annotations

import pytest

from tests.snapshot.keyed.properties import PROPERTIES, Property


@pytest.mark.parametrize("rule", PROPERTIES, ids=lambda each: each.check.__name__)
def test_it_holds_for_every_history(rule: Property) -> None:
    """The property, whose own first line says it, holds for every history that Hypothesis finds."""
    rule.holds()
