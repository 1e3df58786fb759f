"""Events of a subtask in an exploration, the beginning of its incarnation, and its contribution to a snapshot."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cutline.snapshot.channel.frame import Frame, Marker
from cutline.snapshot.coordinator import control
from cutline.snapshot.ids import ChannelId
from cutline.snapshot.testing.exploration.node_log import NOWHERE, LoggedCut

#: receiver of reports
COORDINATOR: Final = "coordinator"


@dataclass(frozen=True, slots=True)
class Arrived:
    """The first item of a link arrived."""

    channel: ChannelId
    item: Frame | Marker


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """The coordinator's next message arrived."""

    message: control.CoordinatorMessage


@dataclass(frozen=True, slots=True)
class Handled:
    """The node handles the next message of a channel."""

    channel: ChannelId


@dataclass(frozen=True, slots=True)
class Taken:
    """The next item of an output buffer goes on its link."""

    channel: ChannelId


@dataclass(frozen=True, slots=True)
class Woken:
    """The time of the next timer or poll has come."""


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The time to align a snapshot is over."""

    snapshot_id: int


SubtaskEvent = Arrived | MessageReceived | Handled | Taken | Woken | TimedOut


@dataclass(frozen=True, slots=True)
class SubtaskOrigin:
    """The beginning of a subtask: its part of the restore plan, and the logged cut from which it begins."""

    incarnation: int
    start: control.RestoredSubtask
    before: LoggedCut = NOWHERE


@dataclass(frozen=True, slots=True)
class SubtaskContribution:
    """A subtask's acknowledgement of a snapshot, and the logged cut against which it is checked."""

    acknowledged: control.SnapshotAcknowledged
    cut: LoggedCut
    #: whether the coordinator triggered the snapshot here before any marker of it arrived
    initiated: bool
