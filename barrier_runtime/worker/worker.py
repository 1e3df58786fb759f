"""The worker process: one thread that polls sockets, runs turns, and performs the effects of the worker's machine.

Runs in the process that the barrier task forked (`barrier_runtime.worker.task`). Background threads only wait for
storage, send heartbeats, and connect to a lost coordinator. Every decision is made by `snapshot.worker.machine`.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import assert_never

import pyarrow as pa

from cutline.barrier_runtime import clock
from cutline.barrier_runtime.launch import ExitCode, WorkerLaunch
from cutline.barrier_runtime.logs import worker_logger
from cutline.barrier_runtime.progress import PROGRESS_INTERVAL_SECONDS
from cutline.barrier_runtime.reactor import Reactor
from cutline.barrier_runtime.tracing.trace_observer import trace_of
from cutline.barrier_runtime.worker.control_link import COORDINATOR, ControlLink
from cutline.barrier_runtime.worker.data_plane import DataPlane
from cutline.barrier_runtime.worker.deployment import make_machines
from cutline.barrier_runtime.worker.meter import store_progress
from cutline.barrier_runtime.worker.peers import Peers
from cutline.barrier_runtime.worker.uploads import Storage
from cutline.channels.connection import Connection
from cutline.channels.heartbeat import Heartbeats
from cutline.channels.identity import Identity
from cutline.snapshot.assembly import collector_of, ledgers_of
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.coordinator.control import PublicationDone, WorkerMessage
from cutline.snapshot.coordinator.disk_placement import placed_on
from cutline.snapshot.errors import ChannelError, CutlineError
from cutline.snapshot.ids import Subtask
from cutline.snapshot.modes.totals.store_calls import aggregate_of
from cutline.snapshot.stored.run_store import RunStore
from cutline.snapshot.subtask.machine import SubtaskMachine
from cutline.snapshot.worker.events import (
    AdmitPeers,
    CloseSubtasks,
    CoordinatorConnected,
    CoordinatorMessageReceived,
    DataFailed,
    DeadlinePassed,
    DialPeers,
    DisconnectCoordinator,
    DropConnections,
    Effect,
    Event,
    FlushLinks,
    Leave,
    Log,
    OpenDataPlane,
    PeerLost,
    PeersConnected,
    Perform,
    ReadParts,
    ReadPeers,
    Register,
    RemoveVersions,
    ReportProgress,
    SendToCoordinator,
    Stage,
    StoreParts,
    TurnEnded,
)
from cutline.snapshot.worker.machine import WorkerMachine, WorkerSettings
from cutline.snapshot.worker.restored_parts import RestoredParts
from cutline.state_backends.local_versions import LocalVersions

#: Seconds that the loop sleeps at most, because deadlines of handshakes and of the coordinator's absence are checked.
SLEEP_SECONDS_MAX = 1.0

_LOG_LEVELS = {"debug": 10, "info": 20, "warning": 30}


class Worker:
    """One worker process.

    Parameters
    ----------
    launch : WorkerLaunch
    number : int
        Number of the worker's barrier task.
    """

    def __init__(self, launch: WorkerLaunch, number: int) -> None:
        self.launch = launch
        self.number = number
        self.exit_code: ExitCode | None = None
        self._compiled = launch.open_graph()
        folder = self._compiled.topology.row.versions_folder
        versions = None if folder is None else LocalVersions(Path(folder), launch.run)
        self._logger = worker_logger(launch, number)
        backend = launch.open_backend()
        settings = WorkerSettings(inline_bytes_max=backend.inline_bytes_max)
        self._machine = WorkerMachine(number, self._make_machines, ledgers_of, collector_of, settings)
        self._plane: DataPlane | None = None
        #: True when subtasks were closed, and their memory is not collected yet
        self._has_closed = False
        self._next_progress = 0.0
        self._reactor = Reactor()
        #: peers whose heartbeats stopped, with the reason; appended by the heartbeat thread
        self._silent: deque[tuple[Identity, str]] = deque()
        self._heartbeats = Heartbeats(self._on_silence)
        store = RunStore(backend, launch.run)
        self._storage = Storage(
            store,
            self._reactor.wake,
            launch.keyed_state,
            self._compiled,
            versions,
            partial(aggregate_of, compiled=self._compiled),
            codec=Codec(safe=launch.safe, names=self._compiled.program_names()),
        )
        self._control = ControlLink(launch, number, self._heartbeats, self._reactor)
        self._peers: Peers | None = None
        if launch.waits:
            pa.array([0])  # because the first conversion imports pandas, for a third of a second in the restore

    # ---------------------------------------------------------------- the loop

    def run(self) -> ExitCode:
        """Run until the coordinator ends the worker.

        Raises
        ------
        ChannelError
            if no coordinator is reachable for too long.
        """
        while self.exit_code is None:
            self._reactor.wait(self._sleep_seconds())
            self._control.pump()
            self._take_from_threads()
            if self._machine.stage is Stage.RUNNING:
                self._turn()
            now = clock.now()
            for deadline in self._machine.passed_deadlines(now):
                self._step(DeadlinePassed(deadline))
        self._control.close()
        self._heartbeats.close()
        self._storage.close()
        self._reactor.close()
        return self.exit_code

    def _sleep_seconds(self) -> float:
        now = clock.now()
        until = [now + SLEEP_SECONDS_MAX, self._machine.next_deadline()]
        if self._machine.stage is Stage.RUNNING and self._plane is not None:
            if self._plane.has_work:
                return 0.0
            until += [self._next_progress, self._plane.next_wake()]
        return max(0.0, min(at for at in until if at is not None) - now)

    def _turn(self) -> None:
        plane = self._plane
        assert plane is not None
        now = clock.now()
        plane.meter.sample(now)
        try:
            handled = plane.turn(now)
        except CutlineError as error:
            self._step(DataFailed(error))
            return
        self._step(TurnEnded(not handled and plane.is_idle))
        if now >= self._next_progress and self._machine.stage is Stage.RUNNING:
            self._report_progress(plane, now)

    def _report_progress(self, plane: DataPlane, now: float) -> None:
        self._next_progress = now + PROGRESS_INTERVAL_SECONDS
        self._storage.release_memory()
        stores = store_progress(plane.machines, self._storage.totals)
        self._control.send(plane.meter.report(self._peers.refused if self._peers else {}, stores))
        if self._control.is_free:  # otherwise the newest events wait in their ring buffers
            self._send_trace(plane)

    def _send(self, messages: tuple[WorkerMessage, ...]) -> None:
        if self._plane is not None and any(isinstance(message, PublicationDone) for message in messages):
            # First, because the coordinator ends the run after the last commit.
            self._report_progress(self._plane, clock.now())
        self._control.send(*messages)

    def _send_trace(self, plane: DataPlane) -> None:
        trace = trace_of(self.number, plane.machines)
        if trace is not None:
            self._control.send(trace)

    # ---------------------------------------------------------------- events

    def _take_from_threads(self) -> None:
        """Process the results of other threads."""
        connection = self._control.take_connection()
        if connection is not None:
            if self._peers is None:
                self._peers = Peers(self.launch, self.number, connection)
                self._reactor.add(self._peers.listener, self._on_peer)
            self._reactor.add_writer(connection, self._on_control)
            self._step(CoordinatorConnected())
        # Results wait while the control connection is full, because it holds only a few large acknowledgements.
        while not self._control.wants_write and (finished := self._storage.take()) is not None:
            self._step(finished)
        while self._silent:
            self._on_lost_peer(*self._silent.popleft())
        if self._peers is not None and self._peers.listener.has_deadline:
            self._on_peer()  # because no descriptor shows a deadline of the listener

    def _on_silence(self, peer: Identity, reason: str) -> None:
        """Queue a peer whose heartbeats stopped. Called on the heartbeat thread."""
        self._silent.append((peer, reason))
        self._reactor.wake()

    def _on_lost_peer(self, peer: Identity, reason: str) -> None:
        if peer.name == COORDINATOR:
            self._control.lose_silent(peer, reason)
        else:
            self._step(PeerLost(peer.incarnation, f"{peer.name}: {reason}"))

    def _on_control(self) -> None:
        for message in self._control.receive():
            self._step(CoordinatorMessageReceived(message))

    def _on_peer(self) -> None:
        """Accept connections of peers, and continue handshakes."""
        assert self._peers is not None
        for peer, admitted in self._peers.accept(self._heartbeats):
            plane = self._plane
            if plane is None or peer in plane.connections or admitted.peer.incarnation != plane.incarnation:
                admitted.sock.close()
            else:
                plane.add_connection(peer, admitted.sock, admitted.peer)
        self._check_connected()

    def _check_connected(self) -> None:
        plane = self._plane
        if self._machine.stage is Stage.CONNECTING and plane is not None and plane.is_connected:
            self._step(PeersConnected(plane.incarnation))

    def _on_data(self, connection: Connection) -> None:
        assert self._plane is not None
        try:
            self._plane.receive(connection, clock.now())
        except CutlineError as error:
            self._step(DataFailed(error))

    # ---------------------------------------------------------------- effects

    def _step(self, event: Event) -> None:
        effects = self._machine.step(event, clock.now())
        effects.reverse()
        while effects:  # popped, because a performed effect must not keep a machine in memory
            self._perform(effects.pop())

    def _perform(self, effect: Effect) -> None:
        match effect:
            case SendToCoordinator(messages):
                self._send(messages)
            case FlushLinks():
                self._flush()
            case StoreParts(incarnation, uploads):
                self._storage.upload(uploads, incarnation)
            case Perform(incarnation, task):
                self._storage.perform(task, incarnation)
            case RemoveVersions(kept):
                self._storage.remove_versions(kept)
            case Log(level, text):
                self._logger.log(_LOG_LEVELS[level], "%s", text)
            case ReportProgress():
                self._next_progress = 0.0
            case Register():
                assert self._peers is not None
                versions = self._storage.versions
                disks = () if versions is None else (versions.disk,)
                self._control.send(self._peers.registration(effect, disks))
            case DisconnectCoordinator(reason):
                self._control.lose(reason)
            case AdmitPeers(incarnation):
                assert self._peers is not None
                self._peers.advance(incarnation)
            case ReadParts(deploy):
                if self._has_closed:
                    gc.collect()  # because machines and nodes form cycles, and memory would be held twice
                    self._has_closed = False
                self._storage.read(deploy)
            case OpenDataPlane(incarnation, subtasks, hosts):
                topology = self._compiled.topology
                places = placed_on(hosts, topology.place(self.launch.worker_count))
                self._plane = DataPlane(self.number, incarnation, topology, places, subtasks)
            case DialPeers(_, addresses):
                self._dial(addresses)
            case ReadPeers():
                self._read_peers()
            case DropConnections():
                self._drop_connections()
            case CloseSubtasks(subtasks):
                self._close(subtasks)
            case Leave(is_finished):
                self.exit_code = ExitCode.FINISHED if is_finished else ExitCode.QUIT
            case _:
                assert_never(effect)

    def _make_machines(self, parts: RestoredParts) -> dict[Subtask, SubtaskMachine]:
        storage, wake = self._storage, self._reactor.wake
        return make_machines(parts, self._compiled, self.launch, storage.memory, wake, self._logger, storage.versions)

    def _flush(self) -> None:
        if self._plane is None:
            return
        try:
            self._plane.flush(clock.now())
        except CutlineError as error:
            self._step(DataFailed(error))

    def _dial(self, addresses: tuple[bytes, ...]) -> None:
        """Dial the peers with lower numbers. Peers with higher numbers dial this worker, so that no cycle waits."""
        plane = self._plane
        assert plane is not None and self._peers is not None
        try:
            for peer in plane.peers():
                if peer < self.number and peer not in plane.connections:
                    plane.add_connection(peer, *self._peers.dial(peer, addresses[peer], self._heartbeats))
        except ChannelError as error:
            self._step(DataFailed(error))
            return
        self._check_connected()

    def _read_peers(self) -> None:
        if self._plane is None or self._machine.stage is not Stage.RUNNING:
            return  # a link failed while markers were sent
        for connection in self._plane.connections.values():
            self._reactor.add_writer(connection, self._reader(connection))

    def _reader(self, connection: Connection) -> Callable[[], None]:
        return lambda: self._on_data(connection)

    def _drop_connections(self) -> None:
        if self._plane is None:
            return
        for peer, connection in self._plane.connections.items():
            self._heartbeats.remove(f"worker-{peer}")
            self._reactor.remove(connection)
            connection.close()

    def _close(self, subtasks: tuple[SubtaskMachine, ...]) -> None:
        if self._plane is not None:
            self._send_trace(self._plane)
        self._plane = None
        for machine in subtasks:
            failure = machine.close()
            if failure is not None:
                self._logger.warning("close failed: %s", failure)
        self._has_closed = True
