"""One simulated worker process: real machines, told and asked by the control protocol.

Its steps: register, hear the coordinator, restore, connect to peers, store a part, notice that a peer is gone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from snapshot.coordinator import control
from snapshot.coordinator.instalments import Arrival
from snapshot.errors import ChannelError, CutlineError, RestoreRefused, SnapshotCorrupt
from snapshot.ids import ChannelId, Subtask
from snapshot.stored.contribution import parts_of, record_of
from snapshot.stored.part import Handle
from snapshot.subtask.recorder import Phase
from snapshot.subtask.reports import (
    AlignmentStarted,
    PublicationHandled,
    Report,
    SnapshotAsked,
    SnapshotFailed,
    SnapshotTaken,
    SubtaskEnded,
)
from snapshot.testing.checking.verdict import CheckFailed
from snapshot.testing.simulation.host import Host, HostOwner, Item
from snapshot.testing.simulation.making import make_host
from snapshot.testing.steps import Hear, Link, NoticeLoss, Register, Restore, Store, TimeOut
from snapshot.trace import Kind

if TYPE_CHECKING:
    from snapshot.testing.simulation.connection import Connection
    from snapshot.testing.simulation.driver import Driver
    from snapshot.testing.simulation.world import World


class Worker(HostOwner):
    """One worker process.

    Parameters
    ----------
    world : World
    driver : Driver
        To whose coordinator it connects.
    launch : str
        Of its stage.
    number : int
        Its place in the stage.
    process : int
        By which peers find this process, and no other.
    """

    def __init__(self, world: World, driver: Driver, launch: str, number: int, process: int) -> None:
        self.driver = driver
        self.launch = launch
        self.number = number
        self.process = process
        self.is_alive = True
        self.has_quit = False
        self.connection: Connection | None = None
        self.incarnation = 0
        self.is_started = False
        self.hosts: dict[Subtask, Host] = {}
        #: of the present incarnation, by number; None before `Connect`
        self.peers: dict[int, Worker] | None = None
        self.group = world.agenda.group()
        #: ends with the incarnation
        self.data = world.agenda.group()
        self.uploads = world.agenda.group()
        self._world = world
        self._store = world.open_store(process)
        self._heard: deque[control.CoordinatorMessage] = deque()
        self._register = self.group.place(Register(process), self._on_register)
        self._hear = self.group.place(Hear(process), self._on_hear)
        self._notice_loss = self.group.place(NoticeLoss(process), lambda: self._fail("a peer is lost"))
        self._busy = 0
        self._said_idle = False
        #: whose commits the coordinator waits for
        self._last_snapshot: int | None = None
        #: since it was deployed; nothing runs here until it is deployed again
        self._has_failed = False
        self._arrival = Arrival()
        #: more instalments of the incarnation are to come
        self._is_arriving = False
        #: all subtasks that it was deployed with are here; there may be none
        self._is_restored = False
        self.look_for_coordinator()

    # ---------------------------------------------------------------- the coordinator's connection

    def look_for_coordinator(self) -> None:
        """Connect, if there is somebody to connect to."""
        is_open = self.connection is not None and self.connection.is_open
        self._register.set(not is_open and self.is_alive and self.driver.life is not None)

    def put(self, message: control.CoordinatorMessage) -> None:
        """The coordinator says something."""
        self._heard.append(message)
        self._hear.set(True)

    def hear_out(self) -> None:
        """Take all that the coordinator has said, unless the process is frozen."""
        while self._hear.index >= 0:
            self._hear.act()

    def hang_up(self) -> None:
        """The connection is gone, and what was on its way with it."""
        self._heard.clear()
        self._hear.set(False)
        self.look_for_coordinator()

    def say(self, message: control.WorkerMessage) -> None:
        """Tell the coordinator."""
        if self.connection is not None and self.connection.is_open:
            self.connection.say(message)

    def _on_register(self) -> None:
        self.connection = self.driver.connect(self)
        self._register.set(False)
        running = self.incarnation if self.is_started else 0
        address = str(self.process).encode()
        self.say(control.WorkerRegistered(self.number, self.launch, running, address, self.process))
        if self.is_started:
            self.say(control.WorkerIdle(self.number, self.incarnation, self._said_idle))

    def _on_hear(self) -> None:
        message = self._heard.popleft()
        self._hear.set(bool(self._heard))
        match message:
            case control.Welcome():
                # What was asked of an earlier life of the coordinator will not be answered.
                self._each(lambda host: host.machine.answer_request())
            case control.Deploy():
                self._take(message)
            case control.Connect():
                self._check_order(message.incarnation, is_ready=self._is_restored)
                self.data.once(Link(self.process), lambda: self._link(message))
            case control.StartProcessing(incarnation):
                self._check_order(incarnation, is_ready=self.peers is not None)
                self.is_started = True
                self._each(lambda host: host.start())
            case control.Finish():
                self._world.check_settled(self)
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
            raise CheckFailed("rollback", f"worker {self.number} was told to go on before it was ready")

    def _obey(self, message: Any) -> None:
        now = self._world.now
        match message:
            case control.TriggerSnapshot(_, snapshot_id, subtasks, running, floor):
                self._each(lambda host: host.machine.request(snapshot_id, running, floor), subtasks)
            case control.AnswerSnapshotRequest(_, subtask):
                self._each(lambda host: host.machine.answer_request(), [subtask])
            case control.SettleSnapshots(_, floor):
                self._each(lambda host: host.machine.raise_floor(floor))
            case control.AnnouncePublished(_, snapshot_id, floor, is_last):
                self._last_snapshot = snapshot_id if is_last else self._last_snapshot
                self._each(lambda host: host.machine.raise_floor(floor))
                self._each(lambda host: host.machine.published(snapshot_id, now))
            case control.EndComponent(_, nodes):
                self._world.see("a cycle ended")
                self._each(lambda host: host.machine.end_component(now), [s for s in self.hosts if s.node in nodes])

    # ---------------------------------------------------------------- machines

    def act(self, event: Callable[[], object], host: Host) -> None:
        """See `HostOwner`."""
        self._attempt(event, [host])

    def initiate(self, subtask: Subtask, snapshot_id: int, running: tuple[int, ...], floor: int) -> None:
        """A subtask starts a snapshot, told by nobody."""
        self._each(lambda host: host.machine.request(snapshot_id, running, floor), [subtask])

    def inject(self, subtask: Subtask, message: object) -> None:
        """A message comes from outside."""
        host = self.hosts[subtask]

        def happen() -> None:
            host.life.note(Kind.INJECT, payload=self._world.pack(message))
            host.machine.inject(message, self._world.now)

        self._attempt(happen, [host])

    def _each(self, event: Callable[[Host], object], subtasks: Iterable[Subtask] | None = None) -> None:
        """Let an event happen to all machines, or to those of `subtasks`."""
        hosts = [self.hosts[subtask] for subtask in (self.hosts if subtasks is None else subtasks)]

        def happen() -> None:
            for host in hosts:
                event(host)

        self._attempt(happen, hosts)

    def _attempt(self, event: Callable[[], object], hosts: list[Host]) -> None:
        incarnation = self.incarnation
        try:
            event()
            if self._world.is_time_to_validate():
                for host in hosts:
                    host.machine.validate()
        except CheckFailed:
            raise
        except AssertionError as error:  # of the machine's own; a node's would be a NodeError
            raise CheckFailed("invariant", f"{', '.join(str(host.subtask) for host in hosts)}: {error!r}") from error
        except CutlineError as error:
            self._fail(str(error))
            return
        if incarnation == self.incarnation:
            self._after(hosts)

    def _after(self, hosts: list[Host]) -> None:
        """Pass on what the machines have to say; say so when there is nothing left to do."""
        for host in hosts:
            was_idle = host.is_idle
            if self.is_started:
                host.refresh()
                self._busy += was_idle - host.is_idle
            for report in host.take_reports():
                self._report(host, report)
            if host.list_sink is not None and host.list_sink.visible:
                self._world.committed(host, host.list_sink.take_visible())
        is_idle = self.is_started and not self._busy
        if is_idle is not self._said_idle:
            self._said_idle = is_idle
            self.say(control.WorkerIdle(self.number, self.incarnation, is_idle))

    def _report(self, host: Host, report: Report) -> None:
        match report:
            case SnapshotTaken(snapshot_id, subtask):
                incarnation = self.incarnation
                # Uploads go on over a rollback, as threads would: what comes of them is then stale.
                self.uploads.once(Store(subtask, snapshot_id), lambda: self._upload(report, incarnation))
            case SnapshotFailed(snapshot_id, subtask, reason):
                self.say(control.SnapshotDeclined(self.incarnation, snapshot_id, subtask, reason))
            case SnapshotAsked(subtask):
                self.say(control.SnapshotAskedFor(self.incarnation, subtask))
            case PublicationHandled(snapshot_id, subtask):
                host.life.note(Kind.COMMIT, snapshot_id=snapshot_id)
                if snapshot_id == self._last_snapshot:
                    self.say(control.PublicationDone(self.incarnation, snapshot_id, (subtask,)))
            case AlignmentStarted(snapshot_id, _, timeout):
                place = self.data.place(TimeOut(host.subtask, snapshot_id), lambda: self._time_out(host, snapshot_id))
                host.alignments[snapshot_id] = place
                self._world.agenda.at(self._world.now + timeout, lambda: place.set(True))
            case SubtaskEnded():
                pass  # for people

    def _time_out(self, host: Host, snapshot_id: int) -> None:
        host.alignments.pop(snapshot_id).set(False)
        if host.machine.cutter.recorder.phase(snapshot_id) is Phase.ALIGNING:
            self._world.see("an alignment timed out")
        self._attempt(lambda: host.machine.alignment_timed_out(snapshot_id), [host])

    # ---------------------------------------------------------------- channels

    def put_on_wire(self, channel: ChannelId, item: Item) -> None:
        """See `HostOwner`."""
        assert self.peers is not None
        peer = self.peers[self._world.placement[channel.target]]
        if peer.is_connected(self.incarnation):
            peer.hosts[channel.target].receive(channel, item)
        else:
            self._world.refuse(self.incarnation, f"{channel}: the receiver is gone")

    def see(self, what: str) -> None:
        """See `HostOwner`."""
        self._world.see(what)

    def is_connected(self, incarnation: int) -> bool:
        """Whether a peer of `incarnation` still has its connection to this worker."""
        return self.is_alive and self.incarnation == incarnation and self.peers is not None

    def look_at_peers(self) -> None:
        """One of them may be gone."""
        peers = (self.peers or {}).values()
        lost = any(not peer.is_connected(self.incarnation) for peer in peers)
        self._notice_loss.set(self.is_started and lost)

    # ---------------------------------------------------------------- storage

    @property
    def has_pending_uploads(self) -> bool:
        """Parts that were captured are not stored."""
        return self.uploads.has_any

    def _upload(self, taken: SnapshotTaken, incarnation: int) -> None:
        try:
            handles = self._store.put_parts(parts_of(taken, self._world.run, incarnation))
        except OSError as error:
            reason = f"{taken.subtask} could not be stored: {error}"
            self.say(control.SnapshotDeclined(incarnation, taken.snapshot_id, taken.subtask, reason))
        else:
            self.acknowledge(taken, incarnation, handles)

    def acknowledge(self, taken: SnapshotTaken, incarnation: int, handles: list[Handle]) -> None:
        """All parts are durable."""
        record = record_of(taken, incarnation, handles)
        self.say(control.SnapshotAcknowledged(incarnation, taken.snapshot_id, record, taken.spent))

    # ---------------------------------------------------------------- life

    def _take(self, instalment: control.Deploy) -> None:
        """Ascending incarnations, each from its first instalment to its last."""
        incarnation = instalment.incarnation
        is_next = incarnation == self.incarnation and self._is_arriving
        if incarnation <= self.incarnation and not is_next:
            raise CheckFailed("fencing", f"{incarnation} is deployed after {self.incarnation}")
        if not is_next:
            self.drop()
            self.incarnation = incarnation
        self._is_arriving = instalment.has_more
        whole = self._arrival.take(instalment)
        if whole is None:
            self.say(control.DeployTaken(self.number, incarnation))
        elif not self._has_failed:
            self.data.once(Restore(self.process), lambda: self._restore(whole))

    def _restore(self, deploy: control.Deploy) -> None:
        try:
            for restored in deploy.subtasks:
                self.hosts[restored.subtask] = make_host(restored, self.incarnation, self, self._world, self._store)
        except ChannelError as error:
            raise CheckFailed("sequence", str(error)) from error
        except (CutlineError, OSError) as error:
            self._fail(str(error), is_permanent=isinstance(error, SnapshotCorrupt | RestoreRefused))
        else:
            self._is_restored = True
            self._busy = len(self.hosts)
            self.say(control.WorkerRestored(self.number, self.incarnation))

    def _link(self, connect: control.Connect) -> None:
        if connect.incarnation != self.incarnation or not self._is_restored:
            return
        self.peers = self._world.peers(connect.addresses)
        self.say(control.WorkerConnected(self.number, self.incarnation))
        self._world.peers_changed()

    def fail(self, reason: str) -> None:
        """Its user's code raised."""
        self._fail(reason)

    def _fail(self, reason: str, *, is_permanent: bool = False) -> None:
        self._world.witness.note(Kind.FAILED, self.incarnation, text=reason)
        self.drop()
        self._has_failed = True
        self.say(control.WorkerFailed(self.number, self.incarnation, reason, is_permanent))

    def drop(self) -> None:
        """Drop all data and connections: peers notice."""
        for host in self.hosts.values():
            host.machine.close()
        self.data.end()
        self.data = self._world.agenda.group()
        self.hosts, self.peers = {}, None
        self.is_started = self._said_idle = self._has_failed = self._is_restored = False
        self._busy = 0
        self._notice_loss.set(False)
        self._world.peers_changed()

    def leave(self) -> None:
        """The process ends; whatever it had not stored or said is gone."""
        self.is_alive = self.is_started = False
        for group in (self.group, self.data, self.uploads):
            group.end()
        if self.connection is not None:
            self.connection.close()
        self._world.worker_left(self)
