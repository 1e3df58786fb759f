"""Measure for how long a thread is stopped while other threads work.

A loop that does nothing reads the clock again and again, and gives the interpreter's lock away once a turn, as the loop
of a worker does. A stop is the time between two readings. A reading takes some 50 ns, so stops below `SECONDS_MIN` are
not counted: nobody stopped the loop.

On a crowded machine the system stops the loop too, for milliseconds, because another process has its core. Then the
processor time of the other threads says more: the loop was stopped by them for at most so long.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

#: Seconds between two readings from which the loop counts as stopped.
SECONDS_MIN = 0.00002

_READINGS = 64


class Stop(NamedTuple):
    """A stop of the loop."""

    milliseconds: float
    #: no more than that, and than the processor time of the other threads of the process meanwhile
    processor_milliseconds: float


def stops_while(is_busy: Callable[[], bool], turn: Callable[[], None]) -> list[Stop]:
    """Return each stop while `is_busy`. Call `turn` once a turn, whose time counts as a stop."""
    stops = []
    clock = time.perf_counter
    last, others = clock(), _others()
    while is_busy():
        turn()
        for _ in range(_READINGS):
            now = clock()
            if now - last >= SECONDS_MIN:
                seconds, before, others = now - last, others, _others()
                stops.append(Stop(seconds * 1e3, min(seconds, others - before) * 1e3))
                now = clock()
            last = now
        time.sleep(0)
    return stops


def _others() -> float:
    """Return the seconds of processor time that the other threads of this process have taken."""
    return time.process_time() - time.thread_time()
