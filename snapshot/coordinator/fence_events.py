"""Events and effects of the fence (PROTOCOL 7).

This module holds the records between `snapshot.coordinator.fence` and its shell, and no rule. Each store effect has one
answer, an event whose field `asked` is the effect. A late answer is harmless.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cutline.snapshot.stored.history import Base, Claim

#: snapshot from which a run continues: "latest" of its history, a given id, or None for a fresh start
RestoreFrom = Literal["latest"] | int | None

# ---- effects on the store


@dataclass(frozen=True, slots=True)
class ListClaims:
    """Read all claims. Answer: `ClaimsListed`."""


@dataclass(frozen=True, slots=True)
class TakeClaim:
    """Write this claim if its number is free. Repeat until the store answers, because numbers must have no gap.

    Answer: `ClaimTaken`, also when an identical record is already there; else `ClaimLost`.
    """

    claim: Claim


@dataclass(frozen=True, slots=True)
class ListHistory:
    """Read all bases, and *then* the ids of the manifests on their chain (no aborted records). Answer: `HistoryListed`.

    The order matters, because a base may name a manifest that an earlier list would lack.
    """

    claim: int
    #: snapshot to restore, which may be pinned off the chain, or None
    wanted: int | None = None


@dataclass(frozen=True, slots=True)
class HoldBase:
    """Hold the snapshot of this base against removals, because the base is not the newest. Answer: `BaseHeld`."""

    base: Base


@dataclass(frozen=True, slots=True)
class WriteBase:
    """Write this base. Repeat until the store answers. Answer: `BaseWritten`."""

    base: Base


@dataclass(frozen=True, slots=True)
class CheckForClaim:
    """Read the claim of this number. Answer: `ClaimSeen`."""

    number: int


@dataclass(frozen=True, slots=True)
class WriteManifest:
    """Write the manifest of this snapshot.

    Answer: `ManifestWritten`, or `ManifestUndecided` when a record is already there or the outcome is not known.
    """

    snapshot_id: int


@dataclass(frozen=True, slots=True)
class DecideManifest:
    """Write an aborted record in the manifest's place. If a record is already there, read that record (PROTOCOL 7.6).

    Answer: `ManifestWritten`, `ManifestAborted`, or `ManifestUndecided`, after which the fence repeats the effect.
    """

    snapshot_id: int


StoreEffect = (
    ListClaims | TakeClaim | ListHistory | HoldBase | WriteBase | CheckForClaim | WriteManifest | DecideManifest
)

# ---- effects on the coordinator


@dataclass(frozen=True, slots=True)
class Continue:
    """Continue the run under `claim`, from the last id of `history`. An empty `history` means the beginning."""

    claim: int
    history: tuple[int, ...]  #: ids of the run's published snapshots, ascending

    @property
    def snapshot_id(self) -> int | None:
        """The snapshot to restore, or None for a fresh start."""
        return self.history[-1] if self.history else None


@dataclass(frozen=True, slots=True)
class Published:
    """Commit and announce the snapshot, because the snapshot is now part of the history."""

    snapshot_id: int


@dataclass(frozen=True, slots=True)
class Unpublished:
    """Treat the snapshot as aborted, because the snapshot will never be part of the history."""

    snapshot_id: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Write nothing more and send Quit to the workers, because `claim` fences this coordinator. Nothing follows.

    If `claim` has the same owner, another instance of the same submission took the claim. A new instance may start.
    """

    claim: Claim


FenceEffect = StoreEffect | Continue | Published | Unpublished | Stop

# ---- events: commands of the coordinator


@dataclass(frozen=True, slots=True)
class Start:
    """First event of a coordinator instance."""


@dataclass(frozen=True, slots=True)
class Rollback:
    """Take the next claim for a rollback. The answer is `Continue` or `Stop`.

    A claim under way serves the rollback. Snapshots that wait for publication are dropped, because the
    listing under the new claim decides whether they count.
    """

    to: RestoreFrom = (
        "latest"  #: an older snapshot if the newest is damaged and the user allows the loss; only after `Continue`
    )


@dataclass(frozen=True, slots=True)
class Publish:
    """Publish a snapshot whose parts are stored and whose certificate holds. Ids ascend in the claim's block."""

    snapshot_id: int


# ---- events: answers of the store


@dataclass(frozen=True, slots=True)
class ClaimsListed:
    """All claims were read."""

    asked: ListClaims
    claims: tuple[Claim, ...]


@dataclass(frozen=True, slots=True)
class ClaimTaken:
    """The claim was taken."""

    asked: TakeClaim


@dataclass(frozen=True, slots=True)
class ClaimLost:
    """The number belongs to the claim `holder`."""

    asked: TakeClaim
    holder: Claim


@dataclass(frozen=True, slots=True)
class HistoryListed:
    """All bases were read, and after them the ids of the manifests on their chain."""

    asked: ListHistory
    bases: tuple[Base, ...]
    manifests: tuple[int, ...]
    #: ids of the manifests on the chain that ends in the wanted snapshot, if that is pinned off the chain of the bases
    wanted_chain: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class BaseHeld:
    """No removal takes the snapshot of the base, or, without `is_held`, its removal is decided."""

    asked: HoldBase
    is_held: bool


@dataclass(frozen=True, slots=True)
class BaseWritten:
    """The base is durable."""

    asked: WriteBase


@dataclass(frozen=True, slots=True)
class ClaimSeen:
    """The checked claim was read; `holder` is None if there is no such claim."""

    asked: CheckForClaim
    holder: Claim | None


@dataclass(frozen=True, slots=True)
class ManifestWritten:
    """The manifest is durable."""

    asked: WriteManifest | DecideManifest


@dataclass(frozen=True, slots=True)
class ManifestAborted:
    """An aborted record stands in the manifest's place, so the manifest can never be written."""

    asked: DecideManifest


@dataclass(frozen=True, slots=True)
class ManifestUndecided:
    """The write has an unknown outcome, and may still happen."""

    asked: WriteManifest | DecideManifest


@dataclass(frozen=True, slots=True)
class Unanswered:
    """The store has failed, and the run goes on meanwhile. The fence repeats the effect."""

    asked: DecideManifest | CheckForClaim


Answer = (
    ClaimsListed
    | ClaimTaken
    | ClaimLost
    | HistoryListed
    | BaseHeld
    | BaseWritten
    | ClaimSeen
    | ManifestWritten
    | ManifestAborted
    | ManifestUndecided
    | Unanswered
)
FenceEvent = Start | Rollback | Publish | Answer
