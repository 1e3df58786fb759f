"""Describe the mode of a run as plain data, for the status of the run."""

from __future__ import annotations

from typing import Any

from snapshot.coordinator.record_tracker import RecordTracker
from snapshot.plan.modes import ChannelLogs, Mode, StepMode, name_of_mode
from snapshot.stored.independent_record import first_record_number
from snapshot.stored.manifest import Manifest
from snapshot.stored.recovery_report import RECOVERY_REPORT


def mode_status(mode: Mode | None, newest: Manifest | None, steps_left: int) -> dict[str, Any]:
    """Return the name of a mode, the newest step, the snapshot that has the state, and what both take in the store.

    Parameters
    ----------
    mode : Mode or None
    newest : Manifest or None
        The snapshot that was published or restored last.
    steps_left : int
        Steps that are to be repeated behind the present one.
    """
    if not isinstance(mode, StepMode):
        return {"name": name_of_mode(mode)}
    records = () if newest is None else newest.records
    log = [handle for record in records for handle in record.steps or ()]
    listed = [handle for record in records for handle in (*record.lists.row_handles, *record.lists.own)]
    versions = [record.version for record in records if record.version is not None]
    changes = sum(handle.size for handle in listed if handle.first)
    return {
        "name": name_of_mode(mode),
        "step": None if newest is None else newest.snapshot_id,
        "state": next((record.base.snapshot_id for record in records if record.base), None),
        "logBytes": sum(handle.size for handle in log),
        "logParts": len(log),
        "stateBytes": sum(handle.size for handle in listed) - changes,
        "deltaBytes": changes,
        "stepsLeft": steps_left,
        "versions": len(versions),
        "versionBytes": sum(version.size for version in versions),
        "disks": sorted({version.disk for version in versions}),
    }


def records_status(records: RecordTracker, recovery: Manifest | None, now: float) -> dict[str, Any]:
    """Return, by node: the age of its oldest newest record, the bytes of its log, and the nodes that it waits for.

    Parameters
    ----------
    records : RecordTracker
    recovery : Manifest or None
        The snapshot that the last restore made of records.
    now : float
        Monotonic seconds.
    """
    newest, announced, awaits = dict(records.newest), dict(records.announced), dict(records.awaits)
    return {
        "name": ChannelLogs.name,
        "recovery": None if recovery is None or recovery.recovery is None else RECOVERY_REPORT.write(recovery.recovery),
        "nodes": {
            node: {
                "records": sum(each.number - first_record_number(each.record.incarnation) + 1 for each in own),
                "recordAge": max(now - announced.get(each.subtask, now) for each in own),
                "logBytes": sum(handle.size for each in own for handle in each.log),
                "waitsFor": sorted(
                    {sender.node for subtask, senders in awaits.items() if subtask.node == node for sender in senders}
                ),
            }
            for node in dict.fromkeys(subtask.node for subtask in newest)
            if (own := [each for subtask, each in newest.items() if subtask.node == node])
        },
    }
