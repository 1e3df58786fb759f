"""Time as nodes see it: seconds since the epoch, read once, and moved on by the monotonic clock.

So a jump of the machine's clock ends no deadline and moves no node's `Context.now`; only the monotonic clock decides.
"""

from __future__ import annotations

import time

_EPOCH_AT_ZERO = time.time() - time.monotonic()


def now() -> float:
    """Seconds since the epoch; never goes back within a process and its forks."""
    return _EPOCH_AT_ZERO + time.monotonic()
