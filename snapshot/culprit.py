"""Name the event whose hook failed, so that a failure that repeats is recognised after a restart.

A message is known by its channel and its number, and a timer by its key and its time, because both are the same after
a restore, and no other name of a message is.
"""

from __future__ import annotations

from dataclasses import dataclass

from snapshot.ids import ChannelId, Subtask


@dataclass(frozen=True, slots=True)
class FailedMessages:
    """Messages `first` to `last` of a channel that were passed to a hook together: one message, or rows of a batch."""

    channel: ChannelId
    first: int
    last: int

    def __str__(self) -> str:
        numbers = f"message {self.first}" if self.first == self.last else f"messages {self.first} to {self.last}"
        return f"{numbers} of {self.channel}"


@dataclass(frozen=True, slots=True)
class FailedTimer:
    """A timer of a subtask."""

    subtask: Subtask
    key: str  #: shown key, because a key may be any value
    at: float  #: seconds since the epoch

    def __str__(self) -> str:
        return f"the timer of {self.subtask} with key {self.key} at {self.at:.6f}"


Culprit = FailedMessages | FailedTimer


@dataclass(frozen=True, slots=True)
class IsolatedMessages:
    """Messages `first` to `last` of a channel, which are passed to the node apart from all others (PROTOCOL 6.6)."""

    channel: ChannelId
    first: int
    last: int
    #: error of the one message, which goes to the dead-letter edge instead of the node; None: the node gets them
    error: str | None = None
