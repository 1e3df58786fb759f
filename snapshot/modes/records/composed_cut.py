"""Make an ordinary cut of the newest record of each subtask (PROTOCOL 14.5, restore). No I/O.

Chooses which stored parts have the messages between two records, and where they are cut. The certificate judges the
result, as it judges every cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cutline.snapshot.errors import RestoreRefused
from cutline.snapshot.ids import ChannelId
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.stored.certificate import SubtaskRecord
from cutline.snapshot.stored.cut_plan import ChannelState, CutPlan
from cutline.snapshot.stored.local_checkpoint import LocalCheckpoint
from cutline.snapshot.stored.manifest import Manifest
from cutline.snapshot.stored.part import Handle


def plan_cut(run: str, topology: Topology, base: Manifest | None, records: Sequence[LocalCheckpoint]) -> CutPlan:
    """Plan the cut of the newest records.

    Parameters
    ----------
    run : str
    topology : Topology
    base : Manifest or None
        Snapshot with which the incarnation of the records began, or None for a fresh start. A fork begins with that of
        another run.
    records : sequence of LocalCheckpoint
        The newest record of each subtask that has one. A subtask without one is as in `base`.

    Raises
    ------
    RestoreRefused
        if a message between two records is in no part, or a subtask has no record.
    """
    chosen = {} if base is None or base.run != run else {record.subtask: record for record in base.records}
    chosen |= {each.subtask: each.record for each in records}
    if missing := [subtask for subtask in topology.subtasks if subtask not in chosen]:
        raise RestoreRefused(f"run {run!r}: there is no record of {missing[0]}")
    stored = _parts([] if base is None else base.records, records)
    sent = {entry.channel: entry.sent for record in chosen.values() for entry in record.sent}
    processed = {entry.channel: entry.processed for record in chosen.values() for entry in record.received}
    channels = [
        ChannelState(
            channel, processed[channel], sent[channel],
            _covering(channel, stored.get(channel, ()), processed[channel], sent[channel]),
        )
        for channel in topology.channels
    ]  # fmt: skip
    return CutPlan(
        tuple(chosen[subtask] for subtask in topology.subtasks), tuple(each for each in channels if each.parts)
    )


def _parts(restored: Iterable[SubtaskRecord], records: Iterable[LocalCheckpoint]) -> dict[ChannelId, list[Handle]]:
    """Return all parts with messages, by channel."""
    handles = [handle for record in restored for handle in record.handles]
    handles += [handle for each in records for handle in each.log]
    found: dict[ChannelId, list[Handle]] = {}
    for handle in handles:
        if handle.channel is not None:
            found.setdefault(handle.channel, []).append(handle)
    return found


def _covering(channel: ChannelId, parts: Sequence[Handle], after: int, through: int) -> tuple[Handle, ...]:
    """Return parts that have the messages (after, through], each the longest at its place."""
    chosen: list[Handle] = []
    while after < through:
        found = max(
            (each for each in parts if each.first <= after + 1 <= each.last), key=lambda each: each.last, default=None
        )
        if found is None:
            there = ", ".join(f"{each.first} to {each.last}" for each in sorted(parts, key=lambda each: each.first))
            raise RestoreRefused(f"channel {channel}: the log has {there or 'nothing'}, but {after + 1} is needed")
        chosen.append(found)
        after = found.last
    return tuple(chosen)
