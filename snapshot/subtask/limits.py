"""The core's limits: each with its reason. Those of sockets and stores stand beside them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SubtaskLimits:
    """What one subtask may hold.

    Parameters
    ----------
    recorded_bytes_max : int
        Channel state that the snapshots which run at one time may keep; beyond it they are aborted (PROTOCOL 1.7).
        The default is what 256 channels with full windows hold twice.
    state_bytes_max : int
        One serialised state. The default is the largest MessagePack binary.
    """

    recorded_bytes_max: int = 512 * 1024 * 1024
    state_bytes_max: int = 2**32 - 1


#: Messages that a subtask handles before the worker looks at its sockets again: a marker waits at most this
#: long, and a look costs about as much as ten messages.
SLICE_MESSAGES_MAX = 512

#: Polls of one source before the worker looks at its sockets again.
SLICE_POLLS_MAX = 64
