"""Describe the mode of a run as plain data, for the status of the run."""

from __future__ import annotations

from typing import Any

from snapshot.plan.modes import Mode, name_of_mode
from snapshot.stored.manifest import Manifest


def mode_status(mode: Mode | None, newest: Manifest | None) -> dict[str, Any]:
    """Return the name of a mode, the newest step, the snapshot that has the state, and the size of the log behind it.

    Parameters
    ----------
    mode : Mode or None
    newest : Manifest or None
        The snapshot that was published or restored last.
    """
    if mode is None:
        return {"name": name_of_mode(mode)}
    handles = [] if newest is None else [handle for record in newest.records for handle in record.steps or ()]
    return {
        "name": name_of_mode(mode),
        "step": None if newest is None else newest.snapshot_id,
        "state": next((record.base.snapshot_id for record in newest.records if record.base), None) if newest else None,
        "logBytes": sum(handle.size for handle in handles),
        "logParts": len(handles),
    }
