"""The subtasks of one worker in one incarnation, with the links between them and to the peers.

Runs each subtask in turn, moves frames and markers, and returns credit. Must not know control messages, reports or
storage. Runs on one thread.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from cutline.barrier_runtime.worker.meter import AdaptiveBatchLimit, Meter
from cutline.channels.connection import Connection, Received
from cutline.channels.identity import Identity
from cutline.channels.in_process import InProcessConnection
from cutline.snapshot.channel.frame import Marker
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.subtask.events import MarkerArrived
from cutline.snapshot.subtask.machine import SubtaskMachine

Link = Connection | InProcessConnection

#: Seconds that a message waits at most for its frame to be filled while the worker is busy. A limit is needed, because
#: another subtask's backlog may take minutes. Sealing costs almost nothing at this interval, because it is rare.
SEAL_SECONDS_MAX = 0.005


@dataclass(frozen=True, slots=True)
class WorkerChannels:
    """The channels of one worker, by their numbers in the topology."""

    worker: int
    topology: Topology
    placement: Mapping[Subtask, int]
    #: {channel number: channel}; only channels with their source or target in this worker
    by_number: Mapping[int, ChannelId]
    #: {subtask of this worker: [(channel number, input channel), ...]}
    inputs: Mapping[Subtask, Sequence[tuple[int, ChannelId]]]

    @classmethod
    def of(
        cls, worker: int, topology: Topology, placement: Mapping[Subtask, int], subtasks: Iterable[Subtask]
    ) -> WorkerChannels:
        """Return the channels of the worker that runs `subtasks`."""
        inputs: dict[Subtask, list[tuple[int, ChannelId]]] = {subtask: [] for subtask in subtasks}
        by_number: dict[int, ChannelId] = {}
        for number, channel in enumerate(topology.channels):
            if channel.source in inputs or channel.target in inputs:
                by_number[number] = channel
            if channel.target in inputs:
                inputs[channel.target].append((number, channel))
        return cls(worker, topology, placement, by_number, inputs)

    def peers(self) -> list[int]:
        """Return the numbers of the workers that share a channel with this worker, ascending."""
        workers = [self.placement[c.source] for c in self.by_number.values()]
        workers += [self.placement[c.target] for c in self.by_number.values()]
        return sorted(dict.fromkeys(w for w in workers if w != self.worker))

    def to(self, peer: int) -> list[tuple[int, ChannelId]]:
        """Return the channels from this worker to a peer, or to this worker itself."""
        return self._between(self.worker, peer)

    def from_(self, peer: int) -> list[tuple[int, ChannelId]]:
        """Return the channels from a peer, or from this worker itself, to this worker."""
        return self._between(peer, self.worker)

    def _between(self, source: int, target: int) -> list[tuple[int, ChannelId]]:
        place = self.placement
        return [(n, c) for n, c in self.by_number.items() if place[c.source] == source and place[c.target] == target]

    def siblings(self, channel: ChannelId) -> int:
        """Return the number of inputs of the channel's target."""
        return len(self.topology.inputs_of(channel.target))


class DataPlane:
    """The running subtasks and links of a worker between two rollbacks.

    Parameters
    ----------
    worker : int
        Number of this worker.
    incarnation : int
    topology : Topology
    placement : mapping of Subtask to worker number
    machines : mapping of Subtask to SubtaskMachine
        The restored machines of this worker.
    """

    def __init__(
        self,
        worker: int,
        incarnation: int,
        topology: Topology,
        placement: Mapping[Subtask, int],
        machines: Mapping[Subtask, SubtaskMachine],
    ) -> None:
        self.incarnation = incarnation
        self.machines = machines
        self._slices = {subtask: AdaptiveBatchLimit() for subtask in machines}
        #: {input channel: payload bytes received over its link and processed}
        self._freed_bytes = {channel: 0 for machine in machines.values() for channel in machine.inputs}
        self.meter = Meter(worker, incarnation, topology, machines, self._slices, self._freed_bytes)
        #: time, in seconds of the clock, when frames that are not full are sealed though there is work
        self._seal_at = 0.0
        self.connections: dict[int, Connection] = {}
        #: True when no event was handled since all buffered messages were sent
        self._is_flushed = True
        #: subtasks that may have unsealed frames
        self._unsealed: dict[Subtask, SubtaskMachine] = {}
        self._inside = InProcessConnection()
        self._channels = WorkerChannels.of(worker, topology, placement, machines)
        #: {number of an input channel: link}
        self._links: dict[int, Link] = {}
        self._attach(worker, self._inside)

    # ---------------------------------------------------------------- links

    def peers(self) -> list[int]:
        """Return the numbers of the workers that share a channel with this worker, ascending."""
        return self._channels.peers()

    def add_connection(self, peer: int, sock: socket.socket, identity: Identity) -> Connection:
        """Use an authenticated socket for all channels shared with the worker `peer`."""
        assert peer not in self.connections
        connection = Connection(sock, identity)
        self.connections[peer] = connection
        self._attach(peer, connection)
        return connection

    @property
    def is_connected(self) -> bool:
        """True when every peer is connected."""
        return all(peer in self.connections for peer in self.peers())

    def receive(self, connection: Connection, now: float) -> None:
        """Deliver the frames and markers received over a connection. Raises ChannelError if `connection` is lost."""
        self._dispatch(connection.receive(), now)

    # ---------------------------------------------------------------- turns

    def turn(self, now: float) -> int:
        """Run every subtask for one turn, send the results, and return the number of handled events.

        Raises
        ------
        NodeError
            if a hook failed.
        ChannelError
            if a connection is lost.
        """
        handled = 0
        for subtask, machine in self.machines.items():
            wake = machine.next_wake()
            if machine.runnable or (wake is not None and wake <= now):
                handled += self._run(subtask, machine, now)
                self._unsealed[subtask] = machine
                self._give_credit(subtask, machine)
        self._is_flushed = not handled
        if not handled or now >= self._seal_at:
            # Buffered messages leave when work ends, so that latency is low when idle and frames are large when busy.
            self._seal_at = now + SEAL_SECONDS_MAX
            for machine in self._unsealed.values():
                machine.seal()
            self._unsealed.clear()
        self._pump(now)
        return handled

    def next_wake(self) -> float | None:
        """Return the time of the next timer or poll, or None when none is due."""
        wakes = [wake for m in self.machines.values() if (wake := m.next_wake()) is not None]
        return min(wakes, default=None)

    @property
    def has_work(self) -> bool:
        """True when a turn would handle an event or send data at once."""
        return (
            not self._is_flushed
            or self._inside.wants_write
            or any(machine.runnable for machine in self.machines.values())
        )

    @property
    def is_idle(self) -> bool:
        """True when nothing waits to be sent, and only a message from elsewhere can cause work."""
        return (
            not self._unsealed
            and not self._inside.has_data
            and not any(connection.has_data for connection in self.connections.values())
            and all(machine.idle for machine in self.machines.values())
        )

    def flush(self, now: float) -> None:
        """Send markers after control events. Messages that hooks have sent leave with the next turn."""
        self._unsealed |= self.machines
        self._is_flushed = False
        self._pump(now)

    # ---------------------------------------------------------------- below

    def _run(self, subtask: Subtask, machine: SubtaskMachine, now: float) -> int:
        part = self._slices[subtask]
        started = time.monotonic()
        count = machine.run(now, part.limit)
        part.record(time.monotonic() - started)
        return count

    def _attach(self, peer: int, link: Link) -> None:
        channels = self._channels
        for number, channel in channels.to(peer):
            sender = self.machines[channel.source].outputs[channel]
            link.attach_sending(number, sender, siblings=channels.siblings(channel))
        for number, channel in channels.from_(peer):
            link.attach_receiving(number, siblings=channels.siblings(channel))
            self._links[number] = link

    def _give_credit(self, subtask: Subtask, machine: SubtaskMachine) -> None:
        for number, channel in self._channels.inputs[subtask]:
            freed = machine.inputs[channel].take_freed_bytes()
            if freed:
                self._links[number].free(number, freed)
                self._freed_bytes[channel] += freed

    def _pump(self, now: float) -> None:
        self._inside.pump()
        self._dispatch(self._inside.receive(), now)
        for connection in self.connections.values():
            connection.pump()

    def _dispatch(self, received: list[Received], now: float) -> None:
        channels = self._channels.by_number
        for number, item in received:
            channel = channels[number]
            machine = self.machines[channel.target]
            if isinstance(item, Marker):
                machine.step(MarkerArrived(channel, item), now)
            else:
                machine.deliver(channel, item)
