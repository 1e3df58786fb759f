"""Texts of refusals where versions of states or messages of a snapshot and of the program differ.

The coordinator refuses what the manifest shows, and a worker what only the parts show. Both say the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_RETURNS: Final[Mapping[str, str]] = {
    "migrateState": "migrateState(state, fromVersion), which returns the state as restoreState takes it",
    "migrateMessage": "migrateMessage(message, fromVersion), which returns the message as the node takes it",
    "migrateKeyedState": "migrateKeyedState(name, value, fromVersion), which returns the value as the node reads it",
}


def newer_text(what: str, before: int, now: int, *, kind: str = "state") -> str:
    """Return why states or messages of a newer version are refused."""
    return (
        f"{what} has {kind}s of version {before} in the snapshot, and its {kind}Version is {now}: submit it with the "
        "class that wrote them, or a newer one"
    )


def unmigrated_text(what: str, before: int, now: int, hook: str) -> str:
    """Return why states or messages of an older version are refused where the class lacks a hook."""
    kind = "message" if hook == "migrateMessage" else "state"
    return (
        f"{what} has {kind}s of version {before} in the snapshot, and its {kind}Version is {now}: define "
        f"{_RETURNS[hook]}"
    )
