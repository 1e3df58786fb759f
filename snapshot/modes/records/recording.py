"""Records of one subtask alone, in mode `channelLogs`: what a record holds of the channels (PROTOCOL 14.1)."""

from __future__ import annotations

from cutline.snapshot.channel.channel_cuts import ReceivedCut, SentCut
from cutline.snapshot.channel.channel_sender import ChannelSender
from cutline.snapshot.ids import ChannelId
from cutline.snapshot.node import Node, Source
from cutline.snapshot.replayable_source import ReplayableSource
from cutline.snapshot.stored.contribution import Contribution, SnapshotTimings
from cutline.snapshot.stored.local_checkpoint import SourceProgress
from cutline.snapshot.subtask.core import SubtaskCore
from cutline.snapshot.subtask.recording import Capture
from cutline.snapshot.subtask.reports import RecordTaken


class LocalCheckpointing:
    """Capture the channel ends of one subtask for its records. At most one record is being stored at a time.

    Parameters
    ----------
    core : SubtaskCore
    interval : float
        Seconds from one record to the next.
    """

    def __init__(self, core: SubtaskCore, interval: float) -> None:
        self.interval = interval
        self.memory = core.log_memory
        self._core = core
        #: {output: number of the last message in the record that was captured last}
        self._captured: dict[ChannelId, int] = {}

    def record(self, number: int, capture: Capture) -> RecordTaken:
        """Capture the state and the channel ends, all between two events. Raise SnapshotAborted as `capture` does."""
        core, stopwatch = self._core, self._core.environment.stopwatch
        began = stopwatch()
        state, status = capture(number)
        ends = [each.end for each in core.inputs]
        received = {end.channel: ReceivedCut(end.processed, end.processed, (), end.waves_left) for end in ends}
        sent = {channel: self._sent(channel, output) for channel, output in core.outputs.items()}
        timings = SnapshotTimings(0.0, stopwatch() - began, 0.0)
        taken = Contribution(number, core.subtask, state, received, sent, status, timings)
        return RecordTaken(taken, _progress(core.node, taken))

    def stored(self) -> None:
        """Drop what the record that was captured last holds, because it is stored."""
        for channel, sent in self._captured.items():
            self._core.send_logs[channel].drop_through(sent)

    def _sent(self, channel: ChannelId, output: ChannelSender) -> SentCut:
        output.seal()
        frames = self._core.send_logs[channel].frames()
        sent = self._captured[channel] = output.sent
        return SentCut(sent, frames[0].first - 1 if frames else sent, frames)


def _progress(node: Node, taken: Contribution) -> SourceProgress:
    """Return {partition: offset} of a source as pairs: its integer offsets, or the number of messages that it has sent.

    Empty for a node that is no source.
    """
    if not isinstance(node, Source):
        return ()
    offsets = node.snapshotState(taken.snapshot_id, 0.0) if isinstance(node, ReplayableSource) else {}
    if offsets and all(type(offset) is int for offset in offsets.values()):
        return tuple(sorted((f"{taken.subtask.node}/{name}", offset) for name, offset in offsets.items()))
    return ((str(taken.subtask), sum(cut.sent for cut in taken.sent.values())),)
