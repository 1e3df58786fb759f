"""Plan what each subtask takes over where its node has another parallelism than in a snapshot.

Owns donors and heirs of state (PROTOCOL 6.9, donors). Must not read state: a worker unites what the donors give.

::

    rows of keyed state      every donor's list, clipped to the key groups of the subtask
    own state by partitions  every donor's
    partitions of a source   dealt anew, by name
    timers and prepared output without a key   those of the subtasks whose heir it is
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cutline.snapshot.channel.partitioning import donors_of, groups_of, heir_of
from cutline.snapshot.coordinator.control import Inheritance, RestoredSubtask
from cutline.snapshot.errors import RestoreRefused
from cutline.snapshot.ids import Subtask
from cutline.snapshot.stored.certificate import OwnStateKind, SubtaskRecord
from cutline.snapshot.stored.list_rules import ListEntry


def refuse_whole_state(where: str, node: str, records: Sequence[SubtaskRecord], parallelism: int) -> None:
    """Refuse own state that cannot be divided.

    Raises
    ------
    RestoreRefused
    """
    whole = [record.subtask for record in records if record.status.own_state is OwnStateKind.WHOLE]
    if whole:
        raise RestoreRefused(
            f"{where}: node {node!r} had parallelism {len(records)}, now {parallelism}, and {len(whole)} of its "
            f"subtasks, {whole[0]} first, keep a state of their own that nobody can divide. Keep it as keyed state "
            "(context.getValueState), by partitions (partitioned = True), or in a source as offsets of `partitions`; "
            f"or submit it with parallelism {len(records)}"
        )


def inherited(
    subtask: Subtask,
    parallelism: int,
    records: Sequence[SubtaskRecord],
    partitions: tuple[str, ...] | None,
    seed: str,
) -> RestoredSubtask:
    """Return what a subtask takes over, without its channels.

    Parameters
    ----------
    subtask : Subtask
    parallelism : int
        Of the node, now.
    records : sequence of SubtaskRecord
        Those of the node in the snapshot, by index.
    partitions : tuple of str or None
        Names of the partitions that the subtask reads now.
    seed : str
        Seed of the subtask's chance.
    """
    before = len(records)
    donors = donors_of(subtask.index, before, parallelism)
    named = dict.fromkeys(partitions or ())
    readers = [i for i, record in enumerate(records) if any(n in named for n in record.status.partitions or ())]
    giving = [records[i] for i in sorted({*donors, *readers})]
    groups = groups_of(subtask.index, parallelism)
    has_rows = any(record.groups is not None for record in records)
    return RestoredSubtask(
        subtask=subtask,
        state=None,
        processed=(),
        sent=(),
        channel_parts=(),
        partitions=partitions,
        groups=(groups.start, groups.stop) if has_rows else None,
        rows=tuple(_clipped(records, groups)),
        inheritance=Inheritance(
            heir_of=tuple(i for i in donors if heir_of(i, before, parallelism) == subtask.index),
            is_ended=all(record.status.ended for record in records),
            is_exhausted=all(record.status.passive for record in records),
            seed=seed,
        ),
        donor_parts=tuple(part for record in giving for part in (record.state, *(record.own or ()))),
    )


def _clipped(records: Sequence[SubtaskRecord], groups: range) -> list[ListEntry]:
    """Return the entries of all lists that hold key groups of `groups`, in the order of application."""
    clips = (
        replace(entry, lo=max(entry.lo, groups.start), hi=min(entry.hi, groups.stop))
        for record in records
        for entry in record.rows or ()
    )
    return [entry for entry in clips if entry.lo < entry.hi]


def records_by_node(records: Sequence[SubtaskRecord]) -> Mapping[str, list[SubtaskRecord]]:
    """Return the records of each node, by index."""
    found: dict[str, list[SubtaskRecord]] = {}
    for record in sorted(records, key=lambda record: record.subtask):
        found.setdefault(record.subtask.node, []).append(record)
    return found
