"""Perform the store effects of a fence, each once, for the shell of a coordinator.

The caller retries. After an OSError, every effect except `WriteManifest` may be repeated.
"""

from __future__ import annotations

from typing import assert_never

from cutline.snapshot.coordinator.fence_events import (
    Answer,
    BaseHeld,
    BaseWritten,
    CheckForClaim,
    ClaimLost,
    ClaimSeen,
    ClaimsListed,
    ClaimTaken,
    DecideManifest,
    HistoryListed,
    HoldBase,
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
from cutline.snapshot.stored.history import Base, bases_to
from cutline.snapshot.stored.manifest import Aborted, Manifest
from cutline.snapshot.stored.pins import PinKind
from cutline.snapshot.stored.run_store import RunStore, pinned_off_chain


def perform(store: RunStore, effect: StoreEffect, manifest: Manifest | None) -> Answer:
    """Perform one store effect.

    Parameters
    ----------
    manifest : Manifest or None
        The manifest to write, for `WriteManifest` only.

    Raises
    ------
    OSError
        if the store fails, or contradicts itself. The outcome of a write is then not known.
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
        case ListHistory(claim):
            bases = store.bases()  # before the manifests, because a base may name the newest
            manifests = store.manifests(bases)
            store.write_checkpoint(claim, bases)
            return HistoryListed(effect, bases, manifests, _chain_of(store, effect, bases, manifests))
        case HoldBase(base):
            assert base.snapshot_id is not None
            return BaseHeld(effect, store.hold(base.snapshot_id, PinKind.BASE, str(base.claim)))
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


def _chain_of(
    store: RunStore, effect: ListHistory, bases: tuple[Base, ...], manifests: tuple[int, ...]
) -> tuple[int, ...]:
    """PROTOCOL 7.3: list the chain that ends in the wanted snapshot, if that is pinned off the chain of the bases."""
    wanted = effect.wanted
    if wanted is None or wanted in manifests:
        return ()
    if wanted not in [snapshot.id for snapshot in pinned_off_chain(store, manifests)]:
        return ()
    return store.manifests(bases_to(bases, effect.claim, wanted))


def _decide(store: RunStore, effect: DecideManifest, snapshot_id: int) -> Answer:
    """PROTOCOL 7.6: write an aborted record in the manifest's place. If a record is there, read the record."""
    if store.write_manifest(Aborted(store.run, snapshot_id)):
        return ManifestAborted(effect)
    there = store.read_manifest(snapshot_id)
    return ManifestAborted(effect) if isinstance(there, Aborted) else ManifestWritten(effect)
