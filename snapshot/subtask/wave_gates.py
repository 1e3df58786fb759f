"""Let the restored messages of a reshaped edge pass in the order of their waves (PROTOCOL 6.11, waves).

A wave is the messages that were in flight at one rescale. Messages of one key may be on several channels then, so a
channel is taken only while no channel of its edge holds a message of a lower wave. Messages of the network have no
wave, and pass last.
"""

from __future__ import annotations

from collections.abc import Iterable

from cutline.snapshot.channel.channel_receiver import ChannelReceiver


class WaveGates:
    """The gates of one subtask: one for each edge whose messages have waves.

    Parameters
    ----------
    inputs : iterable of ChannelReceiver
    """

    def __init__(self, inputs: Iterable[ChannelReceiver]) -> None:
        edges: dict[str, list[ChannelReceiver]] = {}
        for end in inputs:
            edges.setdefault(end.channel.source.node, []).append(end)
        #: {source node: the edge's ends}, of edges whose messages have waves; none where every message may pass
        self.edges = {node: ends for node, ends in edges.items() if any(end.wave is not None for end in ends)}

    def may_take(self, end: ChannelReceiver) -> bool:
        """Return whether the next message of an input may be handled now."""
        ends = self.edges.get(end.channel.source.node)
        if ends is None:
            return True
        waves = [wave for each in ends if (wave := each.wave) is not None]
        if not waves:
            del self.edges[end.channel.source.node]
            return True
        return end.wave == min(waves)
