"""Records of one subtask alone, in mode `channelLogs`: what a record holds of the channels (PROTOCOL 14.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from cutline.snapshot.channel.channel_cuts import ReceivedCut, SentCut
from cutline.snapshot.channel.channel_receiver import ChannelReceiver
from cutline.snapshot.channel.channel_sender import ChannelSender
from cutline.snapshot.channel.frame import Buffer
from cutline.snapshot.channel.send_log import LogMemory, SendLog
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.node import Node, Source
from cutline.snapshot.replayable_source import ReplayableSource
from cutline.snapshot.stored.certificate import SubtaskStatus
from cutline.snapshot.stored.contribution import SnapshotTaken, SnapshotTimings
from cutline.snapshot.stored.independent_record import Checkpoint


class IndependentRecording:
    """Capture the channel ends of one subtask for its records. At most one record is being stored at a time.

    Parameters
    ----------
    subtask : Subtask
    inputs : sequence of ChannelReceiver
    outputs : mapping of ChannelId to ChannelSender
    logs : mapping of ChannelId to SendLog
        The logs of the outputs.
    stopwatch : callable
        Returns seconds of a monotonic clock. Only differences are used.
    memory : LogMemory
        Memory of the logs of the outputs.
    interval : float
        Seconds from one record to the next.
    """

    def __init__(
        self,
        subtask: Subtask,
        inputs: Sequence[ChannelReceiver],
        outputs: Mapping[ChannelId, ChannelSender],
        logs: Mapping[ChannelId, SendLog],
        stopwatch: Callable[[], float],
        memory: LogMemory,
        interval: float,
    ) -> None:
        #: seconds from one record to the next
        self.interval = interval
        self._subtask = subtask
        self._inputs = tuple(inputs)
        self._outputs = outputs
        self._stopwatch = stopwatch
        self.memory = memory
        self._logs = logs
        #: {output: number of the last message in the record that was captured last}
        self._captured: dict[ChannelId, int] = {}

    def taken(self, number: int, capture: Callable[[int], tuple[tuple[Buffer, ...], SubtaskStatus]]) -> SnapshotTaken:
        """Capture the state and the channel ends, all between two events."""
        began = self._stopwatch()
        state, status = capture(number)
        received = {end.channel: ReceivedCut(end.processed, end.processed, (), end.waves_left) for end in self._inputs}
        sent = {channel: self._sent(channel, output) for channel, output in self._outputs.items()}
        timings = SnapshotTimings(0.0, self._stopwatch() - began, 0.0)
        return SnapshotTaken(number, self._subtask, state, received, sent, status, timings)

    def stored(self) -> None:
        """Drop what the record that was captured last holds, because it is stored."""
        for channel, sent in self._captured.items():
            self._logs[channel].drop_through(sent)

    def _sent(self, channel: ChannelId, output: ChannelSender) -> SentCut:
        output.seal()
        frames = self._logs[channel].frames()
        sent = self._captured[channel] = output.sent
        return SentCut(sent, frames[0].first - 1 if frames else sent, frames)


def source_progress(node: Node, taken: SnapshotTaken) -> Checkpoint:
    """Return {partition: offset} of a source as pairs: its integer offsets, or the number of messages that it has sent.

    Empty for a node that is no source.
    """
    if not isinstance(node, Source):
        return ()
    offsets = node.snapshotState(taken.snapshot_id, 0.0) if isinstance(node, ReplayableSource) else {}
    if offsets and all(type(offset) is int for offset in offsets.values()):
        return tuple(sorted((f"{taken.subtask.node}/{name}", offset) for name, offset in offsets.items()))
    return ((str(taken.subtask), sum(cut.sent for cut in taken.sent.values())),)
