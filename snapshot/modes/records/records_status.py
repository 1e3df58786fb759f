"""Describe the records of subtasks as plain data, for the status of the run."""

from __future__ import annotations

from typing import Any

from cutline.snapshot.ids import Subtask
from cutline.snapshot.modes.records.record_tracker import LocalCheckpointTracker
from cutline.snapshot.stored.local_checkpoint import first_record_number
from cutline.snapshot.stored.manifest import Manifest
from cutline.snapshot.stored.recovery_report import RECOVERY_REPORT


def records_status(records: LocalCheckpointTracker, recovery: Manifest | None, now: float) -> dict[str, Any]:
    """Return, by node, what its subtasks have recorded, how long that took, and the nodes that it waits for.

    Parameters
    ----------
    records : LocalCheckpointTracker
    recovery : Manifest or None
        The snapshot that the last restore made of records.
    now : float
        Monotonic seconds.
    """
    newest, announced, awaits = dict(records.newest), dict(records.announced), dict(records.awaits)
    seconds, failures, begun_at = dict(records.seconds), dict(records.failures), records.begun_at

    def node_status(own: list[Subtask]) -> dict[str, Any]:
        stored = [newest[each] for each in own if each in newest]
        ended = {each.subtask for each in stored if each.record.status.ended}  # which record no more
        senders = {sender.node for each in own for sender in awaits.get(each, ())}
        return {
            "records": sum(each.number - first_record_number(each.record.incarnation) + 1 for each in stored),
            "recordAge": max((now - announced.get(each, begun_at) for each in own if each not in ended), default=0.0),
            "recordMs": max(seconds.get(each, 0.0) for each in own) * 1e3,
            "logBytes": sum(handle.size for each in stored for handle in each.log),
            "waitsFor": sorted(senders),
            "failed": sum(failures.get(each, 0) for each in own),
        }

    by_node: dict[str, list[Subtask]] = {}
    for subtask in records.subtasks if begun_at else ():
        by_node.setdefault(subtask.node, []).append(subtask)
    return {
        "recovery": None if recovery is None or recovery.recovery is None else RECOVERY_REPORT.write(recovery.recovery),
        "nodes": {node: node_status(own) for node, own in by_node.items()},
    }
