"""The fence: exhaustively with several coordinators, one mutant for each rule, and its answers one by one."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from snapshot.errors import RestoreRefused, SnapshotCorrupt
from snapshot.fence import Fence, FenceState
from snapshot.fence_events import (
    BaseWritten,
    ClaimLost,
    ClaimSeen,
    ClaimsListed,
    ClaimTaken,
    Continue,
    DecideManifest,
    FenceEffect,
    FenceEvent,
    HistoryListed,
    ListClaims,
    ListHistory,
    LookForClaim,
    ManifestAborted,
    ManifestUndecided,
    ManifestWritten,
    Publish,
    Published,
    RestoreFrom,
    Rollback,
    Start,
    Stop,
    TakeClaim,
    Unpublished,
    WriteBase,
    WriteManifest,
)
from snapshot.history import Base, Claim, history
from snapshot.ids import first_snapshot_id
from tests.explorer import Exploration, explore
from tests.snapshot.fence_model import Model, Owner, World

#: More than the largest world below has (32,301).
STATES_MAX = 50_000

WORLDS = {
    "one submission, everything befalls it": (Owner("A", snapshots=2, crashes=1, rollbacks=1, doubts=1),),
    "two, one restarts": (Owner("A", snapshots=2, crashes=1), Owner("B", snapshots=1)),
    "two, one rolls back and doubts": (Owner("A", snapshots=2, rollbacks=1, doubts=1), Owner("B", snapshots=1)),
    "two, both publish twice": (Owner("A", snapshots=2), Owner("B", snapshots=2)),
    "three, a snapshot each": (Owner("A", snapshots=1), Owner("B", snapshots=1), Owner("C", snapshots=1)),
}


# ---- what must hold in every state


def harm(world: World) -> str | None:
    """What a user of the output would complain about."""
    for record, times in Counter(one.record for one in world.committed).items():
        if times > 1:
            return f"record {record} doubled"
    for one in (*world.lost, *world.newest().output):
        if one not in world.committed and one not in world.prepared:
            return f"record {one.record} lost"
    return None


def disorder(world: World) -> str | None:
    """Harm, or what would become harm later."""
    newest = world.newest()
    for one in world.committed:
        if one not in newest.output:
            return f"record {one.record} committed by {one.snapshot_id}, which is not in the history"
    for snapshot_id in world.given_up:
        if snapshot_id in world.manifests:
            return f"snapshot {snapshot_id} published after it was given up"
    for owner in world.owners:
        if _idle(world, owner) and not set(newest.output) <= set(world.committed):
            return f"{owner.name} rests, but not all that snapshot {newest.snapshot_id} says is committed"
    return harm(world)


def situations(world: World) -> list[str]:
    """What must have occurred somewhere, or the exploration proves little."""
    on_chain = history(world.bases, world.manifests)
    return [
        *(["a void manifest"] if set(world.manifests) - set(on_chain) else []),
        *(["a void base"] if len(world.bases) > 1 and world.bases[0].snapshot_id == world.bases[1].snapshot_id else []),
        *(["a claim without a base"] if len(world.claims) > len(world.bases) else []),
        *(["output of two claims committed"] if len({one.snapshot_id // 1_000_000 for one in world.committed}) > 1 else []),
        *(["prepared output left over"] if set(world.prepared) - set(world.newest().output) else []),
        *(["an aborted record"] if world.aborted else []),
        *(["something may land late"] if world.late else []),
        *(["a fenced coordinator"] if any(owner.gone for owner in world.owners) else []),
        *(["a run adopted without rollback"] if any(o.adopts and _idle(world, o) for o in world.owners) else []),
    ]


def _idle(world: World, owner: Owner) -> bool:
    fence = dict(owner.fence or ())
    ready = fence.get("state") is FenceState.READY and fence["claim"] == len(world.claims)
    return ready and owner.workers is not None and not owner.workers.operations


def run(model: Model, owners: tuple[Owner, ...], check: object = harm) -> Exploration[World]:
    wrong = disorder if check is disorder else harm
    found = explore(World(owners), model.steps, wrong, seen=situations, states_max=STATES_MAX)
    print(found)
    return found


class ListsBeforeItClaims(Fence):
    """Without 7.1: what is published between the listing and the claim is not known."""

    listed: HistoryListed | None = None

    def _on_claims_listed(self, claims: tuple[Claim, ...]) -> list[FenceEffect]:
        self._known = claims
        return self._ask(ListHistory(0))

    def _on_history_listed(self, bases: tuple[Base, ...], manifests: tuple[int, ...]) -> list[FenceEffect]:
        self._history = self._snapshots(bases, manifests)
        return super()._on_claims_listed(self._known)

    def _on_claim_taken(self, number: int) -> list[FenceEffect]:
        self.claim = number
        return self._ask(WriteBase(Base(number, self._history[-1] if self._history else None)))


class NeverLooks(Fence):
    """Without 7.2."""

    def _on_looked(self, holder: Claim | None) -> list[FenceEffect]:
        return super()._on_looked(None)


class LooksOnlyAfterManifests(Fence):
    """Without half of 7.2."""

    def _on_looked(self, holder: Claim | None) -> list[FenceEffect]:
        return super()._on_looked(holder if self.state is FenceState.PUBLISHING else None)


class LooksOnlyAfterBases(Fence):
    """Without the other half of 7.2."""

    def _on_looked(self, holder: Claim | None) -> list[FenceEffect]:
        return super()._on_looked(None if self.state is FenceState.PUBLISHING else holder)


class TakesAnyManifest(Fence):
    """Without 7.3: the newest is the one with the highest id."""

    def _snapshots(self, bases: tuple[Base, ...], manifests: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(manifests))


class GivesUpUndecided(Fence):
    """Without 7.6."""

    def _on_undecided(self, snapshot_id: int) -> list[FenceEffect]:
        return [Unpublished(snapshot_id), *self._next_in_queue()]


if __name__ == "__main__":
    import time
    for n, w in WORLDS.items():
        t=time.time(); e = run(Model(), w, disorder); print(n, sorted(e.seen), time.time()-t)
    for m in (Model(ListsBeforeItClaims), Model(NeverLooks), Model(LooksOnlyAfterManifests), Model(LooksOnlyAfterBases), Model(TakesAnyManifest), Model(GivesUpUndecided), Model(discards=lambda a,b: True)):
        for n, w in WORLDS.items():
          for c in (harm, disorder):
            t=time.time()
            try: e=explore(World(w), m.steps, c, states_max=400000); print(m.fence.__name__, n, c.__name__, e.states, e.violation, len(e.trace), round(time.time()-t,1))
            except Exception as x: print(m.fence.__name__, n, repr(x)[:100])
