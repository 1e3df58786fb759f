"""What a fence asks of a run's store, done: each effect once, by whoever runs a coordinator.

Retrying is the caller's business: all but `WriteManifest` may be asked again after an OSError.
"""

from __future__ import annotations

from typing import assert_never

from snapshot.coordinator.fence_events import (
    Answer,
    BaseWritten,
    CheckForClaim,
    ClaimLost,
    ClaimSeen,
    ClaimsListed,
    ClaimTaken,
    DecideManifest,
    HistoryListed,
    ListClaims,
    ListHistory,
    ManifestAborted,
    ManifestUndecided,
    ManifestWritten,
    StoreEffect,
    TakeClaim,
    WriteBase,
    WriteManifest,
)
from snapshot.stored.manifest import Aborted, Manifest
from snapshot.stored.run_store import RunStore


def perform(store: RunStore, effect: StoreEffect, manifest: Manifest | None) -> Answer:
    """Do what a fence asks for.

    Parameters
    ----------
    manifest : Manifest or None
        What is to be written, for `WriteManifest` only.

    Raises
    ------
    OSError
        if the store fails, or contradicts itself. Whether a write happened is then not known.
    SnapshotCorrupt
        if a claim, a base or a manifest is damaged.
    """
    match effect:
        case ListClaims():
            return ClaimsListed(effect, store.claims())
        case TakeClaim(claim):
            if store.take_claim(claim):
                return ClaimTaken(effect)
            holder = store.read_claim(claim.number)
            if holder is None:
                raise OSError(f"{store.backend}: claim {claim.number} is taken, but cannot be read")
            return ClaimTaken(effect) if holder == claim else ClaimLost(effect, holder)
        case ListHistory():
            bases = store.bases()  # before the manifests: a base may name the newest of them
            return HistoryListed(effect, bases, store.manifests())
        case WriteBase(base):
            if not store.write_base(base):
                raise OSError(f"{store.backend}: another base of claim {base.claim} is there already")
            return BaseWritten(effect)
        case CheckForClaim(number):
            return ClaimSeen(effect, store.read_claim(number))
        case WriteManifest():
            assert manifest is not None
            return ManifestWritten(effect) if store.write_manifest(manifest) else ManifestUndecided(effect)
        case DecideManifest(snapshot_id):
            return _decide(store, effect, snapshot_id)
        case _:
            assert_never(effect)


def _decide(store: RunStore, effect: DecideManifest, snapshot_id: int) -> Answer:
    """PROTOCOL 7.6: win the manifest's place with an aborted record, or read what is there."""
    if store.write_manifest(Aborted(store.run, snapshot_id)):
        return ManifestAborted(effect)
    there = store.read_manifest(snapshot_id)
    return ManifestAborted(effect) if isinstance(there, Aborted) else ManifestWritten(effect)
