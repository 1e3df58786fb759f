"""Write the history of a simulated run, as the observer of its subtasks.

Counts the sent and processed messages of every channel itself. Has a vector clock for every subtask, and stamps every
message with its sender's clock. After a restore, counts and clocks go on from the cut of the snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from cutline.snapshot.channel.frame import Frame, Marker
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.channel.undecodable import decoded_messages
from cutline.snapshot.ids import ChannelId, Subtask, renamed_channel
from cutline.snapshot.modes.steps.renumbering import renumbered
from cutline.snapshot.node import Node
from cutline.snapshot.stored.manifest import Manifest
from cutline.snapshot.stored.part import Handle
from cutline.snapshot.stored.renaming import with_present_names
from cutline.snapshot.subtask.observer import Inputs, Observer, Outputs
from cutline.snapshot.subtask.restored import RestoredChannels
from cutline.snapshot.testing.history import VECTOR_CLOCKS_MAX, Cut, History, Start
from cutline.snapshot.testing.payload import pack, pack_rows
from cutline.snapshot.testing.simulation.scheduler import Scheduler
from cutline.snapshot.trace_events import Event, Kind, pack_counts

#: Incarnation that a snapshot of another run has in the history, because the incarnations of a fork begin anew.
FOREIGN = 0

#: Hooks whose calls are events in the history.
_HOOKS = {"poll": Kind.POLL, "onTimer": Kind.TIMER}


class HistoryLog:
    """Observes every event of the run.

    Parameters
    ----------
    history : History
        The history that is written.
    scheduler : Scheduler
        The scheduler whose clock is read.
    seals_each : bool
        Whether to close a frame after every message, so that each message can be delivered alone.
    """

    def __init__(self, history: History, scheduler: Scheduler, codec: Codec, *, seals_each: bool) -> None:
        self.history = history
        self.seals_each = seals_each
        self._scheduler = scheduler
        self._codec = codec
        subtasks = history.topology.subtasks
        is_vector = len(subtasks) <= VECTOR_CLOCKS_MAX
        #: {subtask: its place in the clock}; with one shared place the clock is Lamport's
        self._numbers = {subtask: number if is_vector else 0 for number, subtask in enumerate(subtasks)}
        self._zero = (0,) * (len(subtasks) if is_vector else 1)
        #: {(incarnation, channel): {number: the sender's clock}}
        self._stamps: dict[tuple[int, ChannelId], dict[int, tuple[int, ...]]] = {}

    def watch(
        self,
        subtask: Subtask,
        incarnation: int,
        origin: tuple[int, int] | None,
        snapshot_id: int,
        restored: RestoredChannels,
    ) -> SubtaskHistory:
        """Observe a subtask in a new incarnation, afresh or from the cut of `origin`: (incarnation, snapshot_id).

        `snapshot_id` is the restored snapshot, or 0. A replay restores a snapshot and begins afresh.

        The channels of a reshaped edge begin as they were `restored`, because the cut has other channels. So do all
        channels where a log begins with compacted input, and where the cut was no moment.
        """
        topology = self.history.topology
        compacted = renumbered(restored, subtask, topology)
        restored = compacted or restored
        cut = None if origin is None else self.history.cuts[*origin, subtask]
        clock = list(self._zero if cut is None else cut.clock)
        subtask_history = SubtaskHistory(self, subtask, incarnation, self._numbers[subtask], clock)
        starts = self.history.starts
        begins = compacted is not None or (topology.row.divides and origin is not None)
        for channel in topology.outputs_of(subtask):
            if channel.target.node in restored.fresh_outputs or begins:
                starts.setdefault((incarnation, channel), Start()).sent = restored.sent[channel]
            is_reshaped = (incarnation, channel) in starts
            kept = 0 if cut is None else cut.sent[channel]
            subtask_history.sent[channel] = restored.sent[channel] if is_reshaped else kept
        for channel in topology.inputs_of(subtask):
            if channel in restored.reshaped or begins:
                starts.setdefault((incarnation, channel), Start()).processed = restored.processed[channel]
                subtask_history.processed[channel] = restored.processed[channel]
                for frame in restored.frames.get(channel, ()):
                    self._adopt_frame(incarnation, channel, frame)
                continue
            subtask_history.processed[channel] = 0 if cut is None else cut.processed[channel]
            self._restore_channel(channel, incarnation, origin)
        self.history.origins.setdefault(incarnation, origin)
        subtask_history.note(Kind.RESTORED, snapshot_id=snapshot_id, payload=subtask_history.counts())
        return subtask_history

    def adopt(
        self,
        manifest: Manifest,
        names: Mapping[str, str],
        frames_of: Callable[[Handle], Sequence[Frame]],
        *,
        is_foreign: bool,
    ) -> None:
        """Adopt the cuts of a stored snapshot, and its messages, as those of an earlier run.

        `names` is {name in the snapshot: name now} of renamed nodes. A foreign snapshot is of a run of another name.
        """
        manifest = with_present_names(manifest, names)
        incarnation, snapshot_id = FOREIGN if is_foreign else manifest.incarnation, manifest.snapshot_id
        if not is_foreign:
            self.history.adopted[snapshot_id] = None
        # Channels that the stored graph did not have are at their beginning.
        sent = dict.fromkeys(self.history.topology.channels, 0)
        processed = dict(sent)
        for record in manifest.records:
            sent.update((entry.channel, entry.sent) for entry in record.sent)
            processed.update((entry.channel, entry.processed) for entry in record.received)
            for handle in record.handles:
                if handle.channel is not None:
                    for frame in frames_of(handle):
                        self._adopt_frame(incarnation, renamed_channel(handle.channel, names), frame)
        bases = {record.subtask: record.base for record in manifest.records}
        for subtask in self.history.topology.subtasks:
            outputs, inputs = self.history.topology.outputs_of(subtask), self.history.topology.inputs_of(subtask)
            at = {channel: sent[channel] for channel in outputs}, {channel: processed[channel] for channel in inputs}
            self._adopt_cut(incarnation, snapshot_id, subtask, at)
            base = bases.get(subtask)
            if base is not None and base.snapshot_id != snapshot_id:  # retention may have removed that snapshot
                at = dict(zip(outputs, base.sent, strict=False)), dict(zip(inputs, base.processed, strict=False))
                self._adopt_cut(FOREIGN if is_foreign else base.incarnation, base.snapshot_id, subtask, at)

    def compose(self, manifest: Manifest) -> bool:
        """Note that a snapshot was made of records of subtasks alone. Return False for records of an earlier history.

        Its messages in flight were sent in the incarnation of the records, whose number is the highest.
        """
        at = {record.subtask: (record.state.incarnation, record.state.snapshot_id) for record in manifest.records}
        if any((*found, subtask) not in self.history.cuts for subtask, found in at.items()):
            return False
        earlier = max(incarnation for incarnation, _ in at.values())
        for subtask, (incarnation, number) in at.items():
            self.history.composed[manifest.snapshot_id, subtask] = (incarnation, number)
            cut = self.history.cuts[incarnation, number, subtask]
            self.history.cuts[manifest.incarnation, manifest.snapshot_id, subtask] = cut
        if earlier != manifest.incarnation:
            for channel in self.history.topology.channels:
                self._restore_channel(
                    channel, manifest.incarnation, (manifest.incarnation, manifest.snapshot_id), earlier
                )
        return True

    def begin_composed(self, manifest: Manifest) -> None:
        """Note that the adopted snapshot is made of records of an earlier history, which has no events here."""
        for record in manifest.records:
            self.history.composed[manifest.snapshot_id, record.subtask] = (FOREIGN, 0)
        self.history.origins.setdefault(FOREIGN, None)
        self.history.origins.pop(manifest.incarnation)

    def _adopt_cut(
        self,
        incarnation: int,
        snapshot_id: int,
        subtask: Subtask,
        at: tuple[dict[ChannelId, int], dict[ChannelId, int]],
    ) -> None:
        self.history.origins.setdefault(incarnation, None)
        self.history.cuts[incarnation, snapshot_id, subtask] = Cut(incarnation, snapshot_id, subtask, self._zero, *at)

    def _adopt_frame(self, incarnation: int, channel: ChannelId, frame: Frame) -> None:
        messages = decoded_messages(frame, self._codec)
        if isinstance(messages, pa.RecordBatch):
            packed: Sequence[bytes | None] = pack_rows(messages, self._codec)
        else:
            packed = [pack(message, self._codec) for message in messages] or [None]  # the end has no message
        for number, each in enumerate(packed, frame.first):
            self.log(incarnation, channel)[number] = each
            self.stamps(incarnation, channel)[number] = self._zero

    def _restore_channel(
        self, channel: ChannelId, incarnation: int, origin: tuple[int, int] | None, sent_in: int | None = None
    ) -> None:
        """Count the messages in flight at the cut as sent in the new incarnation. They were sent in `sent_in`."""
        log, stamps = self.log(incarnation, channel), self.stamps(incarnation, channel)
        if origin is None:
            return
        earlier, snapshot_id = origin
        first = self.history.cuts[earlier, snapshot_id, channel.target].processed[channel] + 1
        last = self.history.cuts[earlier, snapshot_id, channel.source].sent[channel]
        sent_in = earlier if sent_in is None else sent_in
        for number in range(first, last + 1):
            log[number] = self.log(sent_in, channel)[number]
            stamps[number] = self.stamps(sent_in, channel)[number]

    def log(self, incarnation: int, channel: ChannelId) -> dict[int, bytes | None]:
        """Return the sent messages of a channel: {number: encoded message, or None for the end}."""
        return self.history.sent.setdefault((incarnation, channel), {})

    def stamps(self, incarnation: int, channel: ChannelId) -> dict[int, tuple[int, ...]]:
        """Return the clocks of the sent messages of a channel, by number."""
        return self._stamps.setdefault((incarnation, channel), {})

    def note(
        self, kind: Kind, incarnation: int = 0, subtask: Subtask | None = None, *, snapshot_id: int = 0, text: str = ""
    ) -> None:
        """Note an event of the run, or of a subtask that does not run."""
        event = Event(self._scheduler.now, kind, incarnation, subtask, snapshot_id=snapshot_id, text=text)
        self.history.events.append(event)

    @property
    def now(self) -> float:
        """The virtual time in seconds."""
        return self._scheduler.now

    @property
    def codec(self) -> Codec:
        """The codec by which messages are encoded."""
        return self._codec


class SubtaskHistory(Observer):
    """One subtask in one incarnation: its clock and its counts."""

    def __init__(
        self, history_log: HistoryLog, subtask: Subtask, incarnation: int, number: int, clock: list[int]
    ) -> None:
        self.sent: dict[ChannelId, int] = {}
        self.processed: dict[ChannelId, int] = {}
        #: called with the snapshot id of each cut
        self.on_cut: Callable[[int], None] = lambda snapshot_id: None
        self._history_log = history_log
        self._events = history_log.history.events
        self._incarnation = incarnation
        self._subtask = subtask
        self._number = number
        self._clock = clock

    def attached(self, node: Node, inputs: Inputs, outputs: Outputs) -> None:
        self._ends = outputs
        self._senders = {channel: self._sender(channel) for channel in outputs}
        self._receivers = {channel: self._receiver(channel) for channel in inputs}

    def note(self, kind: Kind, *, snapshot_id: int = 0, payload: bytes = b"", text: str = "") -> None:
        """Write an event that advances the clock."""
        self._clock[self._number] += 1
        at, clock = self._history_log.now, tuple(self._clock)
        self._events.append(
            Event(at, kind, self._incarnation, self._subtask, clock, None, 0, snapshot_id, payload, text)
        )

    def counts(self) -> bytes:
        """Encode the counts of all channels, in the order of the topology, as the payload of an event."""
        return pack_counts(self.sent.values(), self.processed.values())

    def hook_begins(self, hook: str) -> None:
        kind = _HOOKS.get(hook)
        if kind is not None:
            self.note(kind)

    # ---------------------------------------------------------------- sending

    def message_sending(self, channel: ChannelId, message: Any) -> bytes:
        return pack(message, self._history_log.codec)

    def message_sent(self, channel: ChannelId, kept: bytes) -> None:
        self._senders[channel](Kind.SEND, kept)
        if self._history_log.seals_each:
            self._ends[channel].seal()

    def rows_sending(self, channel: ChannelId, batch: pa.RecordBatch) -> Sequence[bytes]:
        return pack_rows(batch, self._history_log.codec)

    def rows_sent(self, channel: ChannelId, kept: Sequence[bytes]) -> None:
        for row in kept:
            self._senders[channel](Kind.SEND, row)

    def end_sent(self, channel: ChannelId) -> None:
        self._senders[channel](Kind.END_SENT, None)

    def _sender(self, channel: ChannelId) -> Callable[[Kind, bytes | None], None]:
        """Return a function that notes the messages of an output. Its tables are found once, not for every message."""
        history_log, incarnation, subtask = self._history_log, self._incarnation, self._subtask
        log, stamps = history_log.log(incarnation, channel), history_log.stamps(incarnation, channel)
        sent, clock, own, append = self.sent, self._clock, self._number, self._events.append

        def note(kind: Kind, packed: bytes | None) -> None:
            number = sent[channel] = sent[channel] + 1
            clock[own] += 1
            log[number] = packed
            stamp = stamps[number] = tuple(clock)
            append(Event(history_log.now, kind, incarnation, subtask, stamp, channel, number, 0, packed or b""))

        return note

    # ---------------------------------------------------------------- receiving

    def message_received(self, channel: ChannelId, message: Any) -> None:
        self._receivers[channel](Kind.RECEIVE, pack(message, self._history_log.codec))

    def rows_received(self, channel: ChannelId, batch: pa.RecordBatch) -> None:
        for row in pack_rows(batch, self._history_log.codec):
            self._receivers[channel](Kind.RECEIVE, row)

    def end_received(self, channel: ChannelId) -> None:
        self._receivers[channel](Kind.END_RECEIVED, b"")

    def _receiver(self, channel: ChannelId) -> Callable[[Kind, bytes], None]:
        """Return a function that notes the messages of an input. Its tables are found once, not for every message."""
        history_log, incarnation, subtask = self._history_log, self._incarnation, self._subtask
        stamps = history_log.stamps(incarnation, channel)
        processed, clock, own, append = self.processed, self._clock, self._number, self._events.append

        def note(kind: Kind, packed: bytes) -> None:
            number = processed[channel] = processed[channel] + 1
            stamp = stamps.get(number)
            if stamp is not None:
                clock[:] = map(max, clock, stamp)
            clock[own] += 1
            append(Event(history_log.now, kind, incarnation, subtask, tuple(clock), channel, number, 0, packed))

        return note

    # ---------------------------------------------------------------- snapshots

    def marker_arrived(self, channel: ChannelId, marker: Marker) -> None:
        self._note_marker(Kind.MARKER, channel, marker)

    def marker_sent(self, channel: ChannelId, marker: Marker) -> None:
        self._note_marker(Kind.MARKER_SENT, channel, marker)

    def _note_marker(self, kind: Kind, channel: ChannelId, marker: Marker) -> None:
        at, clock = self._history_log.now, tuple(self._clock)
        self._events.append(
            Event(at, kind, self._incarnation, self._subtask, clock, channel, marker.written, marker.snapshot_id)
        )

    def cut(self, snapshot_id: int) -> None:
        self.on_cut(snapshot_id)
        self.note(Kind.CUT, snapshot_id=snapshot_id, payload=self.counts())
        cut = Cut(
            self._incarnation, snapshot_id, self._subtask, tuple(self._clock), dict(self.sent), dict(self.processed)
        )
        self._history_log.history.cuts[self._incarnation, snapshot_id, self._subtask] = cut

    def published(self, snapshot_id: int) -> None:
        self.note(Kind.COMMIT, snapshot_id=snapshot_id)
