"""What one subtask has gathered for snapshots that are not handed out yet.

A snapshot is handed out when its state was captured, a marker came on every input, and its marker left every
out-buffer (before that, a timeout could still move an aligned marker, and with it what the sender saves).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from snapshot.channel.receiving_end import ReceivedCut
from snapshot.channel.sending_end import SentCut
from snapshot.ids import ChannelId, Subtask
from snapshot.stored.envelope import Buffer
from snapshot.subtask.reports import SnapshotTaken, Standing


@dataclass(slots=True)
class _Pending:
    state: tuple[Buffer, ...] | None = None
    standing: Standing | None = None
    received: dict[ChannelId, ReceivedCut] = field(default_factory=dict)
    sent: dict[ChannelId, SentCut] = field(default_factory=dict)
    failed: bool = False
    completed: bool = False


class PendingSnapshots:
    """The snapshots in the making at one subtask."""

    def __init__(self, subtask: Subtask, inputs: tuple[ChannelId, ...], outputs: tuple[ChannelId, ...]) -> None:
        self._subtask = subtask
        self._inputs = inputs
        self._outputs = outputs
        self._pending: dict[int, _Pending] = {}

    @property
    def is_empty(self) -> bool:
        """Nothing is in the making."""
        return not self._pending

    def open(self, snapshot_id: int) -> None:
        """The cut is made now."""
        self._pending[snapshot_id] = _Pending()

    def captured(self, snapshot_id: int, state: tuple[Buffer, ...], standing: Standing) -> None:
        """The node's state, encoded."""
        pending = self._pending[snapshot_id]
        pending.state, pending.standing = state, standing

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
                assert p.state is not None and p.standing is not None
                assert len(p.received) == len(self._inputs)
                finished.append(SnapshotTaken(snapshot_id, self._subtask, p.state, p.received, p.sent, p.standing))
        return finished
