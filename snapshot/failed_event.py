"""Name the event whose hook failed, so that a failure that repeats is recognised after a restart (PROTOCOL 6.6)."""

from __future__ import annotations

from dataclasses import dataclass

from cutline.snapshot.ids import ChannelId, Subtask


@dataclass(frozen=True, slots=True)
class FailedMessage:
    """A message that was passed to a hook alone, or as the only row of a batch."""

    channel: ChannelId
    number: int
    #: hash of the message, because the number may be another message's after a restart
    content: bytes

    def __str__(self) -> str:
        return f"message {self.number} of {self.channel}"

    @property
    def subtask(self) -> Subtask:
        """Subtask whose hook failed."""
        return self.channel.target


@dataclass(frozen=True, slots=True)
class FailedBatch:
    """Messages `first` to `last` of a channel that were passed to a hook together, such as the rows of a batch."""

    channel: ChannelId
    first: int
    last: int

    def __str__(self) -> str:
        return f"messages {self.first} to {self.last} of {self.channel}"


@dataclass(frozen=True, slots=True)
class FailedTimer:
    """A timer of a subtask."""

    subtask: Subtask
    key: str  #: shown key, because a key may be any value
    content: bytes  #: hash of the key, because a long key is not shown whole; empty for a timer without a key
    at: float  #: seconds since the epoch

    def __str__(self) -> str:
        key = f" with key {self.key}" if self.content else ""
        return f"the timer of {self.subtask}{key} at {self.at:.6f}"


#: An event that a hook handled alone.
Suspect = FailedMessage | FailedTimer

FailedEvent = FailedMessage | FailedBatch | FailedTimer


@dataclass(frozen=True, slots=True)
class IsolatedMessages:
    """Messages `first` to `last` of a channel, which are passed to the node apart from all others."""

    channel: ChannelId
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that failed for good, and goes to the dead-letter edge instead of the node."""

    channel: ChannelId
    number: int  #: number of the message, or of a message before it
    content: bytes | None  #: hash of the message; None: whatever has the number is set aside
    error: str


@dataclass(frozen=True, slots=True)
class Suspects:
    """Messages and timers that failed at a subtask, ascending in each channel. A deployment carries them."""

    messages: tuple[FailedMessage, ...] = ()
    isolated: tuple[IsolatedMessages, ...] = ()
    letters: tuple[DeadLetter, ...] = ()
    timers: tuple[FailedTimer, ...] = ()

    def concern(self, channel: ChannelId) -> bool:
        """Return whether some are messages of the channel."""
        concerned = {each.channel for each in self.messages} | {each.channel for each in self.isolated}
        return channel in concerned or any(each.channel == channel for each in self.letters)
