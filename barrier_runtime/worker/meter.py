"""Measures the subtasks of a worker outside the message path: samples of channel ends, and sums over turns.

Owns the data of a progress report. Nothing here is called for a single message or frame. A subtask with slow user code
may process few messages in one turn, because markers must not wait for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from cutline.barrier_runtime import clock
from cutline.barrier_runtime.progress import EdgeProcessed, EdgeSent, StoreProgress, WorkerProgress
from cutline.barrier_runtime.worker.totals import TotalsThreads
from cutline.snapshot.channel.channel_receiver import ChannelReceiver
from cutline.snapshot.channel.channel_sender import ChannelSender
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.modes.totals.difference_gate import gate_of
from cutline.snapshot.operators.persistent_aggregate import PersistentAggregate
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.subtask.acts import Status
from cutline.snapshot.subtask.limits import SLICE_MESSAGES_MAX
from cutline.snapshot.subtask.machine import SubtaskMachine

#: Seconds that a turn should take at most, because markers and all other subtasks of the worker wait for its end.
SLICE_SECONDS_MAX = 0.01

#: Messages in the first turn, before the duration of a turn is known.
_FIRST = 16


class AdaptiveBatchLimit:
    """The message limit of one subtask's turns: doubled after a short turn, halved after a long turn."""

    def __init__(self) -> None:
        self.limit = _FIRST
        #: seconds that turns took since the last `take_seconds`
        self._seconds = 0.0

    def record(self, seconds: float) -> None:
        """Record the seconds that a turn took, and adapt the limit."""
        self._seconds += seconds
        if seconds > SLICE_SECONDS_MAX:
            self.limit = max(1, self.limit // 2)
        elif seconds < SLICE_SECONDS_MAX / 4:
            self.limit = min(SLICE_MESSAGES_MAX, self.limit * 2)

    def take_seconds(self) -> float:
        """Return the seconds of all turns since the last call."""
        seconds, self._seconds = self._seconds, 0.0
        return seconds


End = TypeVar("End", ChannelSender, ChannelReceiver)

#: Seconds between two samples, which makes ten samples in a report. A sample is cheap, because it visits each channel
#: sender once. A turn visits each several times, and a busy loop makes dozens of turns between two samples.
SAMPLE_SECONDS = 0.05


class Meter:
    """The measurements of one data plane.

    Parameters
    ----------
    worker, incarnation : int
    topology : Topology
    machines : mapping of Subtask to SubtaskMachine
        The restored machines, not started yet.
    slices : mapping of Subtask to AdaptiveBatchLimit
        The limits, which sum the seconds of turns.
    freed_bytes : mapping of ChannelId to int
        Payload bytes received over a link and processed. The data plane counts them and returns them as credit.
    """

    def __init__(
        self,
        worker: int,
        incarnation: int,
        topology: Topology,
        machines: Mapping[Subtask, SubtaskMachine],
        slices: Mapping[Subtask, AdaptiveBatchLimit],
        freed_bytes: Mapping[ChannelId, int],
    ) -> None:
        self._worker = worker
        self._incarnation = incarnation
        self._machines = machines
        self._slices = slices
        self._freed_bytes = freed_bytes
        self._outputs = [_Outputs(n, ends) for n, ends in _by_edge(topology, (m.outputs for m in machines.values()))]
        self._inputs = [_Inputs(n, ends) for n, ends in _by_edge(topology, (m.inputs for m in machines.values()))]
        self._sampled_at = self._reported_at = clock.now()

    def sample(self, now: float) -> None:
        """Sample which channel senders are held up at `now`.

        Call before each turn, because until then the buffers hold what the last turn left.
        """
        seconds = now - self._sampled_at
        if seconds >= SAMPLE_SECONDS:
            self._sampled_at = now
            for outputs in self._outputs:
                outputs.sample(seconds)

    def report(self, refused: dict[str, int], stores: dict[str, StoreProgress]) -> WorkerProgress:
        """Report counters, shares since the last report, connections that the listener `refused`, and `stores`."""
        now = clock.now()
        seconds = max(now - self._reported_at, SAMPLE_SECONDS)
        self._reported_at = now
        sent = {outputs.edge: outputs.report(seconds) for outputs in self._outputs}
        processed = {inputs.edge: inputs.report(self._freed_bytes) for inputs in self._inputs}
        busy: dict[str, float] = {}
        ended: dict[str, int] = {}
        metrics: dict[str, float] = {}
        for subtask, machine in self._machines.items():
            node = subtask.node
            busy[node] = busy.get(node, 0.0) + min(1.0, self._slices[subtask].take_seconds() / seconds)
            ended[node] = ended.get(node, 0) + (machine.status is Status.ENDED)
            for metric, value in machine.context.metrics.items():
                metrics[metric] = metrics.get(metric, 0) + value
        left = max((machine.context.steps_left for machine in self._machines.values()), default=0)
        return WorkerProgress(
            self._worker, self._incarnation, sent, processed, busy, ended, metrics, refused, left, stores
        )


def store_progress(machines: Mapping[Subtask, SubtaskMachine], totals: TotalsThreads) -> dict[str, StoreProgress]:
    """Return the progress of the stores of a worker's aggregates, by node."""
    found: dict[str, StoreProgress] = {}
    for subtask, machine in machines.items():
        gate = gate_of(machine.components)
        if gate is None:
            continue
        node, held, status = machine.node, gate.held, totals.status(subtask)
        assert isinstance(node, PersistentAggregate)
        progress = StoreProgress(
            node.held_keys,
            node.held_bytes,
            held.keys,
            held.size,
            status.cells_left,
            status.operations,
            status.error,
        )
        known = found.get(subtask.node)
        found[subtask.node] = progress if known is None else known.plus(progress)
    return found


class _Outputs:
    """The channel senders of one edge in this worker."""

    def __init__(self, edge: int, ends: list[ChannelSender]) -> None:
        self.edge = edge
        self._ends = ends
        self._before = sum(end.sent for end in ends)
        #: seconds that senders were held up since the last report, summed over all senders
        self._held_up_seconds = 0.0

    def sample(self, seconds: float) -> None:
        """Count the last `seconds` for each channel sender that has data now."""
        # A turn sends all that it can. Data left in a buffer lacks credit, or room in the socket.
        self._held_up_seconds += seconds * sum([end.buffer.has_data for end in self._ends])

    def report(self, seconds: float) -> EdgeSent:
        """Report the counters, and the share of the last `seconds` in which senders were held up."""
        sent = sum([end.sent for end in self._ends])
        waiting = sent - sum([end.buffer.written for end in self._ends])
        held_up, self._held_up_seconds = self._held_up_seconds / seconds, 0.0
        return EdgeSent(sent, self._before, waiting, len(self._ends), min(held_up, float(len(self._ends))))


class _Inputs:
    """The channel receivers of one edge in this worker."""

    def __init__(self, edge: int, ends: list[ChannelReceiver]) -> None:
        self.edge = edge
        self._ends = ends
        self._before = sum(end.processed for end in ends)

    def report(self, freed_bytes: Mapping[ChannelId, int]) -> EdgeProcessed:
        """Report the present counters."""
        processed = sum([end.processed for end in self._ends])
        waiting = sum([end.arrived for end in self._ends]) - processed
        return EdgeProcessed(processed, self._before, waiting, sum([freed_bytes[end.channel] for end in self._ends]))


def _by_edge(topology: Topology, ends: Iterable[Mapping[ChannelId, End]]) -> Iterable[tuple[int, list[End]]]:
    """Group all `ends` by the number of their edge."""
    found: dict[int, list[End]] = {}
    numbers = {(edge.source, edge.target): number for number, edge in enumerate(topology.edges)}
    for of_one in ends:
        for channel, end in of_one.items():
            found.setdefault(numbers[channel.source.node, channel.target.node], []).append(end)
    return found.items()
