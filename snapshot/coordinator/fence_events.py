"""Every event into the fence and every effect out of it (PROTOCOL 7).

Owns the vocabulary between `snapshot.coordinator.fence` and whoever performs it on a store; holds no rule. Each store
effect is answered once, by an event that carries it as `asked`; an answer that comes too late is harmless.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from snapshot.stored.history import Base, Claim

#: Where a run goes on: from the newest snapshot of its history, a given one, or None for a fresh start.
RestoreFrom = Literal["latest"] | int | None

# ---- effects: what the store is asked for.


@dataclass(frozen=True, slots=True)
class ListClaims:
    """Read all claims. Answer: `ClaimsListed`."""


@dataclass(frozen=True, slots=True)
class TakeClaim:
    """Put this claim if its number is free; repeat until the store has answered, else numbers get a gap.

    Answer: `ClaimTaken`, also when the very same record is already there; else `ClaimLost`.
    """

    claim: Claim


@dataclass(frozen=True, slots=True)
class ListHistory:
    """Read all bases, and only *then* the ids of all manifests (not of aborted records). Answer: `HistoryListed`.

    In the other order a base could name a manifest that the list does not have.
    """

    claim: int


@dataclass(frozen=True, slots=True)
class WriteBase:
    """Put this base; repeat until the store has answered. Answer: `BaseWritten`."""

    base: Base


@dataclass(frozen=True, slots=True)
class CheckForClaim:
    """Read the claim of this number. Answer: `ClaimSeen`."""

    number: int


@dataclass(frozen=True, slots=True)
class WriteManifest:
    """Put the manifest of this snapshot. Answer: `ManifestWritten`, or `ManifestUndecided` when something is there
    already or the outcome is not known.
    """

    snapshot_id: int


@dataclass(frozen=True, slots=True)
class DecideManifest:
    """Put an aborted record in the manifest's place; where that loses, read what is there (PROTOCOL 7.6).

    Answer: `ManifestWritten`, `ManifestAborted`, or `ManifestUndecided` to be asked again.
    """

    snapshot_id: int


StoreEffect = ListClaims | TakeClaim | ListHistory | WriteBase | CheckForClaim | WriteManifest | DecideManifest

# ---- effects: what the coordinator is told.


@dataclass(frozen=True, slots=True)
class Continue:
    """The run is this coordinator's: go on from the last id of `history` (empty: from the beginning) under `claim`."""

    claim: int
    history: tuple[int, ...]  #: ascending ids of the snapshots that are the run's history

    @property
    def snapshot_id(self) -> int | None:
        """The snapshot to restore, or None for a fresh start."""
        return self.history[-1] if self.history else None


@dataclass(frozen=True, slots=True)
class Published:
    """The snapshot is part of the history for good: commit it, acknowledge it."""

    snapshot_id: int


@dataclass(frozen=True, slots=True)
class Unpublished:
    """The snapshot will never be part of the history; it counts as aborted."""

    snapshot_id: int


@dataclass(frozen=True, slots=True)
class Stop:
    """`claim` fences this coordinator: write nothing more, tell its workers to quit. Nothing follows.

    Where `claim` has the same owner, a later or a lost life of the same submission took it; a new life may start.
    """

    claim: Claim


FenceEffect = StoreEffect | Continue | Published | Unpublished | Stop

# ---- events: commands of the coordinator.


@dataclass(frozen=True, slots=True)
class Start:
    """First event of a life."""


@dataclass(frozen=True, slots=True)
class Rollback:
    """Take the next claim for a rollback; answered by `Continue` or `Stop`.

    While a claim is already under way, that claim serves. Snapshots that wait to be published are forgotten:
    whether one of them counts is what the listing under the new claim finds.
    """

    to: RestoreFrom = (
        "latest"  #: an older snapshot when the newest is damaged and the user allows it; only after `Continue`
    )


@dataclass(frozen=True, slots=True)
class Publish:
    """All parts of this snapshot are stored and its certificate holds. Ids ascend, from the block of the claim."""

    snapshot_id: int


# ---- events: answers of the store.


@dataclass(frozen=True, slots=True)
class ClaimsListed:
    """All claims."""

    asked: ListClaims
    claims: tuple[Claim, ...]


@dataclass(frozen=True, slots=True)
class ClaimTaken:
    """The claim is ours."""

    asked: TakeClaim


@dataclass(frozen=True, slots=True)
class ClaimLost:
    """The number was taken before, by `holder`."""

    asked: TakeClaim
    holder: Claim


@dataclass(frozen=True, slots=True)
class HistoryListed:
    """All bases, and after them all manifests."""

    asked: ListHistory
    bases: tuple[Base, ...]
    manifests: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BaseWritten:
    """The base is durable."""

    asked: WriteBase


@dataclass(frozen=True, slots=True)
class ClaimSeen:
    """Who holds the claim that was looked for, if anybody."""

    asked: CheckForClaim
    holder: Claim | None


@dataclass(frozen=True, slots=True)
class ManifestWritten:
    """The manifest is durable."""

    asked: WriteManifest | DecideManifest


@dataclass(frozen=True, slots=True)
class ManifestAborted:
    """An aborted record stands in the manifest's place: it can never be written."""

    asked: DecideManifest


@dataclass(frozen=True, slots=True)
class ManifestUndecided:
    """The write may have happened, or may still happen."""

    asked: WriteManifest | DecideManifest


Answer = (
    ClaimsListed
    | ClaimTaken
    | ClaimLost
    | HistoryListed
    | BaseWritten
    | ClaimSeen
    | ManifestWritten
    | ManifestAborted
    | ManifestUndecided
)
FenceEvent = Start | Rollback | Publish | Answer
