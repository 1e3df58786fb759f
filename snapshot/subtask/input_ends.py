"""Track the ended inputs of a subtask, inside and outside its strongly connected component.

Channels from outside the component end by a numbered message. Channels inside a cycle carry no such message,
because a cycle ends as a whole: the coordinator reads the termination from a snapshot (PROTOCOL 5).
"""

from __future__ import annotations

from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.stored.certificate import OwnStateKind, SubtaskStatus


class InputEnds:
    """The ended and the open inputs of one subtask.

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
        self._inside = inside
        #: {input node: its channels that have not ended}
        self._open: dict[str, set[ChannelId]] = {}
        for channel in inputs:
            self._open.setdefault(channel.source.node, set()).add(channel)

    def channel_ended(self, channel: ChannelId) -> bool:
        """Record the end of a channel. Return whether all channels from ``channel.source.node`` have ended."""
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
        """Whether the cycle of this subtask has ended. An ended cycle accepts no messages."""
        return bool(self.inner_inputs) and not self.open_inner_inputs()

    def open_inner_inputs(self) -> list[ChannelId]:
        """Return the channels inside the cycle that have not ended."""
        return [channel for channel in self.inner_inputs if channel in self._open.get(channel.source.node, ())]

    @property
    def all_ended(self) -> bool:
        """Whether every input has ended."""
        return not self._open

    def status(
        self,
        is_ended: bool,
        *,
        passive: bool,
        has_timers: bool,
        uncommitted: tuple[int, ...],
        partitions: tuple[str, ...] | None,
        own_state: OwnStateKind | None,
    ) -> SubtaskStatus:
        """Return the subtask status that a snapshot stores. Termination is decided from this status."""
        outer_ended = all(node in self._inside for node in self._open)
        return SubtaskStatus(is_ended, passive, has_timers, outer_ended, uncommitted, partitions, own_state)
