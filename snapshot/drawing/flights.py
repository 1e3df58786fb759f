"""Which messages are in flight across which cuts, and which came out of a snapshot.

Known by the counts at cuts and restores, so that it is right also where events of messages were dropped.
"""

from __future__ import annotations

from snapshot.ids import ChannelId, Subtask
from snapshot.trace import Counts, Kind, Trace, counts_of

_NOTHING = Counts({}, {})


class Flights:
    """All messages of a trace."""

    def __init__(self, trace: Trace) -> None:
        #: {(incarnation, snapshot_id, subtask)}
        self._cuts: dict[tuple[int, int, Subtask], Counts] = {}
        #: {(incarnation, subtask)}
        self._restored: dict[tuple[int, Subtask], Counts] = {}
        for event in trace.events:
            if event.subtask is None:
                continue
            if event.kind is Kind.CUT:
                self._cuts[event.incarnation, event.snapshot_id, event.subtask] = counts_of(event, trace.topology)
            elif event.kind is Kind.RESTORED:
                self._restored[event.incarnation, event.subtask] = counts_of(event, trace.topology)

    def crosses(self, snapshot_id: int, incarnation: int, channel: ChannelId, number: int) -> bool:
        """Whether the message was sent before the sender's cut, and not processed before the receiver's."""
        sender = self._cuts.get((incarnation, snapshot_id, channel.source), _NOTHING)
        receiver = self._cuts.get((incarnation, snapshot_id, channel.target), _NOTHING)
        processed = receiver.processed.get(channel)
        return processed is not None and processed < number <= sender.sent.get(channel, 0)

    def is_restored(self, incarnation: int, channel: ChannelId, number: int) -> bool:
        """Whether it came out of a snapshot, so that nobody sent it in this incarnation."""
        return number <= self._restored.get((incarnation, channel.source), _NOTHING).sent.get(channel, 0)
