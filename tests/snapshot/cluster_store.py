"""The store of a cluster: the fence's effects, performed on the real `RunStore` over memory."""

from __future__ import annotations

from typing import assert_never

from snapshot.coordinator.fence_events import (
    Answer,
    BaseWritten,
    ClaimLost,
    ClaimSeen,
    ClaimsListed,
    ClaimTaken,
    DecideManifest,
    HistoryListed,
    ListClaims,
    ListHistory,
    LookForClaim,
    ManifestAborted,
    ManifestUndecided,
    ManifestWritten,
    StoreEffect,
    TakeClaim,
    WriteBase,
    WriteManifest,
)
from snapshot.stored.manifest import Aborted, Manifest
from state_backends.store import RunStore


def perform(store: RunStore, effect: StoreEffect, manifest: Manifest | None) -> Answer:
    """Do at the store what a fence asks for."""
    match effect:
        case ListClaims():
            return ClaimsListed(effect, store.claims())
        case TakeClaim(claim):
            if store.take_claim(claim):
                return ClaimTaken(effect)
            holder = store.read_claim(claim.number)
            assert holder is not None
            return ClaimTaken(effect) if holder == claim else ClaimLost(effect, holder)
        case ListHistory():
            bases = store.bases()
            return HistoryListed(effect, bases, store.manifests())
        case WriteBase(base):
            assert store.write_base(base)
            return BaseWritten(effect)
        case LookForClaim(number):
            return ClaimSeen(effect, store.read_claim(number))
        case WriteManifest():
            assert manifest is not None
            return ManifestWritten(effect) if store.write_manifest(manifest) else ManifestUndecided(effect)
        case DecideManifest(snapshot_id):
            if store.write_manifest(Aborted(store.run, snapshot_id)):
                return ManifestAborted(effect)
            stands = store.read_manifest(snapshot_id)
            return ManifestAborted(effect) if isinstance(stands, Aborted) else ManifestWritten(effect)
        case _:
            assert_never(effect)
