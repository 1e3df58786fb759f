"""How a process that moves messages lives with Python's collector of cycles."""

from __future__ import annotations

import gc

#: New objects between two looks of the collector; Python's own default is 700.
COLLECTED_OBJECTS = 100_000


def calm_collector() -> None:
    """Messages come and go by the thousand and are no cycles: the collector's usual haste costs a tenth of the time."""
    gc.freeze()  # what was imported stays, and is not looked at again
    gc.set_threshold(COLLECTED_OBJECTS)
