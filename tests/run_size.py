"""Sizes of searches: ``CUTLINE_EXAMPLES=10`` makes each ten times as large.

``make quick`` searches with 0.1 in unit tests and with 0.2 in full tests, ``make test`` with 1, ``make night`` with 10.
What must have been seen in a search is asserted from 1 on.
"""

from __future__ import annotations

import os

#: factor of the sizes of all searches
FACTOR = float(os.environ.get("CUTLINE_EXAMPLES", "1"))


def scaled(count: int) -> int:
    """Return the number of examples, seeds or runs to try, where `count` are tried by default."""
    return max(1, int(count * FACTOR))
