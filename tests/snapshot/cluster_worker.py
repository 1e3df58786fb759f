"""One worker process of the cluster: real machines, told and asked by the control protocol.

Each thing that it may do next is one step, taken when the cluster's schedule says so: hear the coordinator, give
a machine a turn, move what waits on a channel, store a part, restore, connect.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from snapshot.channel.frame import Frame, Marker
from snapshot.coordinator import control
from snapshot.errors import ChannelError, CutlineError, RestoreRefused, SnapshotCorrupt
from snapshot.ids import ChannelId, Subtask
from snapshot.stored.contribution import parts_of, record_of
from snapshot.stored.part import decode_frames
from snapshot.subtask.assembly import RestoredChannels, Surroundings, assemble
from snapshot.subtask.limits import SubtaskLimits
from snapshot.subtask.machine import SubtaskMachine
from snapshot.subtask.reports import (
    AlignmentStarted,
    PublicationHandled,
    Report,
    SnapshotAsked,
    SnapshotFailed,
    SnapshotTaken,
)
from tests.snapshot.cluster_programs import RUN
from tests.snapshot.cluster_truth import CODEC, Violation

if TYPE_CHECKING:
    from tests.snapshot.cluster import Cluster

Choose = Callable[[int], int]

_LOGGER: logging.LoggerAdapter[Any] = logging.LoggerAdapter(logging.getLogger("tests.cluster"), {})
_LIMITS = SubtaskLimits()


@dataclass
class Connection:
    """A control connection: two FIFO queues, until either end or the network drops it."""

    to_coordinator: deque[control.WorkerMessage] = field(default_factory=deque)
    to_worker: deque[control.CoordinatorMessage] = field(default_factory=deque)
    is_open: bool = True


class ClusterMachine(SubtaskMachine):
    """Tells the truth of its cuts."""

    noted: Callable[[SubtaskMachine, int], None]

    def _capture(self, snapshot_id: int) -> Any:
        self.noted(self, snapshot_id)
        return super()._capture(snapshot_id)


class ClusterWorker:
    """One worker process.

    Parameters
    ----------
    cluster : Cluster
    launch : str
        Of its stage.
    number : int
    address : bytes
        By which peers find this process, and no other.
    """

    def __init__(self, cluster: Cluster, launch: str, number: int, address: bytes) -> None:
        self.launch = launch
        self.address = address
        self.number = number
        self.is_alive = True
        self.has_quit = False
        self.connection: Connection | None = None
        self.incarnation = 0
        self.is_started = False
        self.machines: dict[Subtask, SubtaskMachine] = {}
        #: {input channel: what is on its way}
        self.links: dict[ChannelId, deque[Frame | Marker]] = {}
        #: of the present incarnation, by number; None before `Connect`
        self.peers: dict[int, ClusterWorker] | None = None
        #: neither acts nor hears before
        self.frozen_until = 0.0
        #: stores nothing before
        self.store_stuck_until = 0.0
        #: the next part cannot be stored
        self.store_fails = False
        self._cluster = cluster
        self._store = cluster.open_store()
        self._deploy: control.Deploy | None = None
        self._connect: control.Connect | None = None
        self._uploads: list[tuple[SnapshotTaken, int]] = []
        #: (when, incarnation, machine, snapshot_id)
        self._alignments: list[tuple[float, int, SubtaskMachine, int]] = []
        self._said_idle = False
        #: since it was deployed; nothing runs here until it is deployed again
        self._has_failed = False

    # ---------------------------------------------------------------- steps

    def steps(self) -> list[Callable[[Choose], None]]:
        """What it may do now; each is one event."""
        if self.frozen_until > self._cluster.now:
            return []
        steps: list[Callable[[Choose], None]] = []
        if self.connection is None or not self.connection.is_open:
            steps.append(self._register)
        elif self.connection.to_worker:
            steps.append(self._hear)
        if self._uploads and self.store_stuck_until <= self._cluster.now:
            steps.append(self._upload)
        if self._deploy is not None:
            steps.append(self._restore)
        if self._connect is not None:
            steps.append(self._make_connections)
        if self.is_started:
            steps += self._data_steps()
        return steps

    def next_wake(self) -> float | None:
        """When time alone lets it act."""
        times = [machine.next_wake() for machine in self.machines.values() if self.is_started]
        times += [at for at, *_ in self._alignments]
        times.append(self.frozen_until)
        times.append(self.store_stuck_until if self._uploads else None)
        return min((at for at in times if at is not None and at > self._cluster.now), default=None)

    def _data_steps(self) -> list[Callable[[Choose], None]]:
        now = self._cluster.now
        steps: list[Callable[[Choose], None]] = []
        if any(not peer.is_connected(self.incarnation) for peer in (self.peers or {}).values()):
            steps.append(self._notice_lost_peer)
        for machine in self.machines.values():
            wake = machine.next_wake()
            if machine.runnable or (wake is not None and wake <= now and not machine.gate.closed):
                steps.append(lambda choose, m=machine: self._turn(m, choose))  # type: ignore[misc]
            for channel, end in machine.outputs.items():
                if end.has_data or end.has_open_frame:
                    steps.append(lambda choose, m=machine, c=channel: self._send(m, c, choose))  # type: ignore[misc]
        for channel, link in self.links.items():
            if link:
                steps.append(lambda choose, c=channel: self._receive(c, choose))  # type: ignore[misc]
        if any(at <= now for at, *_ in self._alignments):
            steps.append(self._time_out_alignment)
        return steps

    # ---------------------------------------------------------------- data

    def _turn(self, machine: SubtaskMachine, choose: Choose) -> None:
        self._act(lambda: machine.run(self._cluster.now, 1 + choose(3)), machine)

    def _send(self, machine: SubtaskMachine, channel: ChannelId, choose: Choose) -> None:
        end = machine.outputs[channel]
        if not end.has_data or choose(2):
            end.seal()
        peer = self._peer(channel.target)
        for _ in range(1 + choose(2)):
            item = end.take()
            if item is None:
                break
            if peer.is_connected(self.incarnation):
                peer.links[channel].append(item)
        self._after()

    def _receive(self, channel: ChannelId, choose: Choose) -> None:
        machine, link = self.machines[channel.target], self.links[channel]

        def deliver() -> None:
            for _ in range(min(len(link), 1 + choose(2))):
                item = link.popleft()
                if isinstance(item, Marker):
                    machine.deliver_marker(channel, item)
                else:
                    machine.deliver(channel, item)

        self._act(deliver, machine)

    def _time_out_alignment(self, choose: Choose) -> None:
        due = next(each for each in self._alignments if each[0] <= self._cluster.now)
        self._alignments.remove(due)
        _, incarnation, machine, snapshot_id = due
        if incarnation == self.incarnation:
            self._cluster.see("an alignment timed out")
            self._act(lambda: machine.alignment_timed_out(snapshot_id))

    def _notice_lost_peer(self, choose: Choose) -> None:
        self._fail("a peer is lost", is_permanent=False)

    def _peer(self, subtask: Subtask) -> ClusterWorker:
        assert self.peers is not None
        return self.peers[self._cluster.placement[subtask]]

    def _act(self, event: Callable[[], object], *only: SubtaskMachine) -> None:
        try:
            event()
            for machine in only or self.machines.values():
                machine.validate()
        except ChannelError as error:
            raise Violation("sequence", str(error)) from error
        except CutlineError as error:
            self._fail(str(error), is_permanent=False)
        else:
            self._after()

    def _after(self) -> None:
        """Pass on what the machines have to say; say so when there is nothing left to do."""
        for machine in list(self.machines.values()):
            for report in machine.take_reports():
                self._report(machine, report)
        is_idle = self._is_idle
        if is_idle is not self._said_idle:
            self._said_idle = is_idle
            self._say(control.WorkerIdle(self.number, self.incarnation, is_idle))

    @property
    def _is_idle(self) -> bool:
        machines = self.machines.values()
        return (
            self.is_started
            and all(machine.idle for machine in machines)
            and not any(end.has_data or end.has_open_frame for machine in machines for end in machine.outputs.values())
        )

    def _report(self, machine: SubtaskMachine, report: Report) -> None:
        match report:
            case SnapshotTaken():
                self._uploads.append((report, self.incarnation))
            case SnapshotFailed(snapshot_id, subtask, reason):
                self._say(control.SnapshotDeclined(self.incarnation, snapshot_id, subtask, reason))
            case SnapshotAsked(subtask):
                self._say(control.SnapshotAskedFor(self.incarnation, subtask))
            case PublicationHandled(snapshot_id, subtask):
                self._say(control.PublicationDone(self.incarnation, snapshot_id, subtask))
            case AlignmentStarted(snapshot_id, _, timeout):
                self._alignments.append((self._cluster.now + timeout, self.incarnation, machine, snapshot_id))
            case _:
                pass  # that a subtask has ended is for people

    # ---------------------------------------------------------------- storage

    def _upload(self, choose: Choose) -> None:
        """Uploads go on over a rollback, as threads would: what comes of them is then stale."""
        taken, incarnation = self._uploads.pop(choose(len(self._uploads)))
        if self.store_fails:
            self.store_fails = False
            reason = f"{taken.subtask} could not be stored: no space"
            self._say(control.SnapshotDeclined(incarnation, taken.snapshot_id, taken.subtask, reason))
            return
        handles = [self._store.put_part(part) for part in parts_of(taken, RUN, incarnation)]
        self._acknowledge(taken, incarnation, handles)

    def _acknowledge(self, taken: SnapshotTaken, incarnation: int, handles: list[Any]) -> None:
        record = record_of(taken, incarnation, handles)
        self._say(control.SnapshotAcknowledged(incarnation, taken.snapshot_id, record))

    # ---------------------------------------------------------------- life

    def _register(self, choose: Choose) -> None:
        self.connection = self._cluster.connect(self)
        if self.connection is None:
            return
        running = self.incarnation if self.is_started else 0
        self._say(control.WorkerRegistered(self.number, self.launch, running, self.address, 0))
        if self.is_started:
            self._say(control.WorkerIdle(self.number, self.incarnation, self._said_idle))

    def _say(self, message: control.WorkerMessage) -> None:
        if self.connection is not None and self.connection.is_open:
            self.connection.to_coordinator.append(message)

    def _hear(self, choose: Choose) -> None:
        assert self.connection is not None
        message = self.connection.to_worker.popleft()
        match message:
            case control.Welcome():
                # What was asked of an earlier life of the coordinator will not be answered.
                self._each(lambda machine: machine.answer_request())
            case control.Deploy(incarnation):
                if incarnation <= self.incarnation:
                    raise Violation("fencing", f"{incarnation} is deployed after {self.incarnation}")
                self._drop()
                self.incarnation, self._deploy = incarnation, message
            case control.Connect():
                self._check_order(message.incarnation, is_ready=bool(self.machines))
                self._connect = message
            case control.StartProcessing(incarnation):
                self._check_order(incarnation, is_ready=self.peers is not None)
                self.is_started = True
                self._each(lambda machine: machine.start(self._cluster.now))
            case control.Finish():
                self._cluster.check_settled(self)
                self.leave()
            case control.Quit():
                self.has_quit = True
                self.leave()
            case _:
                if message.incarnation == self.incarnation and self.is_started:
                    self._obey(message)

    def _check_order(self, incarnation: int, *, is_ready: bool) -> None:
        """PROTOCOL 6.1: one after the other, all in one incarnation. After a failure here nothing more is due."""
        if incarnation == self.incarnation and not is_ready and not self._has_failed:
            raise Violation("rollback", f"worker {self.number} was told to go on before it was ready")

    def _obey(self, message: Any) -> None:
        now = self._cluster.now
        match message:
            case control.TriggerSnapshot(_, snapshot_id, subtasks, running, floor):
                self._each(lambda machine: machine.request(snapshot_id, running, floor), subtasks)
            case control.AnswerSnapshotRequest(_, subtask):
                self._act(self.machines[subtask].answer_request)
            case control.SettleSnapshots(_, floor):
                self._each(lambda machine: machine.raise_floor(floor))
            case control.AnnouncePublished(_, snapshot_id, floor):
                self._each(lambda machine: machine.published(snapshot_id, now))
                self._each(lambda machine: machine.raise_floor(floor))
            case control.EndComponent(_, nodes):
                self._cluster.see("a cycle ended")
                self._each(lambda machine: machine.end_component(now), [s for s in self.machines if s.node in nodes])

    def _each(self, event: Callable[[SubtaskMachine], None], subtasks: Iterable[Subtask] | None = None) -> None:
        """Let an event happen to all machines, or to those of `subtasks`."""

        def happen() -> None:
            for subtask in self.machines if subtasks is None else subtasks:
                event(self.machines[subtask])

        self._act(happen)

    def _restore(self, choose: Choose) -> None:
        deploy, self._deploy = self._deploy, None
        assert deploy is not None
        try:
            for restored in deploy.subtasks:
                self.machines[restored.subtask] = self._machine(restored)
        except CutlineError as error:
            self._fail(str(error), is_permanent=isinstance(error, SnapshotCorrupt | RestoreRefused))
        else:
            self.links = {channel: deque() for machine in self.machines.values() for channel in machine.inputs}
            self._say(control.WorkerRestored(self.number, self.incarnation))

    def _machine(self, restored: control.RestoredSubtask) -> SubtaskMachine:
        state = None if restored.state is None else self._store.read_part(restored.state)
        frames: dict[ChannelId, tuple[Frame, ...]] = {}
        for handle in restored.channel_parts:
            assert handle.channel is not None
            held = decode_frames(handle, self._store.read_part(handle))
            frames[handle.channel] = (*frames.get(handle.channel, ()), *held)
        channels = RestoredChannels(dict(restored.processed), frames, dict(restored.sent))
        incarnation = self.incarnation
        chance = Random(f"{self._cluster.seed} {incarnation} {restored.subtask}")
        around = Surroundings(RUN, incarnation, CODEC, _LIMITS, lambda _: None, lambda _: _LOGGER, lambda _: chance)
        parts = assemble(restored.subtask, self._cluster.program.built, around, channels)
        machine = self._cluster.mutation.machine(parts)
        machine.noted = lambda m, snapshot_id: self._cluster.truth.cut(m, incarnation, snapshot_id)
        self._cluster.truth.watch(machine, incarnation, channels)
        machine.restore(state, self._cluster.now)
        return machine

    def _make_connections(self, choose: Choose) -> None:
        connect, self._connect = self._connect, None
        assert connect is not None
        if connect.incarnation != self.incarnation or not self.machines:
            return
        self.peers = self._cluster.peers(self, connect.addresses)
        self._say(control.WorkerConnected(self.number, self.incarnation))

    def _fail(self, reason: str, *, is_permanent: bool) -> None:
        self._drop()
        self._has_failed = True
        self._say(control.WorkerFailed(self.number, self.incarnation, reason, is_permanent))

    def _drop(self) -> None:
        """Drop all data and connections: peers notice."""
        for machine in self.machines.values():
            machine.close()
        self.machines, self.links, self.peers = {}, {}, None
        self._deploy = self._connect = None
        self.is_started = self._said_idle = self._has_failed = False

    def is_connected(self, incarnation: int) -> bool:
        """Whether a peer of `incarnation` still has its connection to this worker."""
        return self.is_alive and self.incarnation == incarnation and self.peers is not None

    def leave(self) -> None:
        """The process ends; whatever it had not stored or said is gone."""
        self.is_alive = False
        self.is_started = False
        if self.connection is not None:
            self.connection.is_open = False
