"""What one subtask has gathered for snapshots that are not handed out yet.

A snapshot is handed out when its state was captured, a marker came on every input, and its marker left every
out-buffer (before that, a timeout could still move an aligned marker, and with it what the sender saves).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from snapshot.channel.channel_cuts import ReceivedCut, SentCut
from snapshot.channel.frame import Buffer
from snapshot.ids import ChannelId, Subtask
from snapshot.stored.certificate import SubtaskStatus
from snapshot.stored.contribution import SnapshotTaken, SnapshotTimings


@dataclass(slots=True)
class _Pending:
    #: when the subtask first saw the snapshot, and when it cut
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
    """The snapshots in the making at one subtask.

    Parameters
    ----------
    subtask : Subtask
    inputs, outputs : tuple of ChannelId
    stopwatch : callable
        Seconds of a clock that never goes back; only differences count.
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
        #: {snapshot that is not open: when it was first seen}
        self._seen: dict[int, float] = {}
        self._pending: dict[int, _Pending] = {}

    @property
    def is_empty(self) -> bool:
        """Nothing is in the making."""
        return not self._pending

    def see(self, snapshot_id: int) -> None:
        """The first marker of a snapshot is here, perhaps before the cut."""
        if snapshot_id not in self._pending:
            self._seen[snapshot_id] = self._stopwatch()

    def open(self, snapshot_id: int) -> None:
        """The cut is made now: `captured` or `fail` follows at once."""
        now = self._stopwatch()
        self._pending[snapshot_id] = _Pending(self._seen.pop(snapshot_id, now), now)

    def captured(self, snapshot_id: int, state: tuple[Buffer, ...], status: SubtaskStatus) -> None:
        """The node's state, encoded."""
        pending = self._pending[snapshot_id]
        pending.state, pending.status = state, status
        pending.capture_seconds = self._stopwatch() - pending.cut_at

    def received(self, snapshot_id: int, channel: ChannelId, cut: ReceivedCut) -> None:
        """The receiver's part of an input; of a snapshot that failed here, nothing is kept."""
        pending = self._pending[snapshot_id]
        if not pending.failed:
            pending.received[channel] = cut

    def sent(self, snapshot_id: int, channel: ChannelId, cut: SentCut) -> None:
        """The sender's part of an output."""
        self._pending[snapshot_id].sent[channel] = cut

    def completed(self, snapshot_id: int) -> None:
        """A marker came on every input."""
        self._pending[snapshot_id].completed = True

    def fail(self, snapshot_id: int) -> bool:
        """Never hand this one out; let go of its messages and state. False: it had failed before."""
        pending = self._pending.get(snapshot_id)
        if pending is None or pending.failed:
            return False
        pending.failed = True
        pending.state = None
        pending.received.clear()
        return True

    def has_failed(self, snapshot_id: int) -> bool:
        """It will never be handed out."""
        return self._pending[snapshot_id].failed

    def discard(self, snapshot_id: int) -> None:
        """The snapshot was settled without this subtask."""
        self._seen.pop(snapshot_id, None)
        self._pending.pop(snapshot_id, None)

    def awaiting_markers(self) -> list[int]:
        """Snapshots with outputs whose marker has not left."""
        return [s for s, p in self._pending.items() if len(p.sent) < len(self._outputs)]

    def unsettled_outputs(self, snapshot_id: int) -> list[ChannelId]:
        """The outputs of `snapshot_id` whose marker has not left."""
        sent = self._pending[snapshot_id].sent
        return [channel for channel in self._outputs if channel not in sent]

    def take_finished(self) -> list[SnapshotTaken]:
        """Hand out what is whole."""
        finished: list[SnapshotTaken] = []
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
                    SnapshotTaken(snapshot_id, self._subtask, p.state, p.received, p.sent, p.status, timings)
                )
        return finished
