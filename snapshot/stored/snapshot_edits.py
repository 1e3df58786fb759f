"""Changes to the published snapshots of a run: pin, unpin, remove.

A coordinator performs pins for its own run, one after another with its removals. Without a coordinator any process may
call these functions.
"""

from __future__ import annotations

from collections.abc import Sequence

from cutline.snapshot.errors import Fenced, SnapshotInUse
from cutline.snapshot.stored import pins
from cutline.snapshot.stored.history import history
from cutline.snapshot.stored.manifest import Aborted, Manifest
from cutline.snapshot.stored.pins import PinKind
from cutline.snapshot.stored.run_store import RunStore


def set_pinned(store: RunStore, snapshot_id: int, is_pinned: bool) -> None:
    """Pin or unpin a published snapshot. A pin that is so already is no error.

    Raises
    ------
    FileNotFoundError
        if there is no such snapshot, or the snapshot is removed at the same time.
    SnapshotCorrupt
        if the manifest is damaged.
    """
    manifest = _manifest_of(store, snapshot_id)
    if is_pinned == pins.is_pinned(store.pins.log(snapshot_id), manifest.pinned):
        return
    if not store.hold(snapshot_id, PinKind.PINNED if is_pinned else PinKind.UNPINNED):
        raise FileNotFoundError(f"{store.backend}: run {store.run!r} has no snapshot {snapshot_id}: it is removed")


def check_removable(store: RunStore, snapshots: Sequence[int], snapshot_id: int) -> None:
    """Refuse to remove a snapshot that is needed. `snapshots` is the run's history, ascending.

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
    if snapshot_id in snapshots[-1:]:
        raise SnapshotInUse(f"{where} is the newest, from which the run continues; take a newer snapshot first")
    if pins.is_pinned(store.pins.log(snapshot_id), manifest.pinned):
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
    bases = store.bases()
    check_removable(store, history(bases, store.manifests(bases)), snapshot_id)
    where = f"{store.backend}: run {store.run!r}"
    if claim not in (base.claim for base in bases):
        raise Fenced(
            f"{where}: a start has taken claim {claim} and has not said from which snapshot it goes on, so nothing was "
            "removed; try again. If the start has failed, start the run once"
        )
    keep = [each for each in store.manifests() if each != snapshot_id]
    if store.read_claim(claim + 1) is not None:
        raise Fenced(f"{where} was started meanwhile; nothing was removed; try again")
    if not store.delete_snapshot(snapshot_id, keep, claim):
        raise SnapshotInUse(f"{where}: a start, a fork or a pin needs snapshot {snapshot_id}, so it stays")


def _manifest_of(store: RunStore, snapshot_id: int) -> Manifest:
    """Return the manifest of a published snapshot."""
    try:
        manifest = store.read_manifest(snapshot_id)
    except FileNotFoundError:
        manifest = Aborted(store.run, snapshot_id)
    if isinstance(manifest, Aborted):
        raise FileNotFoundError(f"{store.backend}: run {store.run!r} has no snapshot {snapshot_id}")
    return manifest
