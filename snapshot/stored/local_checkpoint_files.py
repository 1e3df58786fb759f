"""Records of subtasks alone in the store, and the parts of the cut that a restore makes of them (PROTOCOL 14).

Owns the place of records. Every call blocks, as those of `snapshot.stored.run_store` do. Which records a cut needs is
decided in `snapshot.modes.records.composed_cut`.
"""

from __future__ import annotations

from cutline.snapshot.channel.frame import Frame
from cutline.snapshot.channel.frame_codec import cut_frame
from cutline.snapshot.errors import SnapshotCorrupt
from cutline.snapshot.stored import layout
from cutline.snapshot.stored.certificate import SubtaskRecord
from cutline.snapshot.stored.cut_plan import ChannelState, CutPlan
from cutline.snapshot.stored.local_checkpoint import LocalCheckpoint, decode_record, encode_record
from cutline.snapshot.stored.part import PartKind, channel_part, decode_frames
from cutline.snapshot.stored.run_store import RunStore


class LocalCheckpointFiles:
    """Read and write the records of one run.

    Parameters
    ----------
    store : RunStore
    """

    def __init__(self, store: RunStore) -> None:
        self._store = store

    def write(self, record: LocalCheckpoint) -> None:
        """Put a record, durable on return. A record that is there already is not written again.

        Raises
        ------
        OSError
            if the store fails. Nobody knows then whether the record is there.
        """
        self._store.put_record(layout.record_path(record.record.state), encode_record(record))

    def newest(self, incarnation: int) -> tuple[LocalCheckpoint, ...]:
        """Return the newest record of each subtask that has one in an incarnation."""
        found: dict[str, tuple[int, str]] = {}
        for path in self._store.record_paths():
            at = layout.record_origin(path)
            if at is not None and at.incarnation == incarnation:
                found[at.subtask] = max(found.get(at.subtask, (0, "")), (at.number, path))
        return tuple(self.read(path) for _, path in sorted(found.values()))

    def read(self, path: str) -> LocalCheckpoint:
        """Return the record of a path.

        Raises
        ------
        SnapshotCorrupt
            if the record is missing, damaged, or another one.
        """
        name, data = self._store.read_record(path)
        record = decode_record(data, name)
        if record.run != self._store.run or layout.record_path(record.record.state) != path:
            raise SnapshotCorrupt(f"{name}: offset 0: whole, but record {record.number} of {record.subtask}")
        return record

    def store_cut(self, plan: CutPlan, snapshot_id: int, incarnation: int) -> tuple[SubtaskRecord, ...]:
        """Store the messages between the records of a cut. Return its records.

        Raises
        ------
        SnapshotCorrupt
            if a part is damaged or missing.
        OSError
            if the store fails. The call may be repeated.
        """
        # A part of another run is copied, because the retention of that run knows nothing of this one.
        whole = [each for each in plan.channels if each.is_whole_part and each.parts[0].run == self._store.run]
        messages = {each.channel: each.parts[0] for each in whole}
        at = (self._store.run, incarnation, snapshot_id)
        for sender in dict.fromkeys(each.channel.source for each in plan.channels):  # a file of parts has one sender
            cut = [each for each in plan.channels if each.channel.source == sender and each.channel not in messages]
            parts = [channel_part(PartKind.SENT, *at, each.channel, self._frames(each)) for each in cut]
            handles = self._store.put_parts(parts) if parts else []
            messages |= {each.channel: handle for each, handle in zip(cut, handles, strict=True)}
        return plan.records_with(messages, incarnation)

    def _frames(self, state: ChannelState) -> list[Frame]:
        """Return the messages of a channel between two records. Entries are cut inside (PROTOCOL 14.5, restore)."""
        frames: list[Frame] = []
        after = state.processed
        for handle in state.parts:
            stored = decode_frames(handle, self._store.read_part(handle))
            frames += [cut_frame(frame, after, state.sent) for frame in stored if frame.last > after]
            after = handle.last
        return frames
