"""Collect edits of a stored snapshot, and make the snapshot that they lead to.

Owns the records and parts of the edited snapshot. Must not know claims, nor who else uses the run: the caller holds the
claim under which the snapshot is stored. The certificate of the edited snapshot is checked before anything is
published.

A channel with R messages left becomes one receiver's part. With S and p as in PROTOCOL 1 it gets S' = max(S, R), w = S'
and p' = S' - R at both ends. So both ends go on with numbers that fit, and no number is used twice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from cutline.snapshot.channel.edited_frames import (
    EditedFrames,
    InFlight,
    Meant,
    Replacement,
    Where,
    by_content,
    by_number,
    dropped,
    listed,
    renumbered,
    renumbered_waves,
    replaced,
)
from cutline.snapshot.channel.frame import Frame
from cutline.snapshot.channel.partitioning import key_group
from cutline.snapshot.channel.undecodable import Undecodable
from cutline.snapshot.editing.compacted_input import compacted_logs
from cutline.snapshot.editing.rows import RowEdits, find_state
from cutline.snapshot.errors import GraphError
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.keyed.rows import StateSpec
from cutline.snapshot.plan.compiled_graph import build
from cutline.snapshot.plan.declarations import DeclaredGraph
from cutline.snapshot.stored.certificate import ChannelWaves, ListEntry, ReceivedEntry, SentEntry, SubtaskRecord
from cutline.snapshot.stored.manifest import Manifest
from cutline.snapshot.stored.own_changes import OwnChange, decode_changes
from cutline.snapshot.stored.part import Handle, Part, PartKind, channel_part, decode_frames, state_part
from cutline.snapshot.stored.run_store import RunStore
from cutline.snapshot.stored.snapshot import Snapshot
from cutline.snapshot.stored.topology_record import topology_of_record
from cutline.snapshot.worker.generations import CompactRows, EncodeRows, StoreRows
from cutline.snapshot.worker.ledger import TaskFailed
from cutline.snapshot.worker.storage_tasks import StorageWork

#: An edge by the names of its nodes, or a channel by its subtasks.
Edge = tuple[str | Subtask, str | Subtask]


class MendedSnapshot:
    """A stored snapshot with edits. Edits apply in the order of the calls, each to the result of those before.

    Parameters
    ----------
    snapshot : Snapshot
        The snapshot to edit, which stays as it is. Its codec decodes messages, so a safe one refuses pickled objects.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        #: texts of the edits, in the order of the calls
        self.edits: list[str] = []
        #: {channel: what is left}, of edited channels
        self._channels: dict[ChannelId, _Left] = {}
        #: {subtask: edited rows}
        self._rows: dict[Subtask, RowEdits] = {}
        #: {subtask: the step that is its log}, where the input is compacted
        self._logs: dict[Subtask, bytes] = {}

    def problem_of_steps(self, *, is_copy: bool) -> str | None:
        """Return why steps after the state forbid the edits, or a copy under another name; None if they do not."""
        records = self.snapshot.manifest.records
        if is_copy and any(each.version is not None and each.rows is None for each in records):
            return (
                "its rows are in local databases only, which cannot be copied (PersistentState(copy=True) stores them)"
            )
        steps = next((each.subtask for each in records if each.steps and each.subtask not in self._logs), None)
        if steps is None or not (is_copy or self._rows):
            return None
        what = "another run cannot repeat" if is_copy else "would do something else with other rows"
        return (
            f"it has steps of {steps} behind its state, which {what}. Take a snapshot on request (takeSnapshot), which "
            "has the state in modes deltas and persistentState; or fork the run: submit with restoreFrom=snapshot"
        )

    # ---------------------------------------------------------------- messages

    def messages(self, edge: Edge) -> list[InFlight]:
        """Return the messages in flight on an edge, in order for each channel, as the edits before left them.

        Parameters
        ----------
        edge : tuple
            (source, target): names of nodes, or `Subtask`s, which name one channel of the edge.

        Returns
        -------
        list of InFlight
            (channel, number, message); a row of a batch is a dict. A message that cannot be decoded here is an
            `Undecodable`.

        Raises
        ------
        GraphError
            if there is no such edge.
        """
        return [
            each for channel in self._between(edge)
            for each in listed(channel, self._left(channel).frames, self.snapshot.codec)
        ]  # fmt: skip

    def dropMessages(self, edge: Edge, where: Where | None = None, *, numbers: Collection[int] | None = None) -> Self:
        """Drop messages in flight on an edge: those for which `where` is true, or those of `numbers`.

        The end of a stream stays.

        Parameters
        ----------
        edge : tuple
            (source, target): names of nodes, or `Subtask`s, which name one channel of the edge.
        where : callable, optional
            Takes a message; a row of a batch is a dict. A message that cannot be decoded here is not passed to it.
        numbers : collection of int, optional
            Numbers as `messages` lists them, of a channel that two `Subtask`s name. Messages are not decoded.

        Raises
        ------
        GraphError
            if there is no such edge, `where` is true for no message, a number is not in flight, or not exactly one of
            `where` and `numbers` is given.
        """
        return self._edit(edge, "dropped", where, numbers, None)

    def replaceMessages(
        self,
        edge: Edge,
        where: Where | None = None,
        replacement: Replacement | None = None,
        *,
        numbers: Collection[int] | None = None,
    ) -> Self:
        """Put `replacement(message)` in the place of messages in flight, chosen as by `dropMessages`.

        A new message stays on the channel of the old one. So after a hash edge it has a key of the same subtask. By
        number, `replacement` may get an `Undecodable`.

        Raises
        ------
        GraphError
            as `dropMessages`, or if there is no `replacement`, or a new message cannot be stored.
        """
        if replacement is None:
            raise GraphError("replaceMessages takes `replacement`, a function from a message to another")
        return self._edit(edge, "replaced", where, numbers, replacement)

    def _edit(
        self,
        edge: Edge,
        verb: str,
        where: Where | None,
        numbers: Collection[int] | None,
        replacement: Replacement | None,
    ) -> Self:
        channels = self._between(edge)
        meant = self._meant(channels, where, numbers)
        total = count = 0
        edited: dict[ChannelId, _Left] = {}
        for channel in channels:
            left = self._left(channel)
            found = self._edited(left.frames, meant, replacement)
            total += left.sent - left.processed
            count += found.message_count
            if found.message_count:
                edited[channel] = left.after(found)
        what = f"{edge[0]}->{edge[1]}"
        if not count:
            raise GraphError(
                f"{self.snapshot}: {what}: `where` is true for none of {total:,} messages in flight"
                f"{self._undecodable_text(edge)}"
            )
        self._channels |= edited
        self.edits.append(f"{verb} {count:,} of {total:,} messages in flight on {what}")
        return self

    def _between(self, edge: Edge) -> list[ChannelId]:
        return self.snapshot.channels_between(*_pair(edge))

    def _left(self, channel: ChannelId) -> _Left:
        return self._channels.get(channel) or _left(self.snapshot, channel)

    def _meant(self, channels: Sequence[ChannelId], where: Where | None, numbers: Collection[int] | None) -> Meant:
        """Return what `where` or `numbers` mean. Refuse both, neither, and numbers that are not in flight."""
        if where is not None and numbers is None:
            return by_content(where)
        if where is not None or not numbers:
            raise GraphError("give either `where`, or `numbers` that are not empty")
        if len(channels) != 1:
            raise GraphError(
                f"numbers count on one channel, and there are {len(channels)}: name it by two subtasks, as "
                f"({channels[0].source!r}, {channels[0].target!r})"
            )
        frames = self._left(channels[0]).frames
        there = {number for frame in frames if not frame.is_control for number in range(frame.first, frame.last + 1)}
        if missing := sorted(set(numbers) - there):
            raise GraphError(f"{self.snapshot}: {channels[0]}: no messages {missing} are in flight")
        return by_number(set(numbers))

    def _undecodable_text(self, edge: Edge) -> str:
        count = sum(isinstance(each.message, Undecodable) for each in self.messages(edge))
        return f"; {count:,} cannot be decoded here: `messages` has their numbers" if count else ""

    def _edited(self, frames: list[Frame], meant: Meant, replacement: Replacement | None) -> EditedFrames:
        codec = self.snapshot.codec
        return dropped(frames, meant, codec) if replacement is None else replaced(frames, meant, replacement, codec)

    # ---------------------------------------------------------------- rows

    def setValue(self, node: str, state: str, key: Any, value: Any) -> Self:
        """Set the value of a key. A list replaces all items of a list state, a dict all entries of a map state.

        Raises
        ------
        GraphError
            if there is no such node or state, or the value is of another kind.
        NodeError
            if the key or the value cannot be stored.
        """
        rows, spec = self._found(node, state, key)
        rows.set(spec, key, value)
        self.edits.append(f"set state {state!r} of {node}, key {key!r}")
        return self

    def clear(self, node: str, state: str, key: Any) -> Self:
        """Remove the value of a key.

        Raises
        ------
        GraphError
            if there is no such node or state, or the key has no value.
        """
        rows, spec = self._found(node, state, key)
        rows.clear(spec, key)
        self.edits.append(f"cleared state {state!r} of {node}, key {key!r}")
        return self

    def _found(self, node: str, state: str, key: Any) -> tuple[RowEdits, StateSpec]:
        records = self.snapshot.records(node)
        spec = find_state(records, node, state, self.snapshot.read_part)
        try:
            group = key_group(key)
        except TypeError as error:
            raise GraphError(f"node {node!r}, state {state!r}: {error}") from error
        # The certificate holds, so the key groups of a node with rows cover all key groups.
        owner = next(each for each in records if each.groups is not None and each.groups[0] <= group < each.groups[1])
        if owner.subtask not in self._rows:
            self._rows[owner.subtask] = RowEdits(owner, self.snapshot.read_part, self.snapshot.codec)
        return self._rows[owner.subtask], spec

    # ---------------------------------------------------------------- log of steps

    def compactInput(self, graph: DeclaredGraph) -> Self:
        """Let a restore begin with what `ReplayableSource.compactInput` returns, and not with the first input.

        All nodes but the sinks run here with the compacted messages, in this process and its memory. Their states must
        then have the hashes of the snapshot.

        Parameters
        ----------
        graph : Graph
            The graph of the run, whose mode is ``InputLogging(hashes="states")``.

        Raises
        ------
        RestoreRefused
            if a state differs, by node and subtask; if a source has no `compactInput`; or if the snapshot has no hashes
            of states, or is of another graph.
        NodeError
            if a hook fails.
        """
        stored = topology_of_record(self.snapshot.manifest.topology)
        before = sum(handle.size for record in self.snapshot.manifest.records for handle in record.steps or ())
        self._logs = compacted_logs(self.snapshot, build(graph, "unaligned", stored.mode))
        after = sum(map(len, self._logs.values()))
        self.edits.append(f"compacted the input: a log of {after:,} bytes instead of {before:,}")
        return self

    # ---------------------------------------------------------------- the edited snapshot

    def store_parts(self, store: RunStore, claim: int, snapshot_id: int) -> Manifest:
        """Store the parts of the edited snapshot, and return the manifest to publish. Blocks for the store.

        Under another run every part is copied, because a list has only parts of its own run (PROTOCOL 10.4, own run).

        Parameters
        ----------
        store : RunStore
            Of the run to write to: the snapshot's own run, or another one.
        claim : int
            The held claim, which is the incarnation of the edited snapshot too.
        snapshot_id : int
            An id of the claim's block.

        Raises
        ------
        OSError
            if the store fails.
        GraphError
            if an edited key cannot be stored.
        SnapshotCorrupt
            if a stored part is damaged, or the certificate of the edited snapshot does not hold.
        """
        writing = _Writing(self.snapshot, store, claim, snapshot_id, self._channels, self._rows, self._logs)
        manifest = replace(
            self.snapshot.manifest,
            run=store.run,
            snapshot_id=snapshot_id,
            incarnation=claim,
            claim=claim,
            duration=0.0,
            pinned=False,
            records=tuple(map(writing.record, self.snapshot.manifest.records)),
            edited_from=self.snapshot.id,
        )
        Snapshot(manifest, store.read_stored, self.snapshot.codec)  # checks the certificate
        return manifest


@dataclass(frozen=True, slots=True)
class _Left:
    """The messages of a channel that are left, in one part of the receiver: (p', S']."""

    frames: list[Frame]
    processed: int
    sent: int
    waves: tuple[tuple[int, int], ...]

    def after(self, edit: EditedFrames) -> _Left:
        """Return what is left after an edit: S' = max(S, R) and p' = S' - R for R messages."""
        count = sum(frame.count for frame in edit.frames)
        sent = max(self.sent, count)
        waves = renumbered_waves(self.waves, (self.processed, sent - count), edit.gone)
        return _Left(renumbered(edit.frames, sent - count + 1), sent - count, sent, waves)


def _left(snapshot: Snapshot, channel: ChannelId) -> _Left:
    """Return the messages of a channel as the snapshot has them."""
    recorded = snapshot.channel(*channel)
    (record,) = snapshot.records(channel.target)
    waves = next((each.waves for each in record.waves or () if each.channel == channel), ())
    return _Left(snapshot.frames_of(channel), recorded.processed, recorded.sent, waves)


class _Writing:
    """Store the parts of one edited snapshot."""

    def __init__(
        self,
        snapshot: Snapshot,
        store: RunStore,
        claim: int,
        snapshot_id: int,
        channels: dict[ChannelId, _Left],
        rows: dict[Subtask, RowEdits],
        logs: dict[Subtask, bytes],
    ) -> None:
        self._snapshot = snapshot
        self._store = store
        self._at = (store.run, claim, snapshot_id)
        self._snapshot_id = snapshot_id
        self._edited_rows = rows
        self._is_copy = store.run != snapshot.run
        self._work = StorageWork(store.run, claim, snapshot.codec, store.put_rows, snapshot.read_part)
        self._channels = channels
        self._logs = logs

    def record(self, record: SubtaskRecord) -> SubtaskRecord:
        """Store the parts of a subtask, and return its record."""
        left = self._channels
        return replace(
            record,
            incarnation=self._at[1],
            handles=self._handles(record),
            sent=tuple(self._sent(each) if each.channel in left else each for each in record.sent),
            received=tuple(self._received(each) if each.channel in left else each for each in record.received),
            waves=tuple(self._waves(record.waves or ())) or None,
            rows=self._row_list(record),
            own=self._own_list(record) if record.own and self._is_copy else record.own,
            steps=self._step_list(record),
            version=None if self._has_other_rows(record) else record.version,
        )  # fmt: skip

    def _has_other_rows(self, record: SubtaskRecord) -> bool:
        """Return whether the list of rows is another one now, so that no local database has the same rows."""
        return record.rows is not None and (self._is_copy or record.subtask in self._edited_rows)

    def _sent(self, entry: SentEntry) -> SentEntry:
        sent = self._channels[entry.channel].sent
        return replace(entry, sent=sent, written=sent, first=0, last=0)

    def _received(self, entry: ReceivedEntry) -> ReceivedEntry:
        left = self._channels[entry.channel]
        first, last = (left.processed + 1, left.sent) if left.frames else (0, 0)
        return replace(entry, processed=left.processed, written=left.sent, first=first, last=last)

    def _waves(self, waves: Sequence[ChannelWaves]) -> Iterator[ChannelWaves]:
        for each in waves:
            left = self._channels.get(each.channel)
            kept = each.waves if left is None else left.waves
            if kept:
                yield replace(each, waves=kept)

    def _handles(self, record: SubtaskRecord) -> tuple[Handle, ...]:
        unchanged = [each for each in record.handles if each.channel not in self._channels]
        parts: list[Part] = []
        if self._is_copy:
            parts += map(self._copied, unchanged)
            unchanged = []
        for entry in record.received:
            left = self._channels.get(entry.channel)
            if left is not None and left.frames:
                parts.append(channel_part(PartKind.RECEIVED, *self._at, entry.channel, left.frames))
        return (*unchanged, *(self._store.put_parts(parts) if parts else ()))

    def _copied(self, handle: Handle) -> Part:
        body = self._snapshot.read_part(handle)
        if handle.channel is None:
            return state_part(*self._at, handle.subtask, [body])
        return channel_part(handle.kind, *self._at, handle.channel, decode_frames(handle, body))

    # ---------------------------------------------------------------- lists

    def _row_list(self, record: SubtaskRecord) -> tuple[ListEntry, ...] | None:
        """Return the list of rows: as it was, or copied to a base, and the edited rows as generation 1 after it."""
        entries = record.rows or ()
        if entries and self._is_copy:
            sources = tuple((entry,) for entry in entries)
            entries = self._stored(
                CompactRows(
                    record.subtask, 0, 0, self._snapshot_id, sources, is_whole=True, inline_bytes_max=self._room()
                )
            )
        edits = self._edited_rows.get(record.subtask)
        if edits is None:
            return None if record.rows is None else entries
        encoded = self._work.encode(EncodeRows(record.subtask, 1, edits.captured()))
        if isinstance(encoded, TaskFailed):
            raise GraphError(f"{self._snapshot}: {encoded.reason}")
        room = self._room(entries)
        task = StoreRows(record.subtask, PartKind.ROWS, 1, 1, self._snapshot_id, encoded, room)
        return (*entries, *self._stored(task))

    def _own_list(self, record: SubtaskRecord) -> tuple[Handle, ...]:
        """Copy own state in deltas into one part, which begins with the newest whole state."""
        read = self._snapshot.read_part
        changes = [each for handle in record.own or () for each in decode_changes(read(handle), handle.name)]
        start = max(number for number, (is_whole, _) in enumerate(changes) if is_whole)
        kept = tuple(OwnChange(is_whole, (body,)) for is_whole, body in changes[start:])
        task = StoreRows(record.subtask, PartKind.OWN, 0, len(kept), self._snapshot_id, kept, self._room())
        return tuple(entry.handle for entry in self._stored(task))

    def _step_list(self, record: SubtaskRecord) -> tuple[Handle, ...] | None:
        """Return the log of steps: as it was, or of compacted input, which begins the log."""
        if record.subtask not in self._logs:
            return record.steps
        steps = (OwnChange(True, (self._logs[record.subtask],)),)
        task = StoreRows(record.subtask, PartKind.STEPS, 0, 0, self._snapshot_id, steps, self._room())
        return tuple(entry.handle for entry in self._stored(task))

    def _stored(self, task: StoreRows | CompactRows) -> tuple[ListEntry, ...]:
        return self._work.store(task)

    def _room(self, entries: Sequence[ListEntry] = ()) -> int:
        """Return the bytes that a list may still hold inside the manifest."""
        return max(0, self._store.backend.inline_bytes_max - sum(len(each.handle.inline or b"") for each in entries))


def _pair(edge: Edge) -> Edge:
    if not isinstance(edge, tuple) or len(edge) != 2:
        raise GraphError(f"an edge is given as (source, target), two names of nodes or two subtasks, not as {edge!r}")
    return edge
