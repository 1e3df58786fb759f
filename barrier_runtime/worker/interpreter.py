"""How a process that moves messages lives with Python's interpreter: its collector of cycles, and its one lock."""

from __future__ import annotations

import gc
import sys

#: New objects between two looks of the collector; Python's own default is 700.
COLLECTED_OBJECTS = 100_000

#: Seconds that a thread which comes back from the system waits for the lock while the loop computes. An upload comes
#: back a dozen times; at Python's own 5 ms each it took 60 ms of a snapshot, most of it waiting.
LOCK_SECONDS = 0.0005


def tune_interpreter() -> None:
    """Suit a process of one loop that always computes, and a few threads that mostly wait for storage.

    Messages come and go by the thousand and are no cycles: the collector's usual haste costs a tenth of the time.
    """
    gc.freeze()  # what was imported stays, and is not looked at again
    gc.set_threshold(COLLECTED_OBJECTS)
    sys.setswitchinterval(LOCK_SECONDS)
