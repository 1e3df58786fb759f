"""What tests of drawings share."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture
def no_matplotlib(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matplotlib is not installed, and whoever needs it was not imported yet."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for name in ("canvas", "plot", "graph_plot"):
        monkeypatch.delitem(sys.modules, f"cutline.snapshot.drawing.{name}", raising=False)
