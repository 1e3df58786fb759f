"""How much less may wait on a channel of a subtask that has many: all that waits is in every unaligned snapshot.

With as much for each, what waits between two nodes grew with the square of their subtasks: sources of 32 subtasks ran
seconds ahead of their 32 targets, and no snapshot was faster than that. Both ends of a channel know the same numbers.
"""

from __future__ import annotations

#: Channels of one subtask on one side that have all the room that one channel can use.
FULL_CHANNELS = 2

#: Frames become no smaller than this part of a full one: below some tens of messages their own cost is felt.
BUFFER_DIVISOR_MAX = 16


def buffer_divisor(channels: int) -> int:
    """By what the room of each channel is divided where a subtask has so many of them on one side."""
    return min(BUFFER_DIVISOR_MAX, max(1, channels // FULL_CHANNELS))
