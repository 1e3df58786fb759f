"""Limits of a subtask, each with its reason. Limits of sockets and stores stand in their own modules."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SubtaskLimits:
    """Limits on the memory of one subtask.

    Parameters
    ----------
    recorded_bytes_max : int
        Bytes of channel state that all running snapshots may hold together. Beyond the limit, these snapshots are
        aborted (PROTOCOL 1.7, cap). The default is twice the bytes of 256 channels with full windows.
    state_bytes_max : int
        Bytes of one serialised state. The default is the largest MessagePack binary.
    """

    recorded_bytes_max: int = 512 * 1024 * 1024
    state_bytes_max: int = 2**32 - 1


#: messages that a subtask handles before the worker polls its sockets again. A marker waits for at most this many
#: messages. One poll costs about as much as ten messages.
SLICE_MESSAGES_MAX = 512

#: polls of one source before the worker polls its sockets again
SLICE_POLLS_MAX = 64
