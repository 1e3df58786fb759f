"""One simulated worker process: the shell of a real worker machine and its real subtasks.

Steps: register, receive a control message, restore, connect to peers, store a part, notice that a peer is gone.
Decides nothing; checks that the coordinator keeps the sequence of a rollback.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Protocol, assert_never

from cutline.snapshot.assembly import collector_of, ledgers_of
from cutline.snapshot.coordinator import control
from cutline.snapshot.coordinator.disk_placement import placed_on
from cutline.snapshot.coordinator.machine import CoordinatorMachine, Outcome
from cutline.snapshot.errors import CutlineError, NodeError
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.keyed.tier import Tier
from cutline.snapshot.stored.part import Handle, Part
from cutline.snapshot.subtask.events import SnapshotRequested
from cutline.snapshot.subtask.machine import SubtaskMachine
from cutline.snapshot.subtask.recorder import Phase
from cutline.snapshot.testing.checking.verdict import CheckFailed
from cutline.snapshot.testing.cold_memory import NotifyingWriter
from cutline.snapshot.testing.simulation.connection import Connection
from cutline.snapshot.testing.simulation.disks import SimulatedDisk
from cutline.snapshot.testing.simulation.host import CROSSING, Host, HostOwner, Item, make_host
from cutline.snapshot.testing.simulation.scheduler import Group
from cutline.snapshot.testing.simulation.totals import StoreThreads
from cutline.snapshot.testing.simulation.uploads import Uploads
from cutline.snapshot.testing.simulation.world import World
from cutline.snapshot.testing.steps import (
    Link,
    NoticeLoss,
    Receive,
    Register,
    Restore,
    Store,
    TimeOut,
    WorkRows,
)
from cutline.snapshot.trace_events import Kind
from cutline.snapshot.worker import events
from cutline.snapshot.worker.events import Stage
from cutline.snapshot.worker.ledger import AnyTask, CollectorTask, Lane
from cutline.snapshot.worker.machine import WorkerSettings
from cutline.snapshot.worker.performer import Performer
from cutline.snapshot.worker.restored_parts import RestoredParts, read_parts
from cutline.snapshot.worker.storage_tasks import StorageWork
from cutline.snapshot.worker.upload_batcher import PendingUpload

#: No wait for time, because a schedule could choose the same delay: each report and each upload is a step of its own.
SETTINGS = WorkerSettings(idle_seconds=0.0, failure_report_seconds=0.0, batch_bytes_max=0)

#: Stage in which each message of a rollback is due (PROTOCOL 6.1, rollback).
_DUE = {control.Connect: Stage.RESTORED, control.StartProcessing: Stage.CONNECTED}


class Employer(Protocol):
    """The driver whose stage a worker belongs to: `snapshot.testing.simulation.driver.Driver`."""

    outcome: Outcome | None

    @property
    def coordinator(self) -> CoordinatorMachine | None:
        """Return the machine of the present coordinator, or None while there is none."""

    def connect(self, worker: Worker) -> Connection:
        """Connect a worker to the present coordinator."""


class Neighbours(Protocol):
    """The processes of a run: `snapshot.testing.simulation.simulated_cluster.SimulatedCluster`."""

    def peers(self, addresses: Sequence[bytes]) -> dict[int, Worker]:
        """Return the processes at addresses, by number, also where they are gone."""

    def peers_changed(self) -> None:
        """Note that a worker has connected, or dropped its connections."""

    def worker_left(self, worker: Worker) -> None:
        """Note that a process has ended."""


class ProcessSteps:
    """The steps of a worker process that no rollback ends, and the coordinator's messages that it has not received."""

    def __init__(
        self,
        group: Group,
        process: int,
        register: Callable[[], None],
        receive: Callable[[control.CoordinatorMessage], None],
        notice_loss: Callable[[], None],
    ) -> None:
        self.group = group
        self._messages: deque[control.CoordinatorMessage] = deque()
        self._on_receive = receive
        self.register = group.enabled_step(Register(process), register)
        self._receive = group.enabled_step(Receive(process), self._receive_next)
        self.notice_loss = group.enabled_step(NoticeLoss(process), notice_loss)

    def put(self, message: control.CoordinatorMessage) -> None:
        """Queue a message of the coordinator."""
        self._messages.append(message)
        self._receive.set(True)

    def receive_all(self) -> None:
        """Receive all messages that wait, unless the process is frozen."""
        while self._receive.index >= 0:
            self._receive.act()

    def drop_messages(self) -> None:
        """Drop the messages that are on their way."""
        self._messages.clear()
        self._receive.set(False)

    def _receive_next(self) -> None:
        message = self._messages.popleft()
        self._receive.set(bool(self._messages))
        self._on_receive(message)


class IncarnationData:
    """What a rollback ends: the subtasks of one incarnation, their peers, and their steps."""

    def __init__(self, group: Group) -> None:
        #: steps on data
        self.group = group
        self.hosts: dict[Subtask, Host] = {}
        #: peers by number; None before `Connect`
        self.peers: dict[int, Worker] | None = None
        #: number of hosts that are not idle
        self.busy = 0


class Worker(HostOwner):
    """A worker process.

    Parameters
    ----------
    world : World
    neighbours : Neighbours
    driver : Employer
        The driver to whose coordinator the worker connects.
    launch : str
        Launch of the worker's stage.
    number : int
        Place of the worker in its stage.
    process : int
        Number by which peers find exactly this process.
    """

    def __init__(
        self, world: World, neighbours: Neighbours, driver: Employer, launch: str, number: int, process: int
    ) -> None:
        self.driver = driver
        self.launch = launch
        self.number = number
        self.process = process
        self.is_alive = True
        self.has_quit = False
        self.connection: Connection | None = None
        self.machine = world.mutation.worker_machine(number, self._make_subtasks, ledgers_of, collector_of, SETTINGS)
        group = world.scheduler.group()
        self.data = IncarnationData(world.scheduler.group())
        totals = StoreThreads(world.run, world.compiled, world.stores, world.mutation.store_connection, world.see)
        self.uploads = Uploads(world.scheduler, totals)
        self._world = world
        self._neighbours = neighbours
        self._store = world.store.open(process)
        self.steps = ProcessSteps(group, process, self._on_register, self._on_receive, self._on_loss)
        #: {deadline: virtual time at which it passes} of the deadlines that the scheduler knows
        self._scheduled: dict[events.Deadline, float] = {}
        self.find_coordinator()

    @property
    def incarnation(self) -> int:
        """The incarnation of the last deployment."""
        return self.machine.incarnation

    @property
    def _disk(self) -> SimulatedDisk:
        """The disk that the worker sees."""
        return self._world.disk_of(self.number, self.launch)

    @property
    def is_started(self) -> bool:
        """Whether the subtasks may act."""
        return self.is_alive and self.machine.stage is Stage.RUNNING

    # ---------------------------------------------------------------- the coordinator's connection

    def find_coordinator(self) -> None:
        """Enable registration if there is a coordinator and no open connection."""
        is_open = self.connection is not None and self.connection.is_open
        self.steps.register.set(not is_open and self.is_alive and self.driver.coordinator is not None)

    def put(self, message: control.CoordinatorMessage) -> None:
        """Queue a message of the coordinator."""
        self.steps.put(message)

    def disconnect(self) -> None:
        """Drop the connection, and the messages that are on their way."""
        self.steps.drop_messages()
        self.find_coordinator()

    def send(self, message: control.WorkerMessage) -> None:
        """Send a message to the coordinator."""
        if self.connection is not None and self.connection.is_open:
            self.connection.send(message)

    def _on_register(self) -> None:
        self.connection = self.driver.connect(self)
        self.steps.register.set(False)
        self.step(events.CoordinatorConnected())
        self._note_turn()

    def _on_receive(self, message: control.CoordinatorMessage) -> None:
        self._check_due(message)
        if isinstance(message, control.EndComponent) and message.incarnation == self.incarnation and self.is_started:
            self._world.see("a cycle ended")
        if isinstance(message, control.Finish):
            coordinator = self.driver.coordinator
            assert coordinator is not None
            self._world.check_settled([host.machine for host in self.data.hosts.values()], coordinator)
        self.has_quit |= isinstance(message, control.Quit)
        self.step(events.CoordinatorMessageReceived(message))
        self._refresh(list(self.data.hosts.values()))

    def _check_due(self, message: control.CoordinatorMessage) -> None:
        """Check PROTOCOL 6.1: ascending incarnations, and in each the messages of a rollback in their sequence."""
        stage = self.machine.stage
        match message:
            case control.Deploy(incarnation):
                is_next = incarnation == self.incarnation and stage in (Stage.RESTORING, Stage.FAILED)
                if incarnation <= self.incarnation and not is_next:
                    raise CheckFailed("fencing", f"{incarnation} is deployed after {self.incarnation}")
            case control.Connect(incarnation) | control.StartProcessing(incarnation):
                if incarnation == self.incarnation and stage not in (_DUE[type(message)], Stage.FAILED):
                    raise CheckFailed("rollback", f"{message} came to worker {self.number} while it was {stage.value}")
            case _:
                pass

    # ---------------------------------------------------------------- the machine

    def step(self, event: events.Event) -> None:
        """Pass an event to the machine, and perform its effects."""
        try:
            effects = self.machine.step(event, self._world.now)
            if self._world.validation.is_now():
                self.machine.validate()
        except CheckFailed:
            raise
        except AssertionError as error:  # of a machine, because an assertion of a node would be a NodeError
            raise CheckFailed("invariant", f"worker {self.number}: {error!r}") from error
        for effect in effects:
            self._perform(effect)
        if self.machine.deadlines:
            self._schedule()

    def _perform(self, effect: events.Effect) -> None:
        match effect:
            case events.SendToCoordinator(messages):
                for message in messages:
                    if isinstance(message, control.RecordAwaits):
                        self._world.see("a record waited")
                    if isinstance(message, control.WorkerFailed):
                        self._world.history_log.note(Kind.FAILED, self.incarnation, text=message.reason)
                    self.send(message)
            case events.Register(incarnation, is_replaying, hosts):
                address = str(self.process).encode()
                at = (self.number, self.launch, incarnation, address, self.process)
                self.send(control.WorkerRegistered(*at, is_replaying, (self._disk.name,), hosts))
            case events.DisconnectCoordinator():
                if self.connection is not None:
                    self.connection.close()
            case events.ReadParts(deploy):
                self.data.group.once(Restore(self.process), lambda: self._restore(deploy))
            case events.DialPeers(incarnation, addresses):
                self.data.group.once(Link(self.process), lambda: self._link(incarnation, addresses))
            case events.ReadPeers():
                for host in self.data.hosts.values():
                    host.open_wires()
            case events.StoreParts(incarnation, uploads):
                # Uploads go on over a rollback, as threads would: their acknowledgements are then stale.
                (upload,) = uploads  # because none waits for another: see `SETTINGS`
                step = Store(upload.taken.subtask, upload.taken.snapshot_id)
                self.uploads.once(step, lambda: self._upload(upload, incarnation))
            case events.Perform(incarnation, task) if task.lane is Lane.IN_ORDER:
                self.uploads.totals.work(task, incarnation, self.uploads, self._performed)
            case events.Perform(incarnation, task):
                self.uploads.work(task, incarnation, self._perform_task)
            case events.DropConnections():
                self._drop()
            case events.CloseSubtasks(subtasks):
                for machine in subtasks:
                    if (failure := machine.close()) is not None:
                        self._world.history_log.note(Kind.FAILED, self.incarnation, text=failure)
            case events.Leave():
                self.leave()
            case events.RemoveVersions(kept):
                self._disk.prune(kept)
            case events.OpenDataPlane(worker_of_place=hosts):
                if any(place != host for place, host in enumerate(hosts)):
                    self._world.see("a subtask is where its disk is")
            case events.AdmitPeers() | events.FlushLinks() | events.ReportProgress() | events.Log():
                pass  # wires need no setup, markers are steps of their own, and nothing is displayed
            case _:
                assert_never(effect)

    def _schedule(self) -> None:
        """Schedule each new deadline: an alignment's deadline enables a step, and all others pass by time alone."""
        for deadline, at in self.machine.deadlines.items():
            if self._scheduled.get(deadline) != at:
                self._scheduled[deadline] = at
                self._world.scheduler.at(at, self._deadline(deadline, at))

    def _deadline(self, deadline: events.Deadline, at: float) -> Callable[[], None]:
        group = self.data.group

        def ring() -> None:
            if self._scheduled.get(deadline) == at:
                del self._scheduled[deadline]  # because it may be set to the same time again
            if self.machine.deadlines.get(deadline) != at or not self.is_alive:
                return
            if isinstance(deadline, events.AlignmentDeadline):
                group.once(TimeOut(deadline.subtask, deadline.snapshot_id), lambda: self._time_out(deadline))
            else:
                self.step(events.DeadlinePassed(deadline))
                self._refresh(list(self.data.hosts.values()))

        return ring

    def _time_out(self, deadline: events.AlignmentDeadline) -> None:
        machine = self.data.hosts[deadline.subtask].machine
        if machine.snapshotter.recorder.phase(deadline.snapshot_id) is Phase.ALIGNING:
            self._world.see("an alignment timed out")
        self.step(events.DeadlinePassed(deadline))
        self._refresh([self.data.hosts[each] for each in [deadline.subtask] if each in self.data.hosts])

    # ---------------------------------------------------------------- subtasks

    def act(self, event: Callable[[], object], host: Host) -> None:
        """Let an event happen to a host's machine: see `HostOwner`."""
        try:
            event()
            if self._world.validation.is_now():
                host.machine.validate()
        except CheckFailed:
            raise
        except AssertionError as error:
            raise CheckFailed("invariant", f"{host.subtask}: {error!r}") from error
        except CutlineError as error:
            self.step(events.DataFailed(error))
        self._refresh([host])

    def initiate(self, subtask: Subtask, snapshot_id: int, running: tuple[int, ...], min_snapshot_id: int) -> None:
        """Start a snapshot at a subtask."""
        machine = self.data.hosts[subtask].machine
        event = SnapshotRequested(snapshot_id, running, min_snapshot_id)
        self.act(lambda: machine.step(event, self._world.now), self.data.hosts[subtask])

    def inject(self, subtask: Subtask, message: object) -> None:
        """Send a message into a subtask from outside the graph."""
        host = self.data.hosts[subtask]

        def happen() -> None:
            host.subtask_history.note(Kind.INJECT, payload=self._world.pack(message))
            host.machine.inject(message, self._world.now)

        self.act(happen, host)

    def fail(self, reason: str) -> None:
        """Let the user's code raise."""
        self.step(events.DataFailed(NodeError(reason)))

    def _refresh(self, hosts: list[Host]) -> None:
        """Update the steps that are possible for these hosts after an event, and keep their output."""
        if self.is_started:
            for host in hosts:
                was_idle = host.is_idle
                host.refresh()
                self.data.busy += was_idle - host.is_idle
        for host in hosts:
            self._keep_output(host)
        self._note_turn()

    def _note_turn(self) -> None:
        if self.is_started:
            self.step(events.TurnEnded(not self.data.busy))

    def _keep_output(self, host: Host) -> None:
        if host.list_sink is not None and host.list_sink.visible:
            self._world.committed(host.subtask.node, host.list_sink.take_visible())

    # ---------------------------------------------------------------- channels

    def put_on_wire(self, channel: ChannelId, item: Item) -> None:
        """Send an item to the channel's receiver: see `HostOwner`."""
        assert self.data.peers is not None
        peer = self.data.peers[placed_on(self.machine.worker_of_place, self._world.placement)[channel.target]]
        if peer.is_connected(self.incarnation):
            peer.data.hosts[channel.target].receive(channel, item)
        else:
            self._world.refuse(self.incarnation, f"{channel}: the receiver is gone")

    def see(self, what: str) -> None:
        """Count a situation: see `HostOwner`."""
        self._world.see(what)

    @property
    def ids_cross(self) -> bool:
        """Whether snapshots were started whose ids cross: see `HostOwner`."""
        return CROSSING in self._world.history.seen

    def is_connected(self, incarnation: int) -> bool:
        """Return whether a peer of `incarnation` still has its connection to this worker."""
        return self.is_alive and self.incarnation == incarnation and self.data.peers is not None

    def check_peers(self) -> None:
        """Enable the step that notices a lost peer, if a peer is gone."""
        peers = (self.data.peers or {}).values()
        lost = any(not peer.is_connected(self.incarnation) for peer in peers)
        self.steps.notice_loss.set(self.is_started and lost)

    def _link(self, incarnation: int, addresses: tuple[bytes, ...]) -> None:
        self.data.peers = self._neighbours.peers(addresses)
        self.step(events.PeersConnected(incarnation))
        self._neighbours.peers_changed()

    def _on_loss(self) -> None:
        self.step(events.PeerLost(self.incarnation, "a peer is lost"))

    # ---------------------------------------------------------------- storage

    @property
    def has_pending_uploads(self) -> bool:
        """Whether captured parts are not stored yet."""
        return self.uploads.has_any

    def _restore(self, deploy: control.Deploy) -> None:
        try:
            parts = read_parts(deploy, self._store.read_part, self._world.compiled, self._world.codec)
        except (CutlineError, OSError) as error:
            self.step(events.PartsUnreadable(deploy.incarnation, error))
        else:
            self.uploads.totals.open(deploy, self.data.group, partial(self._opened, parts))

    def _opened(self, parts: RestoredParts, error: CutlineError | None) -> None:
        """Make the subtasks, because their stores are taken."""
        if error is not None:
            self.step(events.PartsUnreadable(parts.deploy.incarnation, error))
            return
        self.step(events.PartsRead(parts))
        self.data.busy = len(self.data.hosts)
        for host in self.data.hosts.values():
            self._keep_output(host)

    def _make_subtasks(self, parts: RestoredParts) -> Mapping[Subtask, SubtaskMachine]:
        incarnation = parts.deploy.incarnation
        for each in parts.deploy.subtasks:
            channels = parts.channels[each.subtask]
            tiers = {"tier_of": self._tier_of} if self._has_databases else {}
            at = (incarnation, self, self.data.group, self._world, tiers)
            self.data.hosts[each.subtask] = make_host(each, channels, *at)
        return {subtask: host.machine for subtask, host in self.data.hosts.items()}

    @property
    def _has_databases(self) -> bool:
        return self._world.compiled.topology.row.makes_versions

    def _tier_of(self, subtask: Subtask) -> Tier:
        def notify() -> None:
            self.data.group.once(WorkRows(subtask, "Write"), lambda: self._write(subtask, writer))

        writer = NotifyingWriter(notify)
        return self._disk.tier(subtask, writer)

    def _write(self, subtask: Subtask, writer: NotifyingWriter) -> None:
        """Do the oldest job of a subtask's database, as its thread would at any time."""
        writer.do_one()
        self.uploads.versions_made(self._perform_task)
        self._sweep(subtask)

    def _performer(self, incarnation: int) -> Performer:
        run, codec = self._world.run, self._world.codec
        work = StorageWork(run, incarnation, codec, self._put_rows, self._store.read_part, disk=self._disk.name)
        return Performer(self._store, work, lambda: self._world.now, OSError)

    def _upload(self, upload: PendingUpload, incarnation: int) -> None:
        self.step(self._performer(incarnation).upload([upload]))

    def _perform_task(self, task: AnyTask, incarnation: int) -> None:
        ended = self._performer(incarnation).step(task)
        if not isinstance(ended, events.Performed):
            self.uploads.work(ended, incarnation, self._perform_task)
        else:
            if isinstance(task, CollectorTask) and task.only_reads:
                self._world.note_record(task, is_taken=ended.result is not None)
            self._performed(ended)

    def _performed(self, ended: events.Performed) -> None:
        self.step(ended)
        self._sweep(ended.task.subtask)

    def _sweep(self, subtask: Subtask) -> None:
        if (host := self.data.hosts.get(subtask)) is not None:
            host.sweep()

    def _put_rows(self, parts: Sequence[Part], inline: bool) -> list[Handle]:
        """Store rows. A store that is about to fail stores nothing inline, so that the failure is met."""
        return self._store.put_rows(parts, inline=inline and self._store.backend.inline_bytes_max > 0)

    # ---------------------------------------------------------------- the end

    def _drop(self) -> None:
        """Drop all data and connections. Peers notice the loss."""
        for host in self.data.hosts.values():
            self._keep_output(host)
        self.data.group.end()
        self.data = IncarnationData(self._world.scheduler.group())
        self.steps.notice_loss.set(False)
        self._neighbours.peers_changed()

    def leave(self) -> None:
        """End the process. Everything that the process had not stored or sent is gone."""
        if not self.is_alive:
            return
        self.is_alive = False
        self.uploads.totals.note_crash(self.incarnation)
        for group in (self.steps.group, self.data.group, self.uploads):
            group.end()
        if self.connection is not None:
            self.connection.close()
        self._neighbours.worker_left(self)
