"""Changes to the published snapshots of a run: pin, unpin, remove.

A coordinator performs pins for its own run, one after another with its removals. Without a coordinator any process may
call these functions.
"""

from __future__ import annotations

from collections.abc import Sequence

from snapshot.errors import Fenced, SnapshotInUse
from snapshot.stored.manifest import Aborted, Manifest
from snapshot.stored.run_store import RunStore, stored_history


def set_pinned(store: RunStore, snapshot_id: int, is_pinned: bool) -> None:
    """Pin or unpin a published snapshot. A pin that is so already is no error.

    Raises
    ------
    FileNotFoundError
        if there is no such snapshot, or the snapshot is removed at the same time.
    SnapshotCorrupt
        if the manifest is damaged.
    """
    store.pins.change(snapshot_id, _manifest_of(store, snapshot_id).pinned, is_pinned)
    try:
        _manifest_of(store, snapshot_id)  # read again, because a removal may not have seen the pin
    except FileNotFoundError:
        store.pins.forget(snapshot_id)
        raise


def check_removable(store: RunStore, history: Sequence[int], snapshot_id: int) -> None:
    """Refuse to remove a snapshot that is needed. `history` lists the run's snapshots, ascending.

    Raises
    ------
    FileNotFoundError
        if there is no such snapshot.
    SnapshotInUse
        if the snapshot is pinned, or the run continues from the snapshot.
    SnapshotCorrupt
        if the manifest is damaged.
    """
    manifest = _manifest_of(store, snapshot_id)
    where = f"{store.backend}: snapshot {snapshot_id} of run {store.run!r}"
    if snapshot_id in history[-1:]:
        raise SnapshotInUse(f"{where} is the newest, from which the run continues; take a newer snapshot first")
    if store.pins.is_pinned(snapshot_id, manifest.pinned):
        raise SnapshotInUse(f"{where} is pinned; unpin it first")


def remove_snapshot(store: RunStore, snapshot_id: int) -> None:
    """Remove a snapshot of a run that no coordinator runs, under the run's highest claim (PROTOCOL 7).

    Raises
    ------
    FileNotFoundError, SnapshotInUse
        as `check_removable`.
    SnapshotCorrupt
        if a manifest of the run is damaged, so that the parts that others need are unknown. Nothing was removed.
    Fenced
        if the run was started meanwhile. Nothing was removed.
    """
    claim = max((claim.number for claim in store.claims()), default=0)
    check_removable(store, stored_history(store), snapshot_id)
    keep = [each for each in store.manifests() if each != snapshot_id]
    if store.read_claim(claim + 1) is not None:
        raise Fenced(f"{store.backend}: run {store.run!r} was started meanwhile; nothing was removed; try again")
    if not store.delete_snapshot(snapshot_id, keep):
        raise SnapshotInUse(f"{store.backend}: snapshot {snapshot_id} of run {store.run!r} is needed, and stays")


def _manifest_of(store: RunStore, snapshot_id: int) -> Manifest:
    """Return the manifest of a published snapshot."""
    try:
        manifest = store.read_manifest(snapshot_id)
    except FileNotFoundError:
        manifest = Aborted(store.run, snapshot_id)
    if isinstance(manifest, Aborted):
        raise FileNotFoundError(f"{store.backend}: run {store.run!r} has no snapshot {snapshot_id}")
    return manifest
