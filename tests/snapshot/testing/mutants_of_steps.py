"""Mutants of PROTOCOL 12: modes inputLogging and deltas, with one rule taken away."""

from __future__ import annotations

from typing import Any

import pytest

from cutline.snapshot.coordinator import recovery
from cutline.snapshot.coordinator.deployment import Adopted, Deployment, DeploymentResult, Started
from cutline.snapshot.coordinator.run_state import Phase
from cutline.snapshot.coordinator.snapshot_table import SnapshotTable
from cutline.snapshot.ids import Subtask
from cutline.snapshot.keyed.keyed_states import KeyedStates
from cutline.snapshot.modes.steps import step_records
from cutline.snapshot.modes.steps.determinants import Cut, Entry, Took
from cutline.snapshot.modes.steps.ledger import StepLedger
from cutline.snapshot.modes.steps.replay_turns import ReplayTurns
from cutline.snapshot.modes.steps.step_log import StepLog
from cutline.snapshot.modes.steps.step_records import StepCompletion
from cutline.snapshot.modes.steps.stepping import Stepping
from cutline.snapshot.stored import run_store
from cutline.snapshot.stored.certificate import StepBase
from cutline.snapshot.stored.list_rules import ListEntry
from cutline.snapshot.stored.part import Handle, PartKind
from cutline.snapshot.subtask.acts import Acts
from cutline.snapshot.subtask.events import ControlEvent, SnapshotRequested
from cutline.snapshot.subtask.input_processor import InputProcessor
from cutline.snapshot.subtask.machine import SubtaskMachine
from cutline.snapshot.subtask.strand import StepCaptured, Strand
from cutline.snapshot.subtask.two_phase import PreparedOutput
from cutline.snapshot.worker import generations
from cutline.snapshot.worker.acknowledgements import Acknowledgements, LedgerDecisions
from cutline.snapshot.worker.generations import GenerationLog, StorageTask, _Status
from cutline.snapshot.worker.ledger import Declined
from cutline.snapshot.worker.storage_tasks import StorageWork

Patch = pytest.MonkeyPatch


# ---------------------------------------------------------------- 12.1 to 12.4: mode, one put, restore, replay first


def mode_not_compared(patch: Patch) -> None:
    patch.setattr(recovery._Restore, "_refuse_other_mode", lambda self: None)


def output_ahead_of_the_manifest(patch: Patch) -> None:
    prepare = PreparedOutput.prepare

    def mutant(self: PreparedOutput, snapshot_id: int) -> None:
        prepare(self, snapshot_id)
        self.commit_all()

    patch.setattr(PreparedOutput, "prepare", mutant)


def sinks_handle_again(patch: Patch) -> None:
    patch.setattr(ReplayTurns, "_drop", lambda self, channel, limit: self._acts.take_head(channel, limit))


def later_time_of_rows(patch: Patch) -> None:
    """Rows have expired by the time of the restore, and not by that of their state."""
    rule = KeyedStates.restore

    def restore(self: KeyedStates, segments: Any, now: float, **how: Any) -> None:
        rule(self, segments, now + 100.0, **how)

    patch.setattr(KeyedStates, "restore", restore)


def cuts_in_a_replay(patch: Patch) -> None:
    """The coordinator starts snapshots at once, and a subtask obeys. Without either rule alone only time is lost."""
    step = SubtaskMachine.step

    def run(self: Deployment, result: Started | Adopted) -> DeploymentResult | None:
        self._enter(Phase.RUNNING, None)
        return result

    def obey(self: SubtaskMachine, event: ControlEvent, now: float) -> None:
        if isinstance(event, SnapshotRequested) and isinstance(self._turns, ReplayTurns):
            self.snapshotter.step(event)
        else:
            step(self, event, now)

    patch.setattr(Deployment, "_run_or_replay", run)
    patch.setattr(SubtaskMachine, "step", obey)


# ---------------------------------------------------------------- 12.5 and 12.6: determinants, and their order


def last_run_dropped(patch: Patch) -> None:
    cut = StepLog.cut

    def mutant(self: StepLog, entry: Cut) -> bytes:
        self._input, self._count = -1, 0
        return cut(self, entry)

    patch.setattr(StepLog, "cut", mutant)


def clock_goes_on(patch: Patch) -> None:
    def tick(self: ReplayTurns, now: float) -> None:
        self._host_now = now
        self._context.now = max(self._context.now, now)

    patch.setattr(ReplayTurns, "tick", tick)


def lists_not_cut_again(patch: Patch) -> None:
    """Lists and batches come as the frames of the replay have them."""

    def handle_together(self: InputProcessor, count: int) -> None:
        while count > 0:
            head: Any = self.end.head
            count -= self.handle(head, count)

    patch.setattr(InputProcessor, "handle_together", handle_together)


def timers_not_logged(patch: Patch) -> None:
    patch.setattr(StepLog, "fired", lambda self, at, key, now: None)


def reads_not_logged(patch: Patch) -> None:
    patch.setattr(StepLog, "read", lambda self, partition, stop, now: None)


def end_not_logged(patch: Patch) -> None:
    patch.setattr(StepLog, "exhausted", lambda self, now: None)


def end_not_repeated(patch: Patch) -> None:
    patch.setattr(Acts, "input_ended", _only_outside_a_replay(Acts.input_ended))


def _only_outside_a_replay(rule: Any) -> Any:
    def mutant(self: Acts, *args: Any) -> None:
        if self.listeners:  # in a replay, nothing is logged
            rule(self, *args)

    return mutant


def publications_not_logged(patch: Patch) -> None:
    patch.setattr(StepLog, "published", lambda self, snapshot_id, now: None)


def order_of_inputs_fixed(patch: Patch) -> None:
    """A step takes all messages of its first input, then all of the next."""
    cut = StepLog.cut

    def mutant(self: StepLog, entry: Cut) -> bytes:
        self._flush()
        runs = sorted((each for each in self._entries if isinstance(each, Took)), key=lambda each: each.input)
        ordered = iter(runs)
        entries: list[Entry] = [next(ordered) if isinstance(each, Took) else each for each in self._entries]
        self._entries = entries
        return cut(self, entry)

    patch.setattr(StepLog, "cut", mutant)


# ---------------------------------------------------------------- 12.7: parts of logs, and of state in deltas


def aborted_step_forgotten(patch: Patch) -> None:
    _forget_aborted(patch, Strand.STEPS)


def aborted_delta_forgotten(patch: Patch) -> None:
    _forget_aborted(patch, Strand.ROWS)


def _forget_aborted(patch: Patch, of: Strand) -> None:
    """What an aborted snapshot has captured is in no later list."""
    settled = Acknowledgements.settled
    ids: dict[int, None] = {}

    def mutant(self: Acknowledgements, published: int, below: int) -> LedgerDecisions:
        if published:
            ids[published] = None
        for ledger in [ledger for (_, strand), ledger in self._ledgers.items() if strand is of]:
            log = ledger._log  # type: ignore[attr-defined]  # of rows and steps
            log._segments = [
                each for each in log._segments
                if each.status is not _Status.STORED or each.is_restored
                or each.snapshot_id >= below or each.snapshot_id in ids
            ]  # fmt: skip
        return settled(self, published, below)

    patch.setattr(Acknowledgements, "settled", mutant)


def failed_part_forgotten(patch: Patch) -> None:
    failed = GenerationLog._failed

    def mutant(self: GenerationLog, task: Any, reason: str) -> list[StorageTask | Declined]:
        decisions = failed(self, task, reason)
        self._segments = [each for each in self._segments if each.last != task.last or each.is_restored]
        return decisions

    patch.setattr(GenerationLog, "_failed", mutant)


def restored_list_forgotten(patch: Patch) -> None:
    begun = GenerationLog.__post_init__

    def mutant(self: GenerationLog) -> None:
        self.restored = ()
        begun(self)

    patch.setattr(GenerationLog, "__post_init__", mutant)


def only_the_newest_part_listed(patch: Patch) -> None:
    list_of = GenerationLog.list_of

    def mutant(self: GenerationLog, snapshot_id: int) -> tuple[ListEntry, ...] | None:
        found = list_of(self, snapshot_id)
        return found[-1:] if found and self.kind is PartKind.STEPS else found

    patch.setattr(GenerationLog, "list_of", mutant)


def merged_pieces_overlap(patch: Patch) -> None:
    steps_of_log = StorageWork._steps_of_log

    def mutant(self: StorageWork, task: Any) -> Any:
        steps = steps_of_log(self, task)
        return [*steps, *steps]

    patch.setattr(generations, "_STEP_PARTS_MAX", 2)
    patch.setattr(StorageWork, "_steps_of_log", mutant)


def collector_takes_running_parts(patch: Patch) -> None:
    patch.setattr(run_store, "_is_below", lambda path, incarnation: True)


# ---------------------------------------------------------------- 12.8 and 12.9: comparison, chance


def nothing_compared(patch: Patch) -> None:
    patch.setattr(Stepping, "repeat_cut", lambda self, before, states: self._seed(before.snapshot_id))


def chance_not_seeded(patch: Patch) -> None:
    patch.setattr(Stepping, "_seed", lambda self, snapshot_id: None)


# ---------------------------------------------------------------- 12.11 and 12.12: bases


def no_state_listed(patch: Patch) -> None:
    """A snapshot without state lists none, but only the steps behind the last state."""
    patch.setattr(step_records, "_completed", lambda record, before, is_sink: record)


def first_step_left_out(patch: Patch) -> None:
    rule = step_records._is_behind

    def is_behind(handle: Handle, subtask: Subtask, base: StepBase) -> bool:
        return rule(handle, subtask, base._replace(generation=base.generation + 1))

    patch.setattr(step_records, "_is_behind", is_behind)


def steps_dropped_ahead_of_the_publication(patch: Patch) -> None:
    captured = StepLedger.captured

    def mutant(self: StepLedger, cut: int | None, change: StepCaptured) -> list[StorageTask | Declined]:
        decisions = captured(self, cut, change)
        if change.is_base:
            self._log.drop_through(self._log.newest)
        return decisions

    patch.setattr(StepLedger, "captured", mutant)


def fork_without_a_base(patch: Patch) -> None:
    """The first snapshot of a fork may store steps alone."""
    patch.setattr(StepCompletion, "begun", lambda self, is_adopted: None)


def state_of_another_run_listed(patch: Patch) -> None:
    fork_without_a_base(patch)
    patch.setattr(step_records, "is_foreign", lambda manifest, run, topology: False)


def adopted_fork_unknown(patch: Patch) -> None:
    """A coordinator that adopts a fork does not read the snapshot of the origin."""
    rule = Deployment._knows
    patch.setattr(Deployment, "_knows", lambda self, source: source[0] != self._settings.run or rule(self, source))


def base_overtaken(patch: Patch) -> None:
    patch.setattr(SnapshotTable, "_awaits_state", False)
