"""The worker's loop: one thread that polls sockets, obeys the coordinator, gives turns, and flushes.

Runs in the process that the barrier task forked (`barrier_runtime.task`). Background threads only wait for
storage, beat, and look for a lost coordinator.
"""

from __future__ import annotations

import gc
import socket
from collections import deque
from typing import Any, assert_never

from barrier_runtime import clock
from barrier_runtime.control_link import COORDINATOR, ControlLink
from barrier_runtime.data_plane import DataPlane
from barrier_runtime.deadlines import Deadlines
from barrier_runtime.deployment import make_machines
from barrier_runtime.held_report import HeldReport
from barrier_runtime.idleness import Idleness
from barrier_runtime.launch import ExitCode, WorkerLaunch
from barrier_runtime.logs import worker_logger
from barrier_runtime.peers import Peers
from barrier_runtime.progress import PROGRESS_INTERVAL_SECONDS
from barrier_runtime.reactor import Reactor
from barrier_runtime.report_desk import ReportDesk
from barrier_runtime.tracing.traced_machine import trace_of
from barrier_runtime.uploads import RestoredParts, Storage
from barrier_runtime.worker_stage import Stage
from channels.connection import Connection
from channels.control import ControlConnection
from channels.heartbeat import Heartbeats
from channels.identity import Identity
from snapshot.coordinator import control
from snapshot.coordinator.instalments import Arrival
from snapshot.errors import ChannelError, CutlineError, GraphError, RestoreRefused, SnapshotCorrupt
from snapshot.subtask.reports import SubtaskEnded
from state_backends.store import RunStore

#: Longest sleep of the loop, so that deadlines of handshakes and of the coordinator's absence are looked at.
SLEEP_SECONDS_MAX = 1.0


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
        self._built = launch.open_graph()
        self._placement = self._built.topology.place(launch.worker_count)
        self._plane: DataPlane | None = None
        self._claim = 0
        self._arrival = Arrival()
        self._idleness = Idleness()
        self._next_progress = 0.0
        self._deadlines = Deadlines()
        self._held = HeldReport()
        self._logger = worker_logger(launch, number)
        self._reactor = Reactor()
        #: peers whose heartbeats stopped, said by the heartbeat thread
        self._silent: deque[tuple[Identity, str]] = deque()
        self._heartbeats = Heartbeats(self._on_silence)
        self._storage = Storage(RunStore(launch.open_backend(), launch.run), self._reactor.wake)
        self._control = ControlLink(launch, number, self._heartbeats, self._reactor)
        self._desk = ReportDesk(self._storage, self._control, self._deadlines, self._logger)
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
            self._reactor.wait(self._sleep_seconds())
            self._control.pump()
            self._look_around()
            handled = self._turn() if self.stage is Stage.RUNNING else 0
            self._report_idleness(handled)
        self._leave()
        return self.exit_code

    def _sleep_seconds(self) -> float:
        if self.stage is not Stage.RUNNING or self._plane is None:
            due = self._held.due_at()
            return SLEEP_SECONDS_MAX if due is None else max(0.0, min(SLEEP_SECONDS_MAX, due - clock.now()))
        if self._plane.has_work:
            return 0.0
        now = clock.now()
        wake = self._plane.next_wake()
        until = [SLEEP_SECONDS_MAX, self._next_progress - now]
        until += [at - now for at in (wake, self._idleness.due_at(), self._deadlines.next_at()) if at is not None]
        return max(0.0, min(until))

    def _turn(self) -> int:
        assert self._plane is not None
        now = clock.now()
        handled = 0
        self._plane.meter.look(now)
        try:
            handled = self._plane.turn(now)
            self._look_at_deadlines(now)
        except CutlineError as error:
            self._fail(error)
            return handled
        self._pass_on_reports()
        if now >= self._next_progress:
            self._next_progress = now + PROGRESS_INTERVAL_SECONDS
            self._storage.hurry()
            self._control.send(self._plane.meter.report(self._peers.refused if self._peers else {}))
            if self._control.is_free:  # else the newest events wait in their rings
                self._tell_trace()
        return handled

    def _report_idleness(self, handled: int) -> None:
        if self.stage is not Stage.RUNNING or self._plane is None:
            return
        news = self._idleness.look(not handled and self._plane.is_idle, clock.now())
        if news is not None:
            self._control.send(control.WorkerIdle(self.number, self.incarnation, news))

    def _look_at_deadlines(self, now: float) -> None:
        assert self._plane is not None
        for snapshot_id, subtask in self._deadlines.take_alignments(now):
            self._plane.machines[subtask].alignment_timed_out(snapshot_id)
        for subtask in self._deadlines.take_requests(now):
            self._logger.warning("%s asked for a snapshot and got no answer; it goes on without", subtask)
            self._plane.machines[subtask].answer_request()

    def _leave(self) -> None:
        self._drop_plane()
        self._control.close()
        self._heartbeats.close()
        self._storage.close()
        self._reactor.close()

    # ---------------------------------------------------------------- what wakes it

    def _look_around(self) -> None:
        """Take what other threads have brought."""
        connection = self._control.take_connection()
        if connection is not None:
            self._on_coordinator(connection)
        # A few large acknowledgements are all that the line takes at one time.
        while not self._control.wants_write and (done := self._storage.take()) is not None:
            if isinstance(done, RestoredParts):
                self._on_parts(done)
            else:
                self._control.send(*done)
        self._report_failure(self._held.take(clock.now()))
        while self._silent:
            self._on_lost_peer(*self._silent.popleft())
        if self._peers is not None and self._peers.listener.pending_count:
            self._on_peer()  # so that the deadlines of handshakes pass

    def _on_silence(self, peer: Identity, reason: str) -> None:
        """Called on the heartbeat thread."""
        self._silent.append((peer, reason))
        self._reactor.wake()

    def _on_lost_peer(self, peer: Identity, reason: str) -> None:
        if peer.name == COORDINATOR:
            self._control.lose(reason)
        elif peer.incarnation == self.incarnation:
            self._fail(ChannelError(f"{peer.name}: {reason}"))

    def _on_coordinator(self, connection: ControlConnection) -> None:
        if self._peers is None:
            self._peers = Peers(self.launch, self.number, connection)
            self._reactor.add(self._peers.listener, self._on_peer)
        self._reactor.add_writer(connection, self._on_control)
        held = self.incarnation if self.stage is Stage.RUNNING else 0
        self._control.send(self._peers.registration(held))
        self._idleness.forget()

    def _on_control(self) -> None:
        for message in self._control.receive():
            self._obey(message)

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

    def _obey(self, message: control.CoordinatorMessage) -> None:
        match message:
            case control.Welcome(claim, _):
                if claim < self._claim:
                    self._control.lose(f"it has claim {claim}, but {self._claim} is known")
                self._claim = max(self._claim, claim)
            case control.Deploy():
                self._deploy(message)
            case control.Finish(reason):
                self._logger.info("leaving: %s", reason)
                self.exit_code = ExitCode.FINISHED
            case control.Quit(reason):
                self._logger.info("leaving, so that the stage can be submitted again: %s", reason)
                self.exit_code = ExitCode.QUIT
            case _ if message.incarnation != self.incarnation or self._plane is None or self.stage is Stage.FAILED:
                self._logger.debug("not for this incarnation: %s", message)
            case control.Connect(_, addresses):
                self._connect(addresses)
            case control.StartProcessing():
                self._guard(self._start)
            case control.TriggerSnapshot():
                self._guard(lambda: self._trigger(message))
            case control.AnswerSnapshotRequest(_, subtask):
                self._deadlines.answer(subtask)
                self._plane.machines[subtask].answer_request()
            case control.SettleSnapshots(_, floor):
                self._guard(lambda: self._settle(floor))
            case control.AnnouncePublished():
                self._guard(lambda: self._announce(message))
            case control.EndComponent(_, nodes):
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

    def _deploy(self, message: control.Deploy) -> None:
        assert self._peers is not None
        if message.incarnation != self.incarnation:
            has_held = self._plane is not None
            self._drop_plane()
            if has_held:
                gc.collect()  # machines and nodes refer to each other: what they held would be there twice
            self.stage, self.incarnation = Stage.RESTORING, message.incarnation
            self._peers.advance(message.incarnation)
        whole = self._arrival.take(message)
        if whole is None:
            self._control.send(control.DeployTaken(self.number, self.incarnation))
        else:
            self._storage.read(whole)

    def _on_parts(self, parts: RestoredParts) -> None:
        """Everything was read: make the subtasks and bring them to life."""
        if parts.deploy.incarnation != self.incarnation or self.stage is not Stage.RESTORING:
            return
        now = clock.now()
        try:
            if parts.error is not None:
                raise parts.error
            machines = make_machines(parts, self._built, self.launch, self._storage.memory, self._logger)
            topology = self._built.topology
            self._plane = DataPlane(self.number, self.incarnation, topology, self._placement, machines)
            for subtask, machine in machines.items():
                machine.restore(parts.states[subtask], now)
        except (CutlineError, OSError) as error:
            self._fail(error)
            return
        self.stage = Stage.RESTORED
        self._control.send(control.WorkerRestored(self.number, self.incarnation))

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
            self._control.send(control.WorkerConnected(self.number, self.incarnation))

    def _start(self) -> None:
        assert self._plane is not None
        self.stage = Stage.RUNNING
        self._idleness.forget()
        self._plane.start(clock.now())
        for connection in self._plane.connections.values():
            self._reactor.add_writer(connection, self._reader(connection))

    def _reader(self, connection: Connection) -> Any:
        return lambda: self._on_data(connection)

    def _trigger(self, message: control.TriggerSnapshot) -> None:
        assert self._plane is not None
        for subtask in message.subtasks:
            self._deadlines.answer(subtask)
            self._plane.machines[subtask].request(message.snapshot_id, message.running, message.floor)

    def _settle(self, floor: int) -> None:
        assert self._plane is not None
        self._plane.each(lambda machine: machine.raise_floor(floor))
        self._deadlines.settle(floor)
        self._storage.settle(floor)

    def _announce(self, message: control.AnnouncePublished) -> None:
        assert self._plane is not None
        self._settle(message.floor)
        if message.is_last:
            self._desk.last_snapshot = message.snapshot_id
        now = clock.now()
        self._plane.each(lambda machine: machine.published(message.snapshot_id, now))

    def _end_component(self, nodes: tuple[str, ...]) -> None:
        assert self._plane is not None
        now = clock.now()
        self._plane.each(lambda machine: machine.end_component(now) if machine.subtask.node in nodes else None)
        self._idleness.forget()

    # ---------------------------------------------------------------- what it tells

    def _pass_on_reports(self) -> None:
        news = [] if self._plane is None else self._plane.take_reports()
        self._desk.pass_on(news, self.incarnation)
        if news and any(isinstance(each, SubtaskEnded) for each in news):
            self._next_progress = 0.0  # so that a run which ends by itself has told all that it has done

    def _tell_trace(self) -> None:
        """Send off what the subtasks wrote down."""
        trace = None if self._plane is None else trace_of(self.number, self._plane.machines)
        if trace is not None:
            self._control.send(trace)

    def _fail(self, error: BaseException) -> None:
        """Stop everything here and say why; the coordinator will deploy anew (PROTOCOL 6.1)."""
        if self.stage is Stage.FAILED:
            return
        self.stage = Stage.FAILED
        is_permanent = isinstance(error, RestoreRefused | SnapshotCorrupt | GraphError)
        report = control.WorkerFailed(self.number, self.incarnation, str(error), is_permanent)
        if isinstance(error, ChannelError):
            self._held.hold(report, clock.now())
        else:
            self._report_failure(report)
        self._drop_connections()

    def _report_failure(self, report: control.WorkerFailed | None) -> None:
        if report is not None:
            self._logger.warning("rolling back: %s", report.reason)
            self._control.send(report)

    def _drop_connections(self) -> None:
        """Nothing more is sent or read; the peers notice at once."""
        if self._plane is None:
            return
        for peer, connection in self._plane.connections.items():
            self._heartbeats.remove(f"worker-{peer}")
            self._reactor.remove(connection)
            connection.close()

    def _drop_plane(self) -> None:
        self._drop_connections()
        self._deadlines.clear()
        self._held.drop()
        self._tell_trace()
        if self._plane is not None:
            for failure in self._plane.close():
                self._logger.warning("close failed: %s", failure)
        self._plane = None
        self.stage = Stage.WAITING
