"""What really happened in a cluster, kept beside the machines, and the checkers that hold the run against it.

A failed checker raises `Violation`, which names it.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from snapshot import Snapshot
from snapshot.channel.frame import PayloadKind
from snapshot.channel.frame_codec import messages_of
from snapshot.channel.serialization import Codec
from snapshot.errors import SnapshotCorrupt
from snapshot.ids import ChannelId, Subtask
from snapshot.stored.certificate import problems
from snapshot.subtask.assembly import RestoredChannels
from snapshot.subtask.machine import SubtaskMachine
from tests.snapshot.cluster_programs import Program, World

CODEC = Codec()

#: The end of a stream in the lists of messages: it is numbered like others (PROTOCOL 5.1).
_END = object()


class Violation(AssertionError):
    """A checker, by name, found something wrong."""

    def __init__(self, checker: str, text: str) -> None:
        super().__init__(f"{checker}: {text}")
        self.checker = checker


class Truth:
    """Messages by channel and number, and the points of all cuts, of every incarnation that ran."""

    def __init__(self, program: Program, world: World) -> None:
        self._program = program
        self._world = world
        self._measured: Any = None
        #: {(incarnation, channel): {number: message}}
        self._sent: dict[tuple[int, ChannelId], dict[int, Any]] = {}
        #: {(incarnation, snapshot_id, subtask): ({input: processed}, {output: sent})}
        self._points: dict[tuple[int, int, Subtask], tuple[dict[ChannelId, int], dict[ChannelId, int]]] = {}

    # ---------------------------------------------------------------- watching

    def watch(self, machine: SubtaskMachine, incarnation: int, restored: RestoredChannels) -> None:
        """Note all that a fresh machine is to send, and what its inputs start with."""
        for channel, frames in restored.frames.items():
            log = self._sent.setdefault((incarnation, channel), {})
            for frame in frames:
                values = [_END] if frame.kind is PayloadKind.END else messages_of(frame, CODEC)
                log.update(zip(range(frame.first, frame.last + 1), values, strict=True))
        for channel, end in machine.outputs.items():
            log = self._sent.setdefault((incarnation, channel), {})
            self._tap(end, log)

    @staticmethod
    def _tap(end: Any, log: dict[int, Any]) -> None:
        send, send_end = end.send, end.send_end

        def noted_send(message: Any) -> None:
            send(message)
            log[end.sent] = message

        def noted_send_end() -> None:
            send_end()
            log[end.sent] = _END

        end.send, end.send_end = noted_send, noted_send_end

    def cut(self, machine: SubtaskMachine, incarnation: int, snapshot_id: int) -> None:
        """A machine records its state now."""
        processed = {channel: end.processed for channel, end in machine.inputs.items()}
        sent = {channel: end.sent for channel, end in machine.outputs.items()}
        self._points[incarnation, snapshot_id, machine.subtask] = (processed, sent)

    # ---------------------------------------------------------------- checkers

    def check_snapshot(self, snapshot: Snapshot) -> int:
        """Checkers 1, 3, 4 and 5 on a published snapshot; returns the number of messages in flight."""
        try:
            snapshot.verify()
        except SnapshotCorrupt as error:
            raise Violation("integrity", str(error)) from error
        manifest = snapshot.manifest
        topology = self._program.built.topology
        found = problems(topology.channels, topology.subtasks, manifest.records, manifest.incarnation)
        if found:
            raise Violation("certificate", f"snapshot {snapshot.id}: {'; '.join(found)}")
        in_flight = sum(self._check_channel(snapshot, channel) for channel in topology.channels)
        measured = self._program.measure(snapshot)
        if self._measured is None:
            self._measured = measured
        if measured != self._measured:
            raise Violation("conservation", f"snapshot {snapshot.id}: {measured} instead of {self._measured}")
        return in_flight

    def _check_channel(self, snapshot: Snapshot, channel: ChannelId) -> int:
        at = (snapshot.manifest.incarnation, snapshot.id)
        sent = self._points[*at, channel.source][1][channel]
        processed = self._points[*at, channel.target][0][channel]
        log = self._sent[snapshot.manifest.incarnation, channel]
        due = [log[number] for number in range(processed + 1, sent + 1) if log[number] is not _END]
        stored = snapshot.channel(*channel)
        if (stored.processed, stored.sent, stored.messages) != (processed, sent, due):
            text = f"{channel}: {processed} processed of {sent} sent, in flight {due}; stored {stored.messages}"
            raise Violation("exact cut", f"snapshot {snapshot.id}: {text}")
        return len(due)

    def check_output(self) -> None:
        """Checker 6: what is visible at the end is what the run without faults makes visible."""
        if self._world.lost:
            raise Violation("output", f"to be committed, but discarded before: {self._world.lost}")
        due, found = Counter(self._program.output), Counter(self._world.output())
        if due != found:
            raise Violation("output", f"missing {dict(due - found)}, too many {dict(found - due)}")
