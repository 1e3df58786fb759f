"""Which inputs of a subtask have ended, seen from the strongly connected component that it is in.

Channels from outside end by a numbered message. Channels inside a cycle carry none: a cycle ends as a whole,
when the coordinator reads from a snapshot that it is over (PROTOCOL 5).
"""

from __future__ import annotations

from snapshot.ids import ChannelId, Subtask
from snapshot.plan.topology import Topology
from snapshot.stored.certificate import SubtaskStatus


class EndOfStream:
    """The ends of one subtask's inputs.

    Parameters
    ----------
    subtask : Subtask
    topology : Topology
    """

    def __init__(self, subtask: Subtask, topology: Topology) -> None:
        inner = topology.component_of(subtask.node)
        inside = inner.nodes if inner.cyclic else ()
        inputs = topology.inputs_of(subtask)
        outputs = topology.outputs_of(subtask)
        self.inner_inputs: tuple[ChannelId, ...] = tuple(c for c in inputs if c.source.node in inside)
        self.inner_output_channels: tuple[ChannelId, ...] = tuple(c for c in outputs if c.target.node in inside)
        self.inner_outputs: tuple[str, ...] = tuple(dict.fromkeys(c.target.node for c in self.inner_output_channels))
        self._inputs = inputs
        #: {input node: its channels that have not ended}
        self._open: dict[str, list[ChannelId]] = {}
        for channel in inputs:
            self._open.setdefault(channel.source.node, []).append(channel)

    def channel_ended(self, channel: ChannelId) -> bool:
        """Note an end; True if with it the whole input ``channel.source.node`` has ended."""
        rest = self._open[channel.source.node]
        rest.remove(channel)
        if not rest:
            del self._open[channel.source.node]
        return not rest

    @property
    def open_inputs(self) -> tuple[str, ...]:
        """Names of the input nodes that have not ended."""
        return tuple(self._open)

    @property
    def inner_ended(self) -> bool:
        """The cycle that this subtask is on was ended; nothing may be sent into it any more."""
        return bool(self.inner_inputs) and not self.open_inner_inputs()

    def open_inner_inputs(self) -> list[ChannelId]:
        """The channels inside the cycle that have not ended."""
        still_open = [channel for channels in self._open.values() for channel in channels]
        return [channel for channel in self.inner_inputs if channel in still_open]

    @property
    def all_ended(self) -> bool:
        """No input is open."""
        return not self._open

    def status(self, is_ended: bool, *, passive: bool, has_timers: bool, uncommitted: tuple[int, ...]) -> SubtaskStatus:
        """What a snapshot says of this subtask's progress towards the end."""
        still_open = [channel for channels in self._open.values() for channel in channels]
        outer_ended = all(channel in self.inner_inputs for channel in still_open)
        return SubtaskStatus(is_ended, passive, has_timers, outer_ended, uncommitted)
