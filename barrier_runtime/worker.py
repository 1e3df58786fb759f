"""The worker's loop: one thread that polls sockets, obeys the coordinator, gives turns, and flushes.

::

    WAITING ──Deploy──> RESTORING ──state in place──> RESTORED ──Connect──> CONNECTING ──Start──> RUNNING
       ^                                                                                            │
       └── FAILED: user code raised, or a peer was lost; the next Deploy begins anew ───────────────┘

Runs in the process that the barrier task forked (`barrier_runtime.task`). Background threads only wait for
storage, beat, and look for a lost coordinator.
"""

from __future__ import annotations

import pickle
import selectors
import socket
import time
from collections import deque
from enum import Enum
from typing import Any, assert_never

from barrier_runtime.control_link import COORDINATOR, ControlLink
from barrier_runtime.data_plane import DataPlane
from barrier_runtime.deployment import make_machines
from barrier_runtime.launch import ExitCode, WorkerLaunch
from barrier_runtime.logs import worker_logger
from barrier_runtime.peers import Peers
from barrier_runtime.progress import PROGRESS_INTERVAL_SECONDS
from barrier_runtime.uploads import RestoredParts, Storage
from channels.connection import Connection
from channels.control import ControlConnection
from channels.heartbeat import Heartbeats
from channels.identity import Identity
from snapshot.built import Built
from snapshot.control import (
    AnnouncePublished,
    AnswerSnapshotRequest,
    Connect,
    CoordinatorMessage,
    Deploy,
    EndComponent,
    Finish,
    PublicationDone,
    Quit,
    SettleSnapshots,
    SnapshotAskedFor,
    SnapshotDeclined,
    StartProcessing,
    TriggerSnapshot,
    Welcome,
    WorkerConnected,
    WorkerFailed,
    WorkerIdle,
    WorkerRestored,
)
from snapshot.errors import ChannelError, CutlineError, RestoreRefused, SnapshotCorrupt
from snapshot.ids import Subtask
from snapshot.reports import (
    AlignmentStarted,
    PublicationHandled,
    Report,
    SnapshotAsked,
    SnapshotFailed,
    SnapshotTaken,
    SubtaskEnded,
)
from state_backends.store import RunStore

#: Seconds that a node which asked for a snapshot waits for the answer (PROTOCOL 3.1); a coordinator that is
#: there answers in milliseconds, and one that is lost is back in about a second.
REQUEST_SECONDS_MAX = 5.0

#: Quiet for this long counts as idle: a pause between two messages of a busy peer is shorter.
IDLE_SECONDS = 0.02

#: Longest sleep of the loop, so that deadlines of handshakes and of the coordinator's absence are looked at.
SLEEP_SECONDS_MAX = 1.0


class Stage(Enum):
    """Where a worker stands; the diagram is the module's."""

    WAITING = "waiting"
    RESTORING = "restoring"
    RESTORED = "restored"
    CONNECTING = "connecting"
    RUNNING = "running"
    FAILED = "failed"


class Worker:
    """One worker process.

    Parameters
    ----------
    launch : WorkerLaunch
    number : int
        Of the barrier task that it belongs to.
    """

    def __init__(self, launch: WorkerLaunch, number: int) -> None:
        self.launch = launch
        self.number = number
        self.stage = Stage.WAITING
        self.incarnation = 0
        self.exit_code: ExitCode | None = None
        self._built: Built = pickle.loads(launch.built)  # noqa: S301  # came with the code, from the driver
        self._placement = self._built.topology.place(launch.worker_count)
        self._plane: DataPlane | None = None
        self._claim = 0
        #: since when nothing happens here; None: something does
        self._idle_since: float | None = None
        self._said_idle = False
        self._next_progress = 0.0
        #: {(snapshot_id, subtask): when its alignment has taken long enough}
        self._alignments: dict[tuple[int, Subtask], float] = {}
        #: {subtask: when it has waited long enough for the answer to its request}
        self._requests: dict[Subtask, float] = {}
        self._logger = worker_logger(launch, number)
        self._selector = selectors.DefaultSelector()
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._selector.register(self._wake_in, selectors.EVENT_READ, self._on_woken)
        #: peers whose heartbeats stopped, said by the heartbeat thread
        self._silent: deque[tuple[Identity, str]] = deque()
        self._heartbeats = Heartbeats(self._on_silence)
        self._storage = Storage(RunStore(pickle.loads(launch.backend), launch.run), self._wake)  # noqa: S301  # likewise
        self._control = ControlLink(launch, number, self._heartbeats, self._wake)
        self._peers: Peers | None = None

    # ---------------------------------------------------------------- the loop

    def run(self) -> ExitCode:
        """Work until the coordinator says that it is over.

        Raises
        ------
        ChannelError
            if there is no coordinator for too long.
        """
        while self.exit_code is None:
            self._sleep_until_something()
            handled = self._turn() if self.stage is Stage.RUNNING else 0
            self._report_idleness(handled)
            self._control.pump()
            self._watch_writable()
        self._leave()
        return self.exit_code

    def _sleep_until_something(self) -> None:
        for key, _ in self._selector.select(self._sleep_seconds()):
            key.data()
            if self.exit_code is not None:
                return
        if self._peers is not None and self._peers.listener.pending_count:
            self._on_peer()

    def _sleep_seconds(self) -> float:
        if self.stage is not Stage.RUNNING or self._plane is None:
            return SLEEP_SECONDS_MAX
        if self._plane.has_work:
            return 0.0
        now = time.time()
        wake = self._plane.next_wake()
        until = [SLEEP_SECONDS_MAX, self._next_progress - now]
        until += [at - now for at in (*self._alignments.values(), *self._requests.values())]
        if wake is not None:
            until.append(wake - now)
        if not self._said_idle and self._plane.is_idle:
            until.append(IDLE_SECONDS if self._idle_since is None else self._idle_since + IDLE_SECONDS - now)
        return max(0.0, min(until))

    def _turn(self) -> int:
        assert self._plane is not None
        now = time.time()
        handled = 0
        try:
            handled = self._plane.turn(now)
            self._look_at_deadlines(now)
        except CutlineError as error:
            self._fail(error)
            return handled
        self._pass_on_reports()
        if now >= self._next_progress:
            self._next_progress = now + PROGRESS_INTERVAL_SECONDS
            self._control.send(self._plane.progress())
        return handled

    def _watch_writable(self) -> None:
        """Wake up when a socket takes more, exactly while something waits for it."""
        for key in list(self._selector.get_map().values()):
            if isinstance(key.fileobj, Connection | ControlConnection):
                wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if key.fileobj.wants_write else 0)
                if key.events != wanted:
                    self._selector.modify(key.fileobj, wanted, key.data)

    def _report_idleness(self, handled: int) -> None:
        """Say when this worker fell idle, after a while, and when it woke up again if it had said so."""
        if self.stage is not Stage.RUNNING or self._plane is None:
            return
        now = time.time()
        if handled or not self._plane.is_idle:
            if self._said_idle:
                self._control.send(WorkerIdle(self.number, self.incarnation, False))
            self._forget_idleness()
        elif self._idle_since is None:
            self._idle_since = now
        elif not self._said_idle and now >= self._idle_since + IDLE_SECONDS:
            self._said_idle = True
            self._control.send(WorkerIdle(self.number, self.incarnation, True))

    def _forget_idleness(self) -> None:
        self._idle_since, self._said_idle = None, False

    def _look_at_deadlines(self, now: float) -> None:
        assert self._plane is not None
        for (snapshot_id, subtask), at in list(self._alignments.items()):
            if now >= at:
                del self._alignments[snapshot_id, subtask]
                self._plane.machines[subtask].alignment_timed_out(snapshot_id)
        for subtask, at in list(self._requests.items()):
            if now >= at:
                del self._requests[subtask]
                self._logger.warning("%s asked for a snapshot and got no answer; it goes on without", subtask)
                self._plane.machines[subtask].answer_request()

    def _leave(self) -> None:
        self._drop_plane()
        self._control.close()
        self._heartbeats.close()
        self._storage.close()

    # ---------------------------------------------------------------- what wakes it

    def _wake(self) -> None:
        """Have the loop look around; called on any thread."""
        try:
            self._wake_out.send(b"\0")
        except OSError:
            assert self.exit_code is not None  # the loop has ended: nobody is left to be woken

    def _on_woken(self) -> None:
        self._wake_in.recv(4096)
        connection = self._control.take_connection()
        if connection is not None:
            self._on_coordinator(connection)
        for done in self._storage.take():
            if isinstance(done, RestoredParts):
                self._on_parts(done)
            else:
                self._control.send(done)
        while self._silent:
            self._on_lost_peer(*self._silent.popleft())

    def _on_silence(self, peer: Identity, reason: str) -> None:
        """Called on the heartbeat thread."""
        self._silent.append((peer, reason))
        self._wake()

    def _on_lost_peer(self, peer: Identity, reason: str) -> None:
        if peer.name == COORDINATOR:
            self._lose_coordinator(reason)
        elif peer.incarnation == self.incarnation:
            self._fail(ChannelError(f"{peer.name}: {reason}"))

    def _on_coordinator(self, connection: ControlConnection) -> None:
        if self._peers is None:
            self._peers = Peers(self.launch, self.number, connection)
            self._selector.register(self._peers.listener, selectors.EVENT_READ, self._on_peer)
        self._selector.register(connection, selectors.EVENT_READ, self._on_control)
        held = self.incarnation if self.stage is Stage.RUNNING else 0
        self._control.send(self._peers.registration(held))
        self._forget_idleness()

    def _on_control(self) -> None:
        connection = self._control.connection
        for message in self._control.receive():
            self._obey(message)
        if self._control.connection is not connection and connection is not None:
            self._forget_lost_coordinator()

    def _lose_coordinator(self, reason: str) -> None:
        self._control.lose(reason)
        self._forget_lost_coordinator()

    def _forget_lost_coordinator(self) -> None:
        for key in list(self._selector.get_map().values()):
            if key.data == self._on_control:
                self._selector.unregister(key.fileobj)

    def _on_peer(self) -> None:
        """Somebody connects, or a handshake goes on."""
        assert self._peers is not None
        for peer, admitted in self._peers.accept(self._heartbeats):
            self._add_connection(peer, admitted.sock, admitted.peer)
        self._say_if_connected()

    def _on_data(self, connection: Connection) -> None:
        assert self._plane is not None
        try:
            self._plane.receive(connection)
        except CutlineError as error:
            self._fail(error)

    # ---------------------------------------------------------------- what the coordinator says

    def _obey(self, message: CoordinatorMessage) -> None:
        match message:
            case Welcome(claim, _):
                if claim < self._claim:
                    self._lose_coordinator(f"it has claim {claim}, but {self._claim} is known")
                self._claim = max(self._claim, claim)
            case Deploy():
                self._deploy(message)
            case Finish(reason):
                self._logger.info("leaving: %s", reason)
                self.exit_code = ExitCode.FINISHED
            case Quit(reason):
                self._logger.info("leaving, so that the stage can be submitted again: %s", reason)
                self.exit_code = ExitCode.QUIT
            case _ if message.incarnation != self.incarnation or self._plane is None or self.stage is Stage.FAILED:
                self._logger.debug("not for this incarnation: %s", message)
            case Connect(_, addresses):
                self._connect(addresses)
            case StartProcessing():
                self._guard(self._start)
            case TriggerSnapshot():
                self._guard(lambda: self._trigger(message))
            case AnswerSnapshotRequest(_, subtask):
                self._requests.pop(subtask, None)
                self._plane.machines[subtask].answer_request()
            case SettleSnapshots(_, floor):
                self._guard(lambda: self._settle(floor))
            case AnnouncePublished(_, snapshot_id, floor):
                self._guard(lambda: self._announce(snapshot_id, floor))
            case EndComponent(_, nodes):
                self._guard(lambda: self._end_component(nodes))
            case _:
                assert_never(message)

    def _guard(self, action: Any) -> None:
        """Do what may call user code or lose a connection."""
        try:
            action()
        except CutlineError as error:
            self._fail(error)
        else:
            self._pass_on_reports()

    def _deploy(self, message: Deploy) -> None:
        self._drop_plane()
        assert self._peers is not None
        self.stage, self.incarnation = Stage.RESTORING, message.incarnation
        self._peers.advance(message.incarnation)
        self._storage.read(message)

    def _on_parts(self, parts: RestoredParts) -> None:
        """Everything was read: make the subtasks and bring them to life."""
        if parts.deploy.incarnation != self.incarnation or self.stage is not Stage.RESTORING:
            return
        now = time.time()
        try:
            if parts.error is not None:
                raise parts.error
            machines = make_machines(parts, self._built, self.launch, self._logger)
            topology = self._built.topology
            self._plane = DataPlane(self.number, self.incarnation, topology, self._placement, machines)
            for subtask, machine in machines.items():
                machine.restore(parts.states[subtask], now)
        except (CutlineError, OSError) as error:
            self._fail(error)
            return
        self.stage = Stage.RESTORED
        self._control.send(WorkerRestored(self.number, self.incarnation))

    def _connect(self, addresses: tuple[bytes, ...]) -> None:
        """Dial the peers with lower numbers; those with higher ones dial us, so nobody waits in a circle."""
        assert self._plane is not None and self._peers is not None
        self.stage = Stage.CONNECTING
        try:
            for peer in self._plane.peers():
                if peer < self.number:
                    self._add_connection(peer, *self._peers.dial(peer, addresses[peer], self._heartbeats))
        except ChannelError as error:
            self._fail(error)
            return
        self._say_if_connected()

    def _add_connection(self, peer: int, sock: socket.socket, identity: Identity) -> None:
        if self._plane is None or peer in self._plane.connections or identity.incarnation != self.incarnation:
            sock.close()
            return
        # Nothing is read before the start: what a peer sends early waits in the kernel (PROTOCOL 5.4).
        self._plane.add_connection(peer, sock, identity)

    def _say_if_connected(self) -> None:
        if self.stage is Stage.CONNECTING and self._plane is not None and self._plane.is_connected:
            self._control.send(WorkerConnected(self.number, self.incarnation))

    def _start(self) -> None:
        assert self._plane is not None
        self.stage = Stage.RUNNING
        self._forget_idleness()
        self._plane.start(time.time())
        for connection in self._plane.connections.values():
            self._selector.register(connection, selectors.EVENT_READ, self._reader(connection))

    def _reader(self, connection: Connection) -> Any:
        return lambda: self._on_data(connection)

    def _trigger(self, message: TriggerSnapshot) -> None:
        assert self._plane is not None
        for subtask in message.subtasks:
            self._requests.pop(subtask, None)
            self._plane.machines[subtask].request(message.snapshot_id, message.running, message.floor)

    def _settle(self, floor: int) -> None:
        assert self._plane is not None
        self._plane.each(lambda machine: machine.raise_floor(floor))
        self._alignments = {key: at for key, at in self._alignments.items() if key[0] >= floor}

    def _announce(self, snapshot_id: int, floor: int) -> None:
        assert self._plane is not None
        self._settle(floor)
        now = time.time()
        self._plane.each(lambda machine: machine.published(snapshot_id, now))

    def _end_component(self, nodes: tuple[str, ...]) -> None:
        assert self._plane is not None
        now = time.time()
        for subtask, machine in self._plane.machines.items():
            if subtask.node in nodes:
                machine.end_component(now)
        self._forget_idleness()

    # ---------------------------------------------------------------- what it tells

    def _pass_on_reports(self) -> None:
        if self._plane is None:
            return
        for report in self._plane.take_reports():
            self._pass_on(report)

    def _pass_on(self, report: Report) -> None:
        match report:
            case SnapshotTaken():
                self._storage.upload(report, self.incarnation)
            case SnapshotFailed(snapshot_id, subtask, reason):
                self._control.send(SnapshotDeclined(self.incarnation, snapshot_id, subtask, reason))
            case SnapshotAsked(subtask):
                self._requests[subtask] = time.time() + REQUEST_SECONDS_MAX
                self._control.send(SnapshotAskedFor(self.incarnation, subtask))
            case PublicationHandled(snapshot_id, subtask):
                self._control.send(PublicationDone(self.incarnation, snapshot_id, subtask))
            case AlignmentStarted(snapshot_id, subtask, timeout):
                self._alignments[snapshot_id, subtask] = time.time() + timeout
            case SubtaskEnded(subtask):
                self._logger.info("%s has ended", subtask)
            case _:
                assert_never(report)

    def _fail(self, error: BaseException) -> None:
        """Stop everything here and say why; the coordinator will deploy anew (PROTOCOL 6.1)."""
        if self.stage is Stage.FAILED:
            return
        self.stage = Stage.FAILED
        self._logger.warning("rolling back: %s", error)
        is_permanent = isinstance(error, RestoreRefused | SnapshotCorrupt)
        self._control.send(WorkerFailed(self.number, self.incarnation, str(error), is_permanent))
        self._drop_connections()

    def _drop_connections(self) -> None:
        """Nothing more is sent or read; the peers notice at once."""
        if self._plane is None:
            return
        for peer, connection in self._plane.connections.items():
            self._heartbeats.remove(f"worker-{peer}")
            if connection.fileno() >= 0 and connection.fileno() in self._selector.get_map():
                self._selector.unregister(connection)
            connection.close()

    def _drop_plane(self) -> None:
        self._drop_connections()
        self._alignments.clear()
        self._requests.clear()
        if self._plane is not None:
            for failure in self._plane.close():
                self._logger.warning("close failed: %s", failure)
        self._plane = None
        self.stage = Stage.WAITING
