"""Mutants of PROTOCOL 14: mode channelLogs, with one rule taken away."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cutline.snapshot.channel.frame import Frame
from cutline.snapshot.coordinator import events
from cutline.snapshot.coordinator.deployment import Deployment
from cutline.snapshot.modes.records.composition import Composition
from cutline.snapshot.modes.records.record_tracker import LocalCheckpointTracker
from cutline.snapshot.modes.records.record_writer import Decisions, LocalCheckpointWriter, _Subtask
from cutline.snapshot.modes.records.recording import LocalCheckpointing
from cutline.snapshot.stored import layout
from cutline.snapshot.stored.certificate import SubtaskRecord
from cutline.snapshot.stored.cut_plan import ChannelState
from cutline.snapshot.stored.history import Claim
from cutline.snapshot.stored.local_checkpoint import LocalCheckpoint
from cutline.snapshot.stored.local_checkpoint_files import LocalCheckpointFiles
from cutline.snapshot.stored.memory_files import MemoryFiles
from cutline.snapshot.stored.part import decode_frames
from cutline.snapshot.stored.run_store import RunStore

Patch = pytest.MonkeyPatch


# ---------------------------------------------------------------- 14.1: one write


def messages_in_a_second_write(patch: Patch) -> None:
    """The messages since the last record are written with the next one, behind state and numbers."""
    stored, act = LocalCheckpointWriter.parts_stored, LocalCheckpointWriter._act
    late: dict[int, Any] = {}

    def parts_stored(self: LocalCheckpointWriter, record: SubtaskRecord, number: int, decisions: Decisions) -> None:
        late[id(self._subtasks[record.subtask])] = [each for each in record.handles if each != record.state]
        stored(self, replace(record, handles=(record.state,)), number, decisions)

    def mutant(self: LocalCheckpointWriter, at: _Subtask, record: LocalCheckpoint, decisions: Decisions) -> None:
        act(self, at, record, decisions)
        at.log = self._needed((*at.log, *late.pop(id(at), ())))

    patch.setattr(LocalCheckpointWriter, "parts_stored", parts_stored)
    patch.setattr(LocalCheckpointWriter, "_act", mutant)


def messages_of_a_failed_record_forgotten(patch: Patch) -> None:
    record = LocalCheckpointing.record

    def mutant(self: LocalCheckpointing, *args: Any) -> Any:
        found = record(self, *args)
        self.stored()
        return found

    patch.setattr(LocalCheckpointing, "record", mutant)


# ---------------------------------------------------------------- 14.2: receivers wait for their senders


def nothing_awaited(patch: Patch) -> None:
    patch.setattr(LocalCheckpointWriter, "_has", lambda self, channel, processed: True)


def sent_numbers_awaited(patch: Patch) -> None:
    """A sender announces what it has sent when it captures, ahead of its record."""
    stored = LocalCheckpointWriter.parts_stored

    def mutant(self: LocalCheckpointWriter, record: SubtaskRecord, number: int, decisions: Decisions) -> None:
        stored(self, record, number, decisions)
        pending = self._subtasks[record.subtask].pending
        assert pending is not None
        decisions.announce.append((replace(pending, number=number - 1), 0.0))

    patch.setattr(LocalCheckpointWriter, "parts_stored", mutant)


# ---------------------------------------------------------------- 14.3: the check behind the write


def claim_not_checked(patch: Patch) -> None:
    written = LocalCheckpointWriter.written

    def mutant(
        self: LocalCheckpointWriter, subtask: Any, number: int, checked: int, found: Claim | None, *rest: Any
    ) -> None:
        written(self, subtask, number, checked, None, *rest)

    patch.setattr(LocalCheckpointWriter, "written", mutant)


def commits_ahead_of_the_record(patch: Patch) -> None:
    stored = LocalCheckpointWriter.parts_stored

    def mutant(self: LocalCheckpointWriter, record: SubtaskRecord, number: int, decisions: Decisions) -> None:
        stored(self, record, number, decisions)
        decisions.commit.append((record.subtask, number))

    patch.setattr(LocalCheckpointWriter, "parts_stored", mutant)


def continuing_claim_not_permitted(patch: Patch) -> None:
    patch.setattr(LocalCheckpointTracker, "permit", lambda self, claim: None)


def fence_not_reported(patch: Patch) -> None:
    patch.setattr(Composition, "_on_fenced", lambda self, claim: None)


# ---------------------------------------------------------------- 14.4: trimming, and the first records


def trimmed_behind_the_own_record(patch: Patch) -> None:
    """A log keeps only what the newest record added."""
    act = LocalCheckpointWriter._act

    def mutant(self: LocalCheckpointWriter, at: _Subtask, record: LocalCheckpoint, decisions: Decisions) -> None:
        act(self, at, record, decisions)
        at.log = ()

    patch.setattr(LocalCheckpointWriter, "_act", mutant)


def trimmed_behind_captured_numbers(patch: Patch) -> None:
    """A receiver reports what it has processed when it captures, ahead of its record."""
    stored = LocalCheckpointWriter.parts_stored

    def mutant(self: LocalCheckpointWriter, record: SubtaskRecord, number: int, decisions: Decisions) -> None:
        stored(self, record, number, decisions)
        for entry in record.received:
            captured[entry.channel] = max(captured.get(entry.channel, 0), entry.processed)

    def needed(self: LocalCheckpointWriter, parts: Any) -> Any:
        self._receivers.update(captured)
        return kept(self, parts)

    captured: dict[Any, int] = {}
    kept = LocalCheckpointWriter._needed
    patch.setattr(LocalCheckpointWriter, "parts_stored", mutant)
    patch.setattr(LocalCheckpointWriter, "_needed", needed)


def commits_ahead_of_the_first_records(patch: Patch) -> None:
    begun = LocalCheckpointWriter.__init__

    def mutant(self: LocalCheckpointWriter, *args: Any, is_complete: bool) -> None:
        begun(self, *args, is_complete=True)

    patch.setattr(LocalCheckpointWriter, "__init__", mutant)


# ---------------------------------------------------------------- 14.5: the cut of a restore


def entries_not_cut(patch: Patch) -> None:
    def frames(self: LocalCheckpointFiles, state: ChannelState) -> list[Frame]:
        found: list[Frame] = []
        for handle in state.parts:
            found += decode_frames(handle, self._store.read_part(handle))
        return found

    patch.setattr(LocalCheckpointFiles, "_frames", frames)


def _as_files(patch: Patch) -> None:
    """Store all parts in files of their own, so that there is something to remove."""
    patch.setattr(MemoryFiles.__init__, "__kwdefaults__", {"inline_bytes_max": 0})


def no_base_without_a_restart(patch: Patch) -> None:
    """The newest snapshot of an incarnation that began afresh is no base of its records."""
    _as_files(patch)
    base = property(lambda self: None if self._source is None else self.known)
    patch.setattr(Deployment, "base_of_incarnation", base)


# ---------------------------------------------------------------- 14.6: which records count


def older_workers_adopted(patch: Patch) -> None:
    """Workers are adopted although a restore of a higher incarnation is published."""
    patch.setattr(Deployment, "_has_gone_on_from", lambda self, running: False)


def records_of_any_incarnation(patch: Patch) -> None:
    def newest(self: LocalCheckpointFiles, incarnation: int) -> tuple[LocalCheckpoint, ...]:
        found: dict[str, tuple[int, str]] = {}
        for path in self._store.record_paths():
            if (at := layout.record_origin(path)) is not None:
                found[at.subtask] = max(found.get(at.subtask, (0, "")), (at.number, path))
        return tuple(self.read(path) for _, path in sorted(found.values()))

    patch.setattr(LocalCheckpointFiles, "newest", newest)


# ---------------------------------------------------------------- 14.7: snapshots on request


def request_covered_by_older_records(patch: Patch) -> None:
    patch.setattr(LocalCheckpointTracker, "covers", lambda self, snapshot_id: self._has_all)


# ---------------------------------------------------------------- 14.8: removal


def needed_parts_removed(patch: Patch) -> None:
    """The parts of a replaced record go with it, also those that the newest one lists."""
    unneeded = LocalCheckpointTracker.take_unneeded

    def mutant(self: LocalCheckpointTracker) -> tuple[str, ...]:
        handles = [handle for each in self._replaced for handle in each.all_handles if handle.run == each.run]
        return (*unneeded(self), *(handle.path for handle in handles if handle.path is not None))

    patch.setattr(LocalCheckpointTracker, "take_unneeded", mutant)


def removed_while_a_cut_is_made(patch: Patch) -> None:
    take = LocalCheckpointTracker.take

    def mutant(self: LocalCheckpointTracker, record: LocalCheckpoint, seconds: float) -> None:
        take(self, record, seconds)
        if paths := self.take_unneeded():
            self._outbox.put(events.RemoveRecords(paths))

    patch.setattr(LocalCheckpointTracker, "take", mutant)


def listed_parts_removed(patch: Patch) -> None:
    _as_files(patch)

    def mutant(self: RunStore, paths: Any) -> None:
        self.backend.delete(*map(self._path, paths))

    patch.setattr(RunStore, "remove_records", mutant)
