"""Steps on messages, time and snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cutline.snapshot.ids import ChannelId
from cutline.snapshot.testing.step_types.step import Step


@dataclass(frozen=True, slots=True, repr=False)
class Poll(Step):
    """Poll a source once."""

    subtask: Any

    def __post_init__(self) -> None:
        self.resolve("subtask")


@dataclass(frozen=True, slots=True, repr=False)
class Timer(Step):
    """Fire a timer that is due."""

    subtask: Any

    def __post_init__(self) -> None:
        self.resolve("subtask")


@dataclass(frozen=True, slots=True, repr=False)
class OnChannel(Step):
    """Act on the next item of a channel."""

    source: Any
    target: Any
    #: whether the item is a marker; else a message
    marker: bool = False
    #: whether the item is the end of the stream; else a message
    end: bool = False

    def __post_init__(self) -> None:
        self.resolve("source", "target")

    @property
    def channel(self) -> ChannelId:
        """The channel of the item."""
        return ChannelId(self.source, self.target)


@dataclass(frozen=True, slots=True, repr=False)
class Transmit(OnChannel):
    """Put the first item of the sender's output buffer on the wire. A marker that overtakes goes ahead of messages."""


@dataclass(frozen=True, slots=True, repr=False)
class Arrive(OnChannel):
    """Move the first item on the wire into the receiver's queue. An unaligned marker acts at once."""


@dataclass(frozen=True, slots=True, repr=False)
class Deliver(OnChannel):
    """Handle the next message, marker or end of a channel, after the steps that bring the item to the receiver.

    With `marker`, the next marker on the channel is handled. A marker that overtakes leaves messages behind.
    """


#: Steps on the data of one subtask. While two processes run the subtask, the steps act in the newer process.
DATA = (Poll, Timer, Transmit, Arrive, Deliver)


@dataclass(frozen=True, slots=True, repr=False)
class InProcess(Step):
    """Take a step on data in a process that was replaced, or is about to be: the step of a zombie."""

    process: int
    step: Any


@dataclass(frozen=True, slots=True, repr=False)
class Inject(Step):
    """Send a message into a node from outside of the graph. A rollback to an earlier point loses the message."""

    target: Any
    message: Any

    def __post_init__(self) -> None:
        self.resolve("target")


@dataclass(frozen=True, slots=True, repr=False)
class Tick(Step):
    """Let time pass. None: until something is due."""

    seconds: float | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Initiate(Step):
    """Start a snapshot at a subtask. Several subtasks start the same id at the same time, each for itself.

    Ids count from the first id of the coordinator's claim, so that no id is used again after a restart. A lower id may
    be started after a higher id, until a snapshot with a higher id has ended. Such snapshots are independent, so a
    subtask may record the higher id first. Each cut is exact. The order of ids then has no meaning, so after a restore
    a sink in two phases may commit output twice.
    """

    snapshotId: int
    at: Any

    def __post_init__(self) -> None:
        self.resolve("at")


@dataclass(frozen=True, slots=True, repr=False)
class RequestSnapshot(Step):
    """Request a snapshot, which the coordinator starts when it sees fit; or request to stop after a snapshot."""

    stop: bool = False
    #: whether retention never removes the snapshot
    pinned: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class TimeOut(Step):
    """Let a subtask's time to align a snapshot pass."""

    subtask: Any
    snapshotId: int

    def __post_init__(self) -> None:
        self.resolve("subtask")
