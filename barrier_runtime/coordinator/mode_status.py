"""Describe the mode of a run as plain data, for the status of the run."""

from __future__ import annotations

from typing import Any, Final

from cutline.barrier_runtime.progress import ModeProgress
from cutline.snapshot.coordinator.record_tracker import RecordTracker
from cutline.snapshot.ids import Subtask
from cutline.snapshot.plan.modes import CutRule, Mode, name_of_mode, row_of
from cutline.snapshot.stored.independent_record import first_record_number
from cutline.snapshot.stored.manifest import Manifest
from cutline.snapshot.stored.recovery_report import RECOVERY_REPORT

#: {how cuts go: name of the clock in a status}
_CLOCKS: Final = {CutRule.EPOCHS: "epochs", CutRule.SLICES: "negotiated"}


def mode_status(mode: Mode | None, newest: Manifest | None, incarnation: int, progress: ModeProgress) -> dict[str, Any]:
    """Return the name of a mode, and what differs by mode: steps, and totals in stores.

    Parameters
    ----------
    mode : Mode or None
    newest : Manifest or None
        The snapshot that was published or restored last.
    incarnation : int
        The present incarnation.
    progress : ModeProgress
    """
    status: dict[str, Any] = {"name": name_of_mode(mode)}
    if row_of(mode).has_steps:
        status |= _steps(newest, progress.steps_left)
    if progress.stores:
        status |= _totals(mode, newest, incarnation, progress)
    return status


def _steps(newest: Manifest | None, steps_left: int) -> dict[str, Any]:
    """Return the newest step, the snapshot that has the state, and what both take in the store."""
    records = () if newest is None else newest.records
    log = [handle for record in records for handle in record.steps or ()]
    listed = [handle for record in records for handle in (*record.lists.row_handles, *record.lists.own)]
    versions = [record.version for record in records if record.version is not None]
    changes = sum(handle.size for handle in listed if handle.first)
    return {
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


def _totals(mode: Mode | None, newest: Manifest | None, incarnation: int, progress: ModeProgress) -> dict[str, Any]:
    """Return how far the stores of the aggregates are behind the aggregates."""
    return {
        "clock": _CLOCKS.get(row_of(mode).cut),
        "snapshot": None if newest is None else newest.snapshot_id,
        "itemsBehind": None if row_of(mode).cut is CutRule.SLICES else _items_behind(newest, incarnation, progress),
        "stores": {
            name: {
                "openKeys": store.open_keys,
                "openBytes": store.open_bytes,
                "cutKeys": store.cut_keys,
                "cutBytes": store.cut_bytes,
                "cellsLeft": store.cells_left,
                "operations": store.operations,
                "error": store.error,
            }
            for name, store in progress.stores.items()
        },
    }


def _items_behind(newest: Manifest | None, incarnation: int, progress: ModeProgress) -> int:
    """Return the messages that the aggregates have added behind the newest snapshot, as their workers reported last."""
    if newest is None or newest.incarnation != incarnation:
        # Counted from the restore on, because a restore with another parallelism numbers messages anew.
        return progress.added - progress.added_before
    of_aggregates = (record for record in newest.records if record.subtask.node in progress.stores)
    published = sum(entry.processed for record in of_aggregates for entry in record.received)
    return max(0, progress.added - published)  # the snapshot may be newer than the reports


def records_status(records: RecordTracker, recovery: Manifest | None, now: float) -> dict[str, Any]:
    """Return, by node, what its subtasks have recorded, how long that took, and the nodes that it waits for.

    Parameters
    ----------
    records : RecordTracker
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
