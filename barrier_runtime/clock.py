"""Time for nodes: seconds since the epoch, read once and then advanced by the monotonic clock.

A jump of the machine's clock ends no deadline and moves no node's `Context.now`, because the monotonic clock counts.
"""

from __future__ import annotations

import time

_EPOCH_AT_ZERO = time.time() - time.monotonic()


def now() -> float:
    """Return seconds since the epoch. The value never decreases within a process and its forks."""
    return _EPOCH_AT_ZERO + time.monotonic()
