"""What happens to messages, time and snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from snapshot.ids import ChannelId
from snapshot.testing.step_types.step import Step


@dataclass(frozen=True, slots=True, repr=False)
class Poll(Step):
    """A source is polled once."""

    subtask: Any

    def __post_init__(self) -> None:
        self.resolve("subtask")


@dataclass(frozen=True, slots=True, repr=False)
class Timer(Step):
    """A timer that is due fires."""

    subtask: Any

    def __post_init__(self) -> None:
        self.resolve("subtask")


@dataclass(frozen=True, slots=True, repr=False)
class OnChannel(Step):
    """Happens to what is next on a channel."""

    source: Any
    target: Any
    #: it is a marker; else a message
    marker: bool = False
    #: it is the end of the stream; else a message
    end: bool = False

    def __post_init__(self) -> None:
        self.resolve("source", "target")

    @property
    def channel(self) -> ChannelId:
        """The channel it happens on."""
        return ChannelId(self.source, self.target)


@dataclass(frozen=True, slots=True, repr=False)
class Transmit(OnChannel):
    """What waits first in the sender's out-buffer goes on the wire: a marker that overtakes goes ahead of messages."""


@dataclass(frozen=True, slots=True, repr=False)
class Arrive(OnChannel):
    """What is first on the wire comes into the receiver's queue; an unaligned marker is acted upon at once."""


@dataclass(frozen=True, slots=True, repr=False)
class Deliver(OnChannel):
    """The receiver takes the next message, marker or end of a channel; what it needs to get there happens before.

    With `marker`, the next marker on the channel comes through: one that overtakes leaves messages behind.
    """


#: Steps on the data of one subtask. While two processes run it, they mean the newer one.
DATA = (Poll, Timer, Transmit, Arrive, Deliver)


@dataclass(frozen=True, slots=True, repr=False)
class InProcess(Step):
    """A step on data in a process that another one has replaced, or is about to: a zombie's."""

    process: int
    step: Any


@dataclass(frozen=True, slots=True, repr=False)
class Inject(Step):
    """A message comes into a node from outside of the graph; it is lost if the node is rolled back behind it."""

    target: Any
    message: Any

    def __post_init__(self) -> None:
        self.resolve("target")


@dataclass(frozen=True, slots=True, repr=False)
class Tick(Step):
    """Time passes. None: until something is due."""

    seconds: float | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Initiate(Step):
    """A subtask starts a snapshot. The same id at several subtasks: they start it at the same time, each for itself.

    Ids count from the first one of the coordinator's claim, so that none is used again after a restart.
    """

    snapshotId: int
    at: Any

    def __post_init__(self) -> None:
        self.resolve("at")


@dataclass(frozen=True, slots=True, repr=False)
class RequestSnapshot(Step):
    """The driver asks for a snapshot, which the coordinator starts where it sees fit; or to stop after one."""

    stop: bool = False
    #: retention never removes the snapshot
    pinned: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class TimeOut(Step):
    """A subtask has waited long enough to align a snapshot."""

    subtask: Any
    snapshotId: int

    def __post_init__(self) -> None:
        self.resolve("subtask")
