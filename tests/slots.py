"""How many tasks the one Spark session of a process runs at one time."""

from __future__ import annotations

#: Slots for two workers of each of four runs, because tests run several modes at one time. Processors may be fewer.
SLOTS = 8

MASTER = f"local[{SLOTS}]"
