"""Sizes of searches: ``CUTLINE_EXAMPLES=10`` makes each ten times as large, for a long night."""

from __future__ import annotations

import os

FACTOR = float(os.environ.get("CUTLINE_EXAMPLES", "1"))


def scaled(count: int) -> int:
    """Return the number of examples, seeds or runs to try, where `count` are tried by default."""
    return max(1, int(count * FACTOR))
