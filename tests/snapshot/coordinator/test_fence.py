"""The fence, exhaustively: every interleaving of several coordinators, and one mutant for each rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest

from cutline.snapshot.coordinator.fence import Fence, FenceState
from cutline.snapshot.coordinator.fence_events import (
    FenceEffect,
    HistoryListed,
    ListHistory,
    Unpublished,
    WriteBase,
)
from cutline.snapshot.ids import claim_of_snapshot
from cutline.snapshot.stored.claim_digest import ClaimDigest
from cutline.snapshot.stored.history import Base, Claim, history
from cutline.snapshot.testing.exploration.search import search
from tests.snapshot.fence_model import Model, Owner, World, by_list

#: More than the largest world below has.
STATES_MAX = 50_000

ALONE = (Owner("A", snapshots=2, crashes=1, rollbacks=1, doubts=1),)
ONE_RESTARTS = (Owner("A", snapshots=2, crashes=1), Owner("B", snapshots=1))
ONE_ROLLS_BACK = (Owner("A", snapshots=2, rollbacks=1, doubts=1), Owner("B", snapshots=1))
TWO = (Owner("A", snapshots=2), Owner("B", snapshots=2))
THREE = (Owner("A", snapshots=1), Owner("B", snapshots=1), Owner("C", snapshots=1))

ALWAYS_SEEN = {"a claim without a base", "a void manifest", "output of two claims", "output left over"}


# ---- what must hold in every state


def doubled(world: World) -> str | None:
    """A record that was committed twice."""
    times = Counter(one.record for one in world.committed)
    return next((f"record {record} doubled" for record, count in times.items() if count > 1), None)


def lost(world: World) -> str | None:
    """A record that the newest snapshot counts as output, or that was to be committed, and that is gone."""
    for one in (*world.lost, *world.newest().output):
        if one not in world.committed and one not in world.prepared:
            return f"record {one.record} lost"
    return None


def disorder(world: World) -> str | None:
    """A loss or a repetition, or what would become one later."""
    newest = world.newest()
    for one in world.committed:
        if one not in newest.output:
            return f"record {one.record} committed by {one.snapshot_id}, which is not in the history"
    for snapshot_id in world.given_up:
        if snapshot_id in world.manifests:
            return f"snapshot {snapshot_id} published after it was given up"
    for owner in world.owners:
        if _rests(world, owner) and not set(newest.output) <= set(world.committed):
            return f"{owner.name} rests, but not all that snapshot {newest.snapshot_id} says is committed"
    return doubled(world) or lost(world)


def situations(world: World) -> list[str]:
    """What must have occurred somewhere, or the exploration proves little."""
    occurred = {
        "a void manifest": bool(set(world.manifests) - set(history(world.bases, world.manifests))),
        "a claim without a base": len(world.claims) > len(world.bases),
        "output of two claims": len({claim_of_snapshot(one.snapshot_id) for one in world.committed}) > 1,
        "output left over": bool(set(world.prepared) - set(world.newest().output)),
        "an aborted record": bool(world.aborted),
        "something may land late": bool(world.late),
        "a fenced coordinator": any(owner.gone for owner in world.owners),
        "a run adopted without rollback": any(owner.adopts and _rests(world, owner) for owner in world.owners),
    }
    return [situation for situation, occurs in occurred.items() if occurs]


def _rests(world: World, owner: Owner) -> bool:
    fence = dict(owner.fence or ())
    ready = fence.get("state") is FenceState.READY and fence["claim"] == len(world.claims)
    return ready and owner.workers is not None and not owner.workers.operations


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("owners", "states_min", "also_seen"),
    [
        pytest.param(
            ALONE,
            14_000,
            {"an aborted record", "something may land late", "a run adopted without rollback"},
            id="alone",
        ),
        pytest.param(
            ONE_RESTARTS, 24_000, {"a fenced coordinator", "a run adopted without rollback"}, id="two-one-restarts"
        ),
        pytest.param(ONE_ROLLS_BACK, 24_000, {"a fenced coordinator", "an aborted record"}, id="two-one-rolls-back"),
        pytest.param(TWO, 2_000, {"a fenced coordinator"}, id="two-publish-twice"),
        pytest.param(THREE, 32_000, {"a fenced coordinator"}, id="three"),
    ],
)
def test_no_interleaving_loses_or_doubles_committed_output(
    owners: tuple[Owner, ...], states_min: int, also_seen: set[str]
) -> None:
    """Several coordinators under one run name, every interleaving: the committed output is the history's."""
    found = search(World(owners), Model().steps, disorder, seen=situations, states_max=STATES_MAX)
    print(found)
    assert found.violation is None, str(found)
    assert found.states >= states_min
    assert found.seen >= ALWAYS_SEEN | also_seen


# ---- checkpoints


ONE_FAILS = (Owner("A", snapshots=1, crashes=1, rollbacks=1),)


def hidden(world: World) -> str | None:
    """A claim or base that the reader of some checkpoint does not find, or finds otherwise than it is stored."""
    for checkpoint in world.checkpoints:
        claims, bases = by_list(world, checkpoint)
        if set(claims) != set(world.claims) or set(bases) != set(world.bases):
            return f"a record is hidden or added by the checkpoint of claim {checkpoint.claim}"
    return None


def situations_of_checkpoints(world: World) -> list[str]:
    """What must have occurred, or the exploration of checkpoints proves little."""
    bases = dict.fromkeys(base.claim for base in world.bases)
    late = [
        number
        for checkpoint in world.checkpoints
        for number in bases
        if number <= checkpoint.claim and number not in [base.claim for base in checkpoint.bases]
    ]
    occurred = {
        "a base that its checkpoint does not hold": bool(late),
        "a checkpoint above a claim without a base": any(
            claim.number not in bases for checkpoint in world.checkpoints for claim in checkpoint.claims
        ),
        "two checkpoints": len(world.checkpoints) > 1,
        "a claim above all checkpoints": bool(world.checkpoints)
        and len(world.claims) > max(checkpoint.claim for checkpoint in world.checkpoints),
    }
    return [*(situation for situation, occurs in occurred.items() if occurs), *situations(world)]


@pytest.mark.timeout(120)
@pytest.mark.parametrize("owners", [TWO, ONE_FAILS], ids=["two-publish-twice", "one-fails"])
def test_no_checkpoint_hides_a_claim_or_a_base(owners: tuple[Owner, ...]) -> None:
    """PROTOCOL 7.7: every listing may write a checkpoint, and every start may read any. Nothing is lost or doubled."""
    found = search(
        World(owners),
        Model(copies=True).steps,
        lambda world: hidden(world) or disorder(world),
        seen=situations_of_checkpoints,
        states_max=STATES_MAX,
    )
    print(found)
    assert found.violation is None, str(found)
    assert found.seen >= {
        *("a base that its checkpoint does not hold", "a checkpoint above a claim without a base"),
        *("two checkpoints", "a claim above all checkpoints", "a claim without a base"),
    }


def by_extent(world: World, checkpoint: ClaimDigest) -> tuple[tuple[Claim, ...], tuple[Base, ...]]:
    """Without 7.7: take the checkpoint for all that there is up to its claim."""
    claims = tuple(claim for claim in world.claims if claim.number > checkpoint.claim)
    bases = tuple(base for base in world.bases if base.claim > checkpoint.claim)
    return (*checkpoint.claims, *claims), (*checkpoint.bases, *bases)


def by_checkpoint(world: World, checkpoint: ClaimDigest) -> tuple[tuple[Claim, ...], tuple[Base, ...]]:
    """Without 7.7: read what the checkpoint holds, and nothing beside it."""
    return (checkpoint.claims, checkpoint.bases) if checkpoint.claim else (world.claims, world.bases)


# ---- teeth: each rule taken away


class ListsBeforeItClaims(Fence):
    """Without 7.1: what is published between the listing and the claim is not known."""

    _known: tuple[Claim, ...] = ()

    def _on_claims_listed(self, claims: tuple[Claim, ...]) -> list[FenceEffect]:
        self._known = claims
        return self._ask(ListHistory(0))

    def _on_history_listed(self, listed: HistoryListed) -> list[FenceEffect]:
        self._history = self._snapshots(listed.bases, listed.manifests)
        return super()._on_claims_listed(self._known)

    def _on_claim_taken(self, number: int) -> list[FenceEffect]:
        self.claim = number
        return self._ask(WriteBase(Base(number, self._history[-1] if self._history else None)))


class NeverChecks(Fence):
    """Without 7.2."""

    def _on_claim_checked(self, holder: Claim | None) -> list[FenceEffect]:
        return super()._on_claim_checked(None)


class ChecksOnlyAfterManifests(Fence):
    """Without half of 7.2."""

    def _on_claim_checked(self, holder: Claim | None) -> list[FenceEffect]:
        return super()._on_claim_checked(holder if self.state is FenceState.PUBLISHING else None)


class ChecksOnlyAfterBases(Fence):
    """Without the other half of 7.2."""

    def _on_claim_checked(self, holder: Claim | None) -> list[FenceEffect]:
        return super()._on_claim_checked(None if self.state is FenceState.PUBLISHING else holder)


class TakesAnyManifest(Fence):
    """Without 7.3: the newest is the one with the highest id."""

    def _snapshots(self, bases: tuple[Base, ...], manifests: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sorted(manifests))


class GivesUpUndecided(Fence):
    """Without 7.6."""

    def _on_undecided(self, snapshot_id: int) -> list[FenceEffect]:
        return [Unpublished(snapshot_id), *self._next_in_queue()]


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("without", "owners", "check", "violation"),
    [
        pytest.param(Model(copies=True, reads=by_extent), TWO, lost, "record 1 lost", id="7.7-extent-lost"),
        pytest.param(Model(copies=True, reads=by_extent), TWO, doubled, "record 1 doubled", id="7.7-extent-doubled"),
        pytest.param(Model(copies=True, reads=by_checkpoint), TWO, lost, "record 1 lost", id="7.7-beside-lost"),
        pytest.param(
            Model(copies=True, reads=by_checkpoint), TWO, doubled, "record 1 doubled", id="7.7-beside-doubled"
        ),
        pytest.param(Model(ListsBeforeItClaims), TWO, doubled, "record 1 doubled", id="7.1-claim-first-doubled"),
        pytest.param(Model(ListsBeforeItClaims), TWO, lost, "record 1 lost", id="7.1-claim-first-lost"),
        pytest.param(Model(NeverChecks), TWO, doubled, "record 1 doubled", id="7.2-look-doubled"),
        pytest.param(Model(NeverChecks), TWO, lost, "record 1 lost", id="7.2-look-lost"),
        pytest.param(Model(ChecksOnlyAfterBases), TWO, doubled, "record 1 doubled", id="7.2-look-after-manifest"),
        pytest.param(Model(ChecksOnlyAfterManifests), THREE, lost, "record 1 lost", id="7.2-look-after-base"),
        pytest.param(Model(TakesAnyManifest), ONE_ROLLS_BACK, lost, "record 1 lost", id="7.3-chain"),
        pytest.param(Model(discards=lambda left_by, incarnation: True), TWO, lost, "record 1 lost", id="7.4-discard"),
        pytest.param(
            Model(GivesUpUndecided),
            ALONE,
            disorder,
            "snapshot 1000000 published after it was given up",
            id="7.6-decide",
        ),
    ],
)
def test_without_a_rule_output_is_lost_or_doubled(
    without: Model, owners: tuple[Owner, ...], check: Callable[[World], str | None], violation: str
) -> None:
    """Each rule of the fence is needed: without it the exploration finds the named harm."""
    found = search(World(owners), without.steps, check, states_max=STATES_MAX)
    print(found)
    assert found.violation == violation
