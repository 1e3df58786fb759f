"""What a subtask restores from a snapshot: the contents of its parts, and what its channels begin with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from cutline.snapshot.channel.frame import Frame
from cutline.snapshot.channel.rerouting import Waves
from cutline.snapshot.failed_event import Suspects
from cutline.snapshot.ids import ChannelId
from cutline.snapshot.keyed.segment import Segment
from cutline.snapshot.stored.list_rules import LocalVersion
from cutline.snapshot.subtask.inheritance import Donors


@dataclass(frozen=True, slots=True)
class Restored:
    """The contents of the parts of one subtask. Without `state` its node starts fresh."""

    #: encoded state part; donors give theirs where the parallelism of the node has changed
    state: bytes | memoryview | Donors | None = None
    #: rows of keyed state, oldest first, clipped to the key groups of the subtask
    rows: Sequence[Segment] = ()
    #: changes of the node's own state, as `OwnState.restore` takes them
    own: Sequence[tuple[bool, memoryview]] = ()
    #: the restored snapshot, or 0
    snapshot_id: int = 0
    #: whether the next snapshot lists only new parts of own state, as in a fork
    needs_base: bool = False
    #: steps of the log after the state, encoded, oldest first. They are repeated after the start
    steps: Sequence[memoryview] = ()
    #: snapshot that has the state of all subtasks, or None where the replay begins with the run
    base: int | None = None
    #: version of the local database that has the rows, in place of `rows`
    version: LocalVersion | None = None
    #: whether the node has lists of rows in the snapshot. This subtask may have none
    lists_rows: bool = False


#: What a subtask of a fresh run restores.
FRESH: Final = Restored()


@dataclass(frozen=True, slots=True)
class RestoredChannels:
    """Counters, channel states and partitions that a subtask starts with (PROTOCOL 6.2, 6.5)."""

    #: {input channel: p}, the number of the last processed message
    processed: Mapping[ChannelId, int] = field(default_factory=dict)
    #: {input channel: channel state}, the receiver's part before the sender's part
    frames: Mapping[ChannelId, tuple[Frame, ...]] = field(default_factory=dict)
    #: {output channel: S}, the number of the last sent message
    sent: Mapping[ChannelId, int] = field(default_factory=dict)
    #: names of the partitions that the subtask reads, or None for a node without partitions
    partitions: tuple[str, ...] | None = None
    #: what failed before
    suspects: Suspects = Suspects()  # noqa: RUF009  # it is frozen
    #: output channels whose end is sent at the restore (PROTOCOL 6.7, ended subtasks)
    missing_ends: tuple[ChannelId, ...] = ()
    #: {input channel: waves of its restored messages} (PROTOCOL 6.11, waves)
    waves: Mapping[ChannelId, Waves] = field(default_factory=dict)
    #: {input channel of a reshaped edge: whether its end was processed} (PROTOCOL 6.10, ends of reshaped edges)
    reshaped: Mapping[ChannelId, bool] = field(default_factory=dict)
    #: targets of output edges whose partitioners start afresh
    fresh_outputs: tuple[str, ...] = ()
    #: {name in the snapshot: name now} of renamed nodes
    renames: Mapping[str, str] = field(default_factory=dict)
    #: `Node.stateVersion` of the node in the snapshot
    state_version: int = 1
    #: first step of the log that the subtask repeats, encoded; None without a log
    first_step: memoryview | None = None
