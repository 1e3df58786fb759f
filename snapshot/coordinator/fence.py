"""Decide which coordinator may publish, when several coordinators believe that they own the run (PROTOCOL 7).

The fence of one coordinator instance takes claims, writes bases and publishes manifests. Commands and answers of the
store go in, effects come out. Access to the store, the contents of snapshots and their times are outside. ::

    Start ─ ListClaims ─ TakeClaim ─ ListHistory (─ HoldBase) ─ WriteBase ─ CheckForClaim ─ Continue
    Rollback ────────────────┘                                                   └──────── Stop, final
    Publish ─ WriteManifest (─ DecideManifest) ──────────────────────────── CheckForClaim ─ Published
"""

from __future__ import annotations

from enum import Enum, auto
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
    Continue,
    DecideManifest,
    FenceEffect,
    FenceEvent,
    HistoryListed,
    HoldBase,
    ListClaims,
    ListHistory,
    ManifestAborted,
    ManifestUndecided,
    ManifestWritten,
    Publish,
    Published,
    RestoreFrom,
    Rollback,
    Start,
    Stop,
    StoreEffect,
    TakeClaim,
    Unanswered,
    Unpublished,
    WriteBase,
    WriteManifest,
)
from cutline.snapshot.errors import RestoreRefused, SnapshotCorrupt
from cutline.snapshot.ids import claim_of_snapshot
from cutline.snapshot.stored.history import Base, Claim, bases_to, history


class FenceState(Enum):
    """State of the fence of one coordinator instance."""

    NEW = auto()  #: before `Start`
    STARTING = auto()  #: the instance's first claim is being taken; `Continue` or `Stop` follows
    ROLLING_BACK = auto()  #: a later claim is being taken; `Continue` or `Stop` follows
    READY = auto()  #: no higher claim is known; nothing is being written
    PUBLISHING = auto()  #: a manifest is being written; `Published`, `Unpublished` or `Stop` follows
    FENCED = auto()  #: a higher claim exists; every event is ignored


class Fence:
    """The fence's rules for one coordinator instance.

    The caller performs each effect that `step` returns, and passes the answer to `step`. At most one store effect is
    awaited at a time. Each rule of PROTOCOL 7 for a coordinator is one method, whose docstring names the rule.

    Parameters
    ----------
    owner
        The submission of this coordinator. Once a claim of another owner is above its own claims, every instance of
        this owner stops and does not take the run back, because two live drivers must never fight over a run.
        instance
            Unique to this object, in all processes.
    restore_from
        The snapshot to restore. Only the first instance of the owner that writes a base uses this value. Later
        instances continue from the newest snapshot.
    """

    def __init__(self, owner: str, instance: str, restore_from: RestoreFrom = "latest") -> None:
        self.owner = owner
        self.instance = instance
        self.restore_from = restore_from  #: the snapshot from which the next base continues
        self._wish = restore_from
        self.state = FenceState.NEW
        self.claim = 0  #: number of the held claim, 0 before the first
        self._own_claims: tuple[int, ...] = ()  #: claims of all instances of the owner
        self._history: tuple[int, ...] = ()  #: history for the next `Continue`
        self._awaited: StoreEffect | None = None
        self._queue: tuple[int, ...] = ()  #: snapshots to publish, ascending; the first is being written
        self._newest_queued = 0  #: highest id of any `Publish`, or 0

    def step(self, event: FenceEvent) -> list[FenceEffect]:
        """Process one event. Return the effects to perform now, in order. `step` never blocks.

        After `RestoreRefused` or `SnapshotCorrupt`, the instance has ended: nothing is awaited, nothing follows.

        Raises
        ------
        RestoreRefused
            if `restore_from` names a snapshot that is not in the run's history, or is being removed. Only a claim was
            written.
        SnapshotCorrupt
            if the stored claims and bases contradict each other.
        ValueError
            if a command does not fit the state, which is an error of the caller.
        """
        if self.state is FenceState.FENCED:
            return []
        match event:
            case Start():
                return self._start()
            case Rollback(to):
                return self._rollback(to)
            case Publish(snapshot_id):
                return self._publish(snapshot_id)
            case _:
                return self._answer(event) if event.asked == self._awaited else []

    @property
    def claim_check(self) -> CheckForClaim:
        """Return the check for a higher claim: reading the next number is enough, because numbers have no gaps."""
        return CheckForClaim(self.claim + 1)

    @property
    def lowest_incarnation(self) -> int:
        """Lowest incarnation whose records count. Those before a chosen older snapshot do not (PROTOCOL 14.6)."""
        return 0 if self._wish == "latest" else min(self._own_claims)

    # ---- commands

    def _start(self) -> list[FenceEffect]:
        if self.state is not FenceState.NEW:
            raise ValueError(f"the fence of {self.instance} was started before")
        self.state = FenceState.STARTING
        return self._ask(ListClaims())

    def _rollback(self, to: RestoreFrom) -> list[FenceEffect]:
        ready = self.state in (FenceState.READY, FenceState.PUBLISHING)
        if self.state is FenceState.NEW or (not ready and to != "latest"):
            raise ValueError(f"rollback to {to} while the fence of {self.instance} is {self.state.name}")
        if not ready:
            return []
        self.state = FenceState.ROLLING_BACK
        self.restore_from = to
        self._queue = ()
        return self._take(self.claim + 1)

    def _publish(self, snapshot_id: int) -> list[FenceEffect]:
        if self.state not in (FenceState.READY, FenceState.PUBLISHING):
            raise ValueError(f"snapshot {snapshot_id} to be published while the fence is {self.state.name}")
        if claim_of_snapshot(snapshot_id) != self.claim or snapshot_id <= self._newest_queued:
            raise ValueError(f"snapshot {snapshot_id} is not above {self._newest_queued} in claim {self.claim}'s block")
        self._newest_queued = snapshot_id
        self._queue += (snapshot_id,)
        return self._publish_next() if self.state is FenceState.READY else []

    # ---- answers

    def _answer(self, event: Answer) -> list[FenceEffect]:
        self._awaited = None
        match event:
            case ClaimsListed(_, claims):
                return self._on_claims_listed(claims)
            case ClaimTaken(asked):
                return self._on_claim_taken(asked.claim.number)
            case ClaimLost(_, holder):
                return self._on_claim_lost(holder)
            case HistoryListed():
                return self._on_history_listed(event)
            case BaseHeld(asked, is_held):
                return self._on_base_held(asked.base, is_held)
            case BaseWritten(asked):
                return self._check_claim()
            case ManifestWritten():
                return self._check_claim()
            case ClaimSeen(_, holder):
                return self._on_claim_checked(holder)
            case ManifestUndecided(asked):
                return self._on_undecided(asked.snapshot_id)
            case Unanswered(asked):
                return self._ask(asked)
            case ManifestAborted(asked):
                return [Unpublished(asked.snapshot_id), *self._next_in_queue()]
            case _:
                assert_never(event)

    def _on_claims_listed(self, claims: tuple[Claim, ...]) -> list[FenceEffect]:
        numbers = sorted(claim.number for claim in claims)
        missing = next((number for number, found in enumerate(numbers, 1) if number != found), None)
        if missing is not None:
            raise SnapshotCorrupt(
                f"claim {missing} is missing below claim {numbers[-1]}: a gap; restore it from a copy"
            )
        self._own_claims = tuple(sorted(claim.number for claim in claims if claim.owner == self.owner))
        highest = max(claims, key=lambda claim: claim.number, default=None)
        if highest is not None and self._own_claims and highest.owner != self.owner:
            return self._stop(highest)
        return self._take(len(numbers) + 1)

    def _on_claim_lost(self, holder: Claim) -> list[FenceEffect]:
        """At a start, take the next claim, unless this owner lost the run. At a rollback, stop: a newer claim won."""
        if self.state is FenceState.ROLLING_BACK or (self._own_claims and holder.owner != self.owner):
            return self._stop(holder)
        if holder.owner == self.owner:
            self._own_claims += (holder.number,)
        return self._take(holder.number + 1)

    def _on_claim_taken(self, number: int) -> list[FenceEffect]:
        """List the history after the claim was taken (PROTOCOL 7.1, claim).

        A coordinator that publishes after this listing must read the new claim, and therefore stops.
        """
        self.claim = number
        self._own_claims += (number,)
        return self._ask(ListHistory(number, self.restore_from if isinstance(self.restore_from, int) else None))

    def _on_history_listed(self, listed: HistoryListed) -> list[FenceEffect]:
        if self.state is FenceState.STARTING and any(base.claim in self._own_claims for base in listed.bases):
            self.restore_from = "latest"
        chain = snapshots = self._snapshots(listed.bases, listed.manifests)
        if isinstance(self.restore_from, int) and self.restore_from in listed.wanted_chain:
            # PROTOCOL 7.3: the snapshot is pinned, so the run may return to the chain that ends in the snapshot.
            snapshots = history(bases_to(listed.bases, self.claim, self.restore_from), listed.wanted_chain)
        self._history = self._history_to_restore(snapshots)
        base = Base(self.claim, self._history[-1] if self._history else None)
        is_newest = base.snapshot_id is None or chain[-1:] == (base.snapshot_id,)
        return self._ask(WriteBase(base) if is_newest else HoldBase(base))

    def _on_base_held(self, base: Base, is_held: bool) -> list[FenceEffect]:
        """PROTOCOL 7.8: write the base if no removal can take its snapshot. The newest needs no hold."""
        if not is_held:
            raise RestoreRefused(f"snapshot {base.snapshot_id} is being removed; choose another of {self._history}")
        return self._ask(WriteBase(base))

    def _on_claim_checked(self, holder: Claim | None) -> list[FenceEffect]:
        """PROTOCOL 7.2: act on the written base or manifest if no higher claim exists, else stop."""
        if holder is not None:
            return self._stop(holder)
        if self.state is FenceState.PUBLISHING:
            return [Published(self._queue[0]), *self._next_in_queue()]
        self.state = FenceState.READY
        return [Continue(self.claim, self._history)]

    def _on_undecided(self, snapshot_id: int) -> list[FenceEffect]:
        """PROTOCOL 7.6: decide by reading the manifest, or by an aborted record in its place."""
        return self._ask(DecideManifest(snapshot_id))

    # ---- steps

    def _snapshots(self, bases: tuple[Base, ...], manifests: tuple[int, ...]) -> tuple[int, ...]:
        """PROTOCOL 7.3: return the snapshots on the chain of bases, because only these count."""
        return history(bases, manifests)

    def _history_to_restore(self, snapshots: tuple[int, ...]) -> tuple[int, ...]:
        if self.restore_from == "latest":
            return snapshots
        if self.restore_from is None:
            return ()
        if self.restore_from not in snapshots:
            raise RestoreRefused(f"snapshot {self.restore_from} is not in the run's history; choose one of {snapshots}")
        return snapshots[: snapshots.index(self.restore_from) + 1]

    def _take(self, number: int) -> list[FenceEffect]:
        return self._ask(TakeClaim(Claim(number, self.owner, self.instance)))

    def _check_claim(self) -> list[FenceEffect]:
        """PROTOCOL 7.2: check for a higher claim after writing a base or a manifest, before acting on the write."""
        return self._ask(self.claim_check)

    def _publish_next(self) -> list[FenceEffect]:
        self.state = FenceState.PUBLISHING
        return self._ask(WriteManifest(self._queue[0]))

    def _next_in_queue(self) -> list[FenceEffect]:
        self.state = FenceState.READY
        self._queue = self._queue[1:]
        return self._publish_next() if self._queue else []

    def _stop(self, holder: Claim) -> list[FenceEffect]:
        self.state = FenceState.FENCED
        return [Stop(holder)]

    def _ask(self, effect: StoreEffect) -> list[FenceEffect]:
        self._awaited = effect
        return [effect]
