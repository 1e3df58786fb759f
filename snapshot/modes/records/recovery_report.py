"""Make the report of a recovery (PROTOCOL 14.9, the report). Decides nothing."""

from __future__ import annotations

from collections.abc import Iterable

from cutline.snapshot.ids import Subtask
from cutline.snapshot.stored.cut_plan import CutPlan
from cutline.snapshot.stored.local_checkpoint import LocalCheckpoint
from cutline.snapshot.stored.manifest import Manifest
from cutline.snapshot.stored.recovery_report import (
    RecoveryReport,
    Relation,
    ReplayedLog,
    SourceProgress,
    SubtaskRecovery,
)


def compare(one: SourceProgress, other: SourceProgress) -> Relation:
    """Return how a checkpoint lies to another one, componentwise. A partition that is not named is at its begin."""
    left, right = dict(one), dict(other)
    at = [(left.get(each), right.get(each)) for each in {**left, **right}]
    is_less = any(a != b and (a is None or (b is not None and a < b)) for a, b in at)
    is_more = any(a != b and (b is None or (a is not None and b < a)) for a, b in at)
    if is_less and is_more:
        return Relation.INCOMPARABLE
    return Relation.BEHIND if is_less else Relation.AHEAD if is_more else Relation.EQUAL


def _relation(own: SourceProgress, sender: SourceProgress) -> Relation:
    """Compare with a sender in what the sender has, because other senders may have other sources."""
    partitions = dict(sender)
    return compare(tuple(each for each in own if each[0] in partitions), sender)


def checkpoints(base: Manifest | None, records: Iterable[LocalCheckpoint]) -> dict[Subtask, SourceProgress]:
    """Return the checkpoint of each subtask: the highest of its newest record and of the snapshot they began with.

    A record knows only what the subtask has processed since.
    """
    restored = () if base is None or base.recovery is None else base.recovery.subtasks
    found = {each.subtask: dict(each.checkpoint) for each in restored}
    for each in records:
        own = found.setdefault(each.subtask, {})
        own.update((partition, max(offset, own.get(partition, offset))) for partition, offset in each.checkpoint)
    return {subtask: tuple(sorted(offsets.items())) for subtask, offsets in found.items()}


def report_of(plan: CutPlan, base: Manifest | None, records: Iterable[LocalCheckpoint]) -> RecoveryReport:
    """Report what a restore of a cut does.

    Parameters
    ----------
    plan : CutPlan
    base : Manifest or None
        Snapshot with which the incarnation of the records began.
    records : iterable of LocalCheckpoint
        The newest records.
    """
    known = checkpoints(base, records)
    sent = {entry.channel: entry.sent for record in plan.records for entry in record.sent}
    found = []
    for record in plan.records:
        own = known.get(record.subtask, ())
        logs = tuple(
            ReplayedLog(
                entry.channel.source,
                _relation(own, known.get(entry.channel.source, ())),
                entry.processed + 1,
                sent[entry.channel],
            )
            for entry in record.received
        )
        found.append(SubtaskRecovery(record.subtask, record.state.snapshot_id, own, logs))
    return RecoveryReport(tuple(found))
