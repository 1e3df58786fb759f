"""Describe the mode of a run as plain data, for the status of the run."""

from __future__ import annotations

from typing import Any

from snapshot.plan.modes import Mode, name_of_mode
from snapshot.stored.manifest import Manifest


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
    if mode is None:
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
