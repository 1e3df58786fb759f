"""Describe the mode of a run as plain data, for the status of the run."""

from __future__ import annotations

from typing import Any, Final

from cutline.barrier_runtime.progress import ModeProgress
from cutline.snapshot.plan.modes import CutRule, Mode, name_of_mode, row_of
from cutline.snapshot.stored.manifest import Manifest

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
    """Return the messages that the aggregates have added after the newest snapshot, as their workers reported last."""
    if newest is None or newest.incarnation != incarnation:
        # Counted from the restore on, because a restore with another parallelism numbers messages anew.
        return progress.added - progress.added_before
    of_aggregates = (record for record in newest.records if record.subtask.node in progress.stores)
    published = sum(entry.processed for record in of_aggregates for entry in record.received)
    return max(0, progress.added - published)  # the snapshot may be newer than the reports
