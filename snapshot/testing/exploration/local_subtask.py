"""One real worker machine with one subtask, as the exploration steps it: its inputs, and the events it can take.

Does the work of a worker's shell, one event at a time. Seals and takes frames, passes control messages on, and makes
the parts and the record of a captured snapshot. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from random import Random
from typing import assert_never

from cutline.snapshot.assembly import assemble, collector_of, ledgers_of
from cutline.snapshot.channel.channel_receiver import ChannelReceiver
from cutline.snapshot.channel.channel_sender import ChannelSender
from cutline.snapshot.channel.frame import Frame, Marker
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.coordinator import control
from cutline.snapshot.errors import ChannelError
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.plan.compiled_graph import CompiledGraph
from cutline.snapshot.stored.contribution import Contribution, parts_of, record_of
from cutline.snapshot.stored.part import Handle, Part, decode_part
from cutline.snapshot.subtask.acts import Status
from cutline.snapshot.subtask.environment import SubtaskEnvironment
from cutline.snapshot.subtask.events import MarkerArrived
from cutline.snapshot.subtask.limits import SubtaskLimits
from cutline.snapshot.subtask.machine import SubtaskMachine
from cutline.snapshot.subtask.recorder import Phase
from cutline.snapshot.subtask.silent_logger import SilentLogger
from cutline.snapshot.testing.exploration.fingerprint import fingerprint
from cutline.snapshot.testing.exploration.local_states import Said, View
from cutline.snapshot.testing.exploration.node_log import NodeLog
from cutline.snapshot.testing.exploration.subtask_events import (
    COORDINATOR,
    Arrived,
    Handled,
    MessageReceived,
    SubtaskContribution,
    SubtaskEvent,
    SubtaskOrigin,
    Taken,
    TimedOut,
    Woken,
)
from cutline.snapshot.worker.events import (
    AlignmentDeadline,
    CoordinatorMessageReceived,
    DeadlinePassed,
    Event,
    PartsRead,
    PartsStored,
    PeersConnected,
    Perform,
    Performed,
    SendToCoordinator,
    StoreParts,
    TurnEnded,
)
from cutline.snapshot.worker.machine import WorkerMachine, WorkerSettings
from cutline.snapshot.worker.restored_parts import RestoredParts, read_parts
from cutline.snapshot.worker.storage_tasks import StorageWork

#: settings without an idle time, which is not explored, and with one acknowledgement for each contribution
_SETTINGS = WorkerSettings(failure_report_seconds=0.0, batch_bytes_max=0)

#: The virtual time, which never advances. Timers and polls come whenever they are due next.
_NOW = 0.0


class LocalSubtask:
    """A subtask in one incarnation.

    Parameters
    ----------
    compiled : CompiledGraph
    run : str
    origin : SubtaskOrigin
    seen : dict
        Situations, to which those that occur are added.
    codec : Codec
        The codec of the graph.
    """

    def __init__(
        self, compiled: CompiledGraph, run: str, origin: SubtaskOrigin, seen: dict[str, None], codec: Codec
    ) -> None:
        self._codec = codec
        self._run = run
        self._origin = origin
        self._seen = seen
        self._compiled = compiled
        self._worker = WorkerMachine(0, self._make_subtask, ledgers_of, collector_of, _SETTINGS)
        self._row_work = StorageWork(run, origin.incarnation, codec, _put_inline, _inline)
        deploy = control.Deploy(origin.incarnation, (origin.start,), False)
        self._send(control.Welcome(1, 1))
        self._send(deploy)
        self._pass(PartsRead(read_parts(deploy, _inline, compiled, codec)))
        self._send(control.Connect(origin.incarnation, ()))
        self._pass(PeersConnected(origin.incarnation))
        #: ids of snapshots that were started here
        self._initiated: list[int] = []
        self._cuts_before = 0

    def _make_subtask(self, parts: RestoredParts) -> dict[Subtask, SubtaskMachine]:
        subtask = self._origin.start.subtask
        channels = parts.channels[subtask]
        if channels.frames:
            self._seen["restore with channel state"] = None
        self._drained_at = {channel: frames[-1].last for channel, frames in channels.frames.items()}
        self.node_log = NodeLog(self._origin.before, self._codec)
        environment = _environment(self._run, self._origin, self.node_log, self._codec)
        self._machine = SubtaskMachine(assemble(subtask, self._compiled, environment, channels))
        return {subtask: self._machine}

    # ---------------------------------------------------------------- events

    def step(self, event: SubtaskEvent) -> list[Said]:
        """Take one event to its end, and return the messages sent."""
        machine = self._machine
        self._cuts_before = len(self.node_log.cuts)
        said: list[Said] = []
        match event:
            case Arrived(channel, item):
                self._arrive(channel, item)
            case MessageReceived(message):
                said += self._receive(message)
            case Handled(channel):
                machine.handle_next(channel, _NOW)
            case Taken(channel):
                said.append((channel, _take(machine.outputs[channel])))
            case Woken():
                machine.run(machine.next_wake() or _NOW, 1)
            case TimedOut(snapshot_id):
                said += self._time_out(snapshot_id)
            case _:
                assert_never(event)
        return said + self._pass(TurnEnded(False))

    def check(self) -> None:
        """Check every invariant of the machine, and note the situations that occurred."""
        self._worker.validate()
        inputs, recorder = self._machine.inputs.values(), self._machine.snapshotter.recorder
        has_cut = len(self.node_log.cuts) > self._cuts_before
        self._note(
            {
                "overlap": len(recorder.unfinished()) > 1,
                "channel held": any(end.held for end in inputs),
                "cut inside a frame": has_cut and any(map(_is_inside_a_frame, inputs)),
            }
        )

    def _arrive(self, channel: ChannelId, item: Frame | Marker) -> None:
        if isinstance(item, Frame):
            self._machine.deliver(channel, item)
            return
        recorder = self._machine.snapshotter.recorder
        if item.snapshot_id < recorder.min_snapshot_id:
            self._seen["late marker dropped"] = None
        elif recorder.phase(item.snapshot_id) is None:
            self._seen[f"first marker through {channel}"] = None
        self._machine.step(MarkerArrived(channel, item), _NOW)

    def _receive(self, message: control.CoordinatorMessage) -> list[Said]:
        """Pass a control message on, and forget snapshots that are published or aborted."""
        match message:
            case control.TriggerSnapshot(_, snapshot_id):
                if self._machine.snapshotter.recorder.phase(snapshot_id) is None:
                    self._initiated.append(snapshot_id)
            case control.DiscardSnapshotsBelow(_, min_snapshot_id) | control.AnnouncePublished(_, _, min_snapshot_id):
                self.node_log.discard_below(min_snapshot_id)
                self._initiated = [snapshot_id for snapshot_id in self._initiated if snapshot_id >= min_snapshot_id]
            case _:
                pass
        return self._send(message)

    def _send(self, message: control.CoordinatorMessage) -> list[Said]:
        return self._pass(CoordinatorMessageReceived(message))

    def _time_out(self, snapshot_id: int) -> list[Said]:
        if self._machine.snapshotter.recorder.phase(snapshot_id) is Phase.ALIGNING:
            self._seen["alignment timed out"] = None
        return self._pass(DeadlinePassed(AlignmentDeadline(snapshot_id, self._machine.subtask)))

    # ---------------------------------------------------------------- effects

    def _pass(self, event: Event) -> list[Said]:
        """Pass an event to the worker machine, and return the messages to the coordinator."""
        said: list[Said] = []
        for effect in self._worker.step(event, _NOW):
            match effect:
                case SendToCoordinator(messages):
                    said += [(COORDINATOR, self._modelled(message)) for message in messages if _is_modelled(message)]
                case StoreParts(_, uploads):
                    stored = tuple(self._acknowledgement(upload.taken) for upload in uploads)
                    said += self._pass(PartsStored(stored))
                case Perform(incarnation, task):
                    result = self._row_work.perform(task)  # at once, because tasks commute with events
                    said += self._pass(Performed(incarnation, task, result))
                case _:
                    pass  # links are queues of the exploration
        return said

    def _acknowledgement(self, taken: Contribution) -> control.SnapshotAcknowledged:
        self._note_parts(taken)
        handles = [part.inline() for part in parts_of(taken, self._run, self._origin.incarnation)]
        record = record_of(taken, self._origin.incarnation, handles)
        return control.SnapshotAcknowledged(self._origin.incarnation, taken.snapshot_id, record, taken.timings)

    def _modelled(self, message: control.WorkerMessage) -> SubtaskContribution | control.WorkerMessage:
        """Return the message as the explored coordinator takes it: an acknowledgement with what the subtask did."""
        if not isinstance(message, control.SnapshotAcknowledged):
            return message
        snapshot_id = message.snapshot_id
        return SubtaskContribution(message, self.node_log.take_cut(snapshot_id), snapshot_id in self._initiated)

    # ---------------------------------------------------------------- situations

    def _note_parts(self, taken: Contribution) -> None:
        drained_at = self._drained_at
        self._note(
            {
                "receiver's part": any(cut.frames for cut in taken.received.values()),
                "sender's part": any(cut.frames for cut in taken.sent.values()),
                "snapshot before restored messages drained": any(
                    cut.processed < drained_at.get(channel, 0) for channel, cut in taken.received.items()
                ),
            }
        )

    def _note(self, occurred: dict[str, bool]) -> None:
        self._seen.update((name, None) for name, occurs in occurred.items() if occurs)

    # ---------------------------------------------------------------- states

    def key(self) -> Hashable:
        """Return a key of everything mutable."""
        return fingerprint((self._worker, self.node_log, self._initiated))

    def view(self) -> View[SubtaskEvent]:
        """Return the events that are possible here."""
        machine, who = self._machine, self._machine.subtask
        if machine.status not in (Status.RUNNING, Status.ENDED):
            return View((), (), is_open=False, unsettled=f"{who} was not started")
        own: list[tuple[str, SubtaskEvent]] = [
            (f"{channel}: the sender's next goes on the link", Taken(channel))
            for channel, end in machine.outputs.items()
            if end.buffer.has_data or end.has_open_frame
        ]
        if not machine.backpressure.closed:
            own += [
                (f"{channel}: the next is handled", Handled(channel))
                for channel, end in machine.inputs.items()
                if end.ready
            ]
            if machine.next_wake() is not None:
                own.append((f"{who}: timer or poll", Woken()))
        faults: list[tuple[str, SubtaskEvent]] = [
            (f"{who}: time to align {deadline.snapshot_id} is over", TimedOut(deadline.snapshot_id))
            for deadline in self._worker.deadlines
            if isinstance(deadline, AlignmentDeadline)
        ]
        return View(tuple(own), tuple(faults), is_open=True, unsettled=self._unsettled())

    def _unsettled(self) -> str:
        machine = self._machine
        waiting = [str(channel) for channel, end in machine.inputs.items() if not end.drained]
        if waiting:
            return f"messages wait on {', '.join(waiting)}"
        held = [str(channel) for channel, end in machine.inputs.items() if end.held]
        if held:
            return f"held are {', '.join(held)}"
        if machine.backpressure.closed:
            return f"{machine.subtask} waits for an answer to requestSnapshot"
        if machine.snapshotter.recorder.unfinished() or any(end.recorded_bytes for end in machine.inputs.values()):
            return f"{machine.subtask} still records {machine.snapshotter.recorder.unfinished()}"
        return ""

    def final_state(self) -> bytes:
        """Return the node's encoded state, with its keyed rows. The machine must not be used any more."""
        core = self._machine.core
        encode = core.codec.encode
        rows = [
            [table.spec.name, sorted((encode(key), encode(value)) for key, value in table.contents())]
            for table in core.keyed.tables
        ]
        return encode([core.node.snapshotState(0, _NOW), rows])


def _environment(run: str, origin: SubtaskOrigin, node_log: NodeLog, codec: Codec) -> SubtaskEnvironment:
    return SubtaskEnvironment(
        run=run,
        incarnation=origin.incarnation,
        codec=codec,
        limits=SubtaskLimits(),
        spill_of=lambda _: None,
        logger_of=lambda _: SilentLogger(),
        chance_of=lambda subtask: Random(str(subtask)),
        stopwatch=lambda: _NOW,
        observer_of=lambda _: node_log,
    )


def _inline(handle: Handle) -> memoryview:
    assert handle.inline is not None
    return decode_part(handle, handle.inline)


def _is_modelled(message: control.WorkerMessage) -> bool:
    """Raise a failure. Return False for a message that the explored coordinator does not wait for."""
    if isinstance(message, control.WorkerFailed):
        raise ChannelError(message.reason)
    return isinstance(message, control.SnapshotAcknowledged | control.SnapshotDeclined | control.SnapshotAskedFor)


def _put_inline(parts: Sequence[Part], inline: bool) -> list[Handle]:
    return [part.inline() for part in parts]


def _take(end: ChannelSender) -> Frame | Marker:
    if end.has_open_frame and not end.buffer.has_marker:
        end.seal()
    item = end.buffer.take()
    assert isinstance(item, Frame | Marker)  # because nobody has told the sender to send by reference
    return item


def _is_inside_a_frame(end: ChannelReceiver) -> bool:
    head = end.head
    return isinstance(head, Frame) and head.first <= end.processed
