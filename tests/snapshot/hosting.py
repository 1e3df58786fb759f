"""The real subtask machines of a graph, and the links between them, in memory.

Owns making machines, from nothing or from a manifest, and moving what links carry. Decides nothing, and knows
no rule of the protocol.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable
from random import Random
from typing import Any

from snapshot.channel.channel_sender import ChannelSender
from snapshot.channel.frame import Frame, Marker
from snapshot.channel.output_buffer import Spill
from snapshot.channel.serialization import Codec
from snapshot.coordinator.recovery import fresh_start, plan_restore
from snapshot.ids import ChannelId, Subtask
from snapshot.plan.compiled_graph import CompiledGraph
from snapshot.stored.manifest import Manifest
from snapshot.stored.part import decode_frames, decode_part
from snapshot.subtask.assembly import RestoredChannels, SubtaskEnvironment, assemble
from snapshot.subtask.events import MarkerArrived, Started
from snapshot.subtask.limits import SubtaskLimits
from snapshot.subtask.machine import Status, SubtaskMachine
from snapshot.subtask.observer import Observer
from tests.snapshot.truth import END_OF_STREAM, Truth
from tests.snapshot.walkers import Plan, Store, canonical

RUN = "walks"


class Hosting:
    """Machines and links. `start_all` makes them; it is called again for every rollback.

    Parameters
    ----------
    compiled : CompiledGraph
        The graph of `plans`.
    is_ordered : bool
        Whether the truth is to check the order of cuts.
    window : int or None
        Payload bytes that a channel's receiver grants (PROTOCOL 9.1); None: no limit.
    """

    def __init__(
        self,
        compiled: CompiledGraph,
        plans: dict[str, Plan],
        *,
        is_ordered: bool,
        window: int | None,
        limits: SubtaskLimits,
        spill_of: Callable[[ChannelId], Spill | None],
    ) -> None:
        self.compiled = compiled
        self.topology = compiled.topology
        self.truth = Truth(self.topology, plans, is_ordered=is_ordered)
        self.store = Store()
        self.seen: Counter[str] = Counter()  #: the "sometimes" of RELIABILITY
        self.now = 0.0
        self.incarnation = 0
        self._window = window
        self._limits = limits
        self._spill_of = spill_of

    def start_all(self, newest: Manifest | None) -> None:
        """Everything that is not stored is lost; all start again from the newest published snapshot, or afresh."""
        self.incarnation += 1
        self.truth.roll_back(newest.snapshot_id if newest else None)
        self.links: dict[ChannelId, deque[Frame | Marker]] = {channel: deque() for channel in self.topology.channels}
        #: {channel: payload bytes on the way and not processed}
        self.charged: dict[ChannelId, int] = dict.fromkeys(self.topology.channels, 0)
        self.controls: dict[Subtask, deque[Callable[[SubtaskMachine], None]]] = {}
        self.machines: dict[Subtask, SubtaskMachine] = {}
        #: {channel: number of the last restored message}
        self.restored: dict[ChannelId, int] = {}
        #: {subtask: channels that brought it the first marker of some snapshot}
        self.first_by: dict[Subtask, dict[ChannelId, None]] = {subtask: {} for subtask in self.topology.subtasks}
        plan = plan_restore(self.topology, newest, ()) if newest else fresh_start(self.topology)
        for start in plan:
            frames: dict[ChannelId, tuple[Frame, ...]] = {}
            for handle in start.channel_parts:
                assert handle.channel is not None
                stored = decode_frames(handle, decode_part(handle, handle.inline or b""))
                frames[handle.channel] = (*frames.get(handle.channel, ()), *stored)
                self.restored[handle.channel] = handle.last
            channels = RestoredChannels(dict(start.processed), frames, dict(start.sent))
            state = None if start.state is None else decode_part(start.state, start.state.inline or b"")
            self._add_machine(start.subtask, channels, state)

    def _add_machine(self, subtask: Subtask, channels: RestoredChannels, state: memoryview | None) -> None:
        environment = SubtaskEnvironment(
            run=RUN,
            incarnation=self.incarnation,
            codec=Codec(),
            limits=self._limits,
            spill_of=self._spill_of,
            logger_of=lambda _: logging.LoggerAdapter(logging.getLogger(__name__), {}),
            chance_of=lambda _: Random(1),
            stopwatch=lambda: 0.0,
            observer_of=lambda _: _Seen(self.truth),
        )
        parts = assemble(subtask, self.compiled, environment, channels)
        node: Any = parts.node
        node.observer, node.store = self.truth, self.store
        machine = SubtaskMachine(parts)
        machine.restore(state, self.now)
        self.machines[subtask] = machine
        self.controls[subtask] = deque([lambda m: m.step(Started(), self.now)])

    def may_take(self, end: ChannelSender) -> bool:
        """Something waits, and it is a marker or there is credit for it (PROTOCOL 9.1)."""
        if not end.buffer.has_data or self._window is None or end.buffer.has_marker:
            return end.buffer.has_data
        receiver = self.machines[end.channel.target].inputs[end.channel]
        self.charged[end.channel] -= receiver.take_freed_bytes()
        return self.charged[end.channel] < self._window

    def take(self, end: ChannelSender) -> None:
        """What is next goes on the link."""
        self.seen["spilled"] += end.buffer.spilling
        item = end.buffer.take()
        assert item is not None
        self.links[end.channel].append(item)
        if isinstance(item, Frame):
            self.charged[end.channel] += len(item.payload)

    def is_started(self, subtask: Subtask) -> bool:
        """The subtask may act on what links bring (PROTOCOL 5.4: the host opens them after the start)."""
        return self.machines[subtask].status in (Status.RUNNING, Status.ENDED)

    def deliver(self, channel: ChannelId) -> None:
        """The first item of a link comes to its receiver."""
        machine = self.machines[channel.target]
        item = self.links[channel].popleft()
        if isinstance(item, Frame):
            machine.deliver(channel, item)
            return
        recorder = machine.snapshotter.recorder
        self.seen["late marker dropped"] += item.snapshot_id < recorder.min_snapshot_id
        if recorder.phase(item.snapshot_id) is None and item.snapshot_id >= recorder.min_snapshot_id:
            self.first_by[channel.target][channel] = None
            self.seen["first marker through several inputs"] += len(self.first_by[channel.target]) > 1
        machine.step(MarkerArrived(channel, item), 0.0)
        self.seen["overlap"] += len(recorder.unfinished()) > 1


class _Seen(Observer):
    """Shows the truth what is sent and that ends are processed, without the core's counters."""

    def __init__(self, truth: Truth) -> None:
        self._truth = truth

    def message_sending(self, channel: ChannelId, message: Any) -> Any:
        return [canonical(message)]

    def rows_sending(self, channel: ChannelId, batch: Any) -> Any:
        return [*map(canonical, batch.to_pylist())]

    def message_sent(self, channel: ChannelId, kept: Any) -> None:
        self._truth.sent[channel].extend(kept)

    rows_sent = message_sent

    def end_sent(self, channel: ChannelId) -> None:
        self._truth.sent[channel].append(END_OF_STREAM)

    def end_received(self, channel: ChannelId) -> None:
        self._truth.handled[channel].append(END_OF_STREAM)
