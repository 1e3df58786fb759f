"""Gather one subtask's part of each pending snapshot.

A part is finished when the state was captured, a marker came on every input, and a marker left every output buffer.
An aligned marker must leave first, because a timeout may still move the marker and change the sender's part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from cutline.snapshot.channel.channel_cuts import ReceivedCut, SentCut
from cutline.snapshot.channel.frame import Buffer
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.stored.certificate import SubtaskStatus
from cutline.snapshot.stored.contribution import Contribution, SnapshotTimings


@dataclass(slots=True)
class _Pending:
    #: stopwatch seconds of the first marker or of the request, and of the cut
    seen_at: float
    cut_at: float
    capture_seconds: float = 0.0
    state: tuple[Buffer, ...] | None = None
    status: SubtaskStatus | None = None
    received: dict[ChannelId, ReceivedCut] = field(default_factory=dict)
    sent: dict[ChannelId, SentCut] = field(default_factory=dict)
    failed: bool = False
    completed: bool = False


class PendingSnapshots:
    """The pending snapshots of one subtask.

    Parameters
    ----------
    subtask : Subtask
    inputs, outputs : tuple of ChannelId
    stopwatch : callable
        Returns seconds of a monotonic clock. Only differences are used.
    """

    def __init__(
        self,
        subtask: Subtask,
        inputs: tuple[ChannelId, ...],
        outputs: tuple[ChannelId, ...],
        stopwatch: Callable[[], float],
    ) -> None:
        self._subtask = subtask
        self._inputs = inputs
        self._outputs = outputs
        self._stopwatch = stopwatch
        #: {snapshot_id before its cut: stopwatch seconds of its first marker}
        self._seen: dict[int, float] = {}
        self._pending: dict[int, _Pending] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no snapshot is pending."""
        return not self._pending

    def see(self, snapshot_id: int) -> None:
        """Record the time of a snapshot's first marker, which may come before the cut."""
        if snapshot_id not in self._pending:
            self._seen[snapshot_id] = self._stopwatch()

    def open(self, snapshot_id: int) -> None:
        """Record the time of the cut. The caller must call `captured` or `fail` next."""
        now = self._stopwatch()
        self._pending[snapshot_id] = _Pending(self._seen.pop(snapshot_id, now), now)

    def captured(self, snapshot_id: int, state: tuple[Buffer, ...], status: SubtaskStatus) -> None:
        """Record the node's encoded state and the subtask status."""
        pending = self._pending[snapshot_id]
        pending.state, pending.status = state, status
        pending.capture_seconds = self._stopwatch() - pending.cut_at

    def received(self, snapshot_id: int, channel: ChannelId, cut: ReceivedCut) -> None:
        """Record the receiver's part of an input. The part of a failed snapshot is dropped."""
        pending = self._pending[snapshot_id]
        if not pending.failed:
            pending.received[channel] = cut

    def sent(self, snapshot_id: int, channel: ChannelId, cut: SentCut) -> None:
        """Record the sender's part of an output."""
        self._pending[snapshot_id].sent[channel] = cut

    def completed(self, snapshot_id: int) -> None:
        """Record that a marker came on every input."""
        self._pending[snapshot_id].completed = True

    def fail(self, snapshot_id: int) -> bool:
        """Mark a snapshot as failed, and drop its messages and state. Return False if there is no such change."""
        pending = self._pending.get(snapshot_id)
        if pending is None or pending.failed:
            return False
        pending.failed = True
        pending.state = None
        pending.received.clear()
        return True

    def has_failed(self, snapshot_id: int) -> bool:
        """Return whether the snapshot has failed at this subtask."""
        return self._pending[snapshot_id].failed

    def discard(self, snapshot_id: int) -> None:
        """Drop a snapshot that was settled without this subtask."""
        self._seen.pop(snapshot_id, None)
        self._pending.pop(snapshot_id, None)

    def awaiting_markers(self) -> list[int]:
        """Return the snapshots with a marker that has not left its output buffer."""
        return [s for s, p in self._pending.items() if len(p.sent) < len(self._outputs)]

    def unsettled_outputs(self, snapshot_id: int) -> list[ChannelId]:
        """Return the outputs whose marker of `snapshot_id` has not left."""
        sent = self._pending[snapshot_id].sent
        return [channel for channel in self._outputs if channel not in sent]

    def take_finished(self) -> list[Contribution]:
        """Remove the finished snapshots. Return those that did not fail."""
        finished: list[Contribution] = []
        for snapshot_id in list(self._pending):
            p = self._pending[snapshot_id]
            if not p.completed or len(p.sent) < len(self._outputs):
                continue
            del self._pending[snapshot_id]
            if not p.failed:
                assert p.state is not None and p.status is not None
                assert len(p.received) == len(self._inputs)
                timings = SnapshotTimings(self._stopwatch() - p.seen_at - p.capture_seconds, p.capture_seconds, 0.0)
                finished.append(
                    Contribution(snapshot_id, self._subtask, p.state, p.received, p.sent, p.status, timings)
                )
        return finished
