"""What happens at a subtask in an exploration, how its life begins, and what it contributes to a snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from snapshot.channel.frame import Frame, Marker
from snapshot.coordinator import control
from snapshot.ids import ChannelId
from snapshot.testing.exploration.node_log import NOWHERE, LoggedCut

#: Whom reports are for.
COORDINATOR: Final = "coordinator"


@dataclass(frozen=True, slots=True)
class Arrived:
    """The first item of a link came."""

    channel: ChannelId
    item: Frame | Marker


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """The next thing that the coordinator said came."""

    message: control.CoordinatorMessage


@dataclass(frozen=True, slots=True)
class Handled:
    """The node handles the next message of a channel."""

    channel: ChannelId


@dataclass(frozen=True, slots=True)
class Taken:
    """What is next in an out-buffer goes on its link."""

    channel: ChannelId


@dataclass(frozen=True, slots=True)
class Woken:
    """It is time for the next timer or poll."""


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The time to align a snapshot is over."""

    snapshot_id: int


SubtaskEvent = Arrived | MessageReceived | Handled | Taken | Woken | TimedOut


@dataclass(frozen=True, slots=True)
class SubtaskOrigin:
    """How a subtask begins: from the restore plan, and where it was in truth at the cut."""

    incarnation: int
    start: control.RestoredSubtask
    before: LoggedCut = NOWHERE


@dataclass(frozen=True, slots=True)
class Contribution:
    """A subtask's acknowledgement of a snapshot, and what the truth says of its cut."""

    acknowledged: control.SnapshotAcknowledged
    cut: LoggedCut
    #: it was told to start the snapshot, and had not heard of it
    initiated: bool
