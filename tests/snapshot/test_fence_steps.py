"""One life of the fence, answer by answer."""

from __future__ import annotations

import pytest

from cutline.snapshot.coordinator.fence import Fence, FenceState
from cutline.snapshot.coordinator.fence_events import (
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
    TakeClaim,
    Unpublished,
    WriteBase,
    WriteManifest,
)
from cutline.snapshot.errors import RestoreRefused, SnapshotCorrupt
from cutline.snapshot.stored.history import Base, Claim, history

MINE = Claim(1, "driver", "driver-1")
OTHERS = Claim(2, "other", "other-1")


def drive(
    fence: Fence,
    *claims: Claim,
    bases: tuple[Base, ...] = (),
    manifests: tuple[int, ...] = (),
    is_held: bool = True,
) -> list[FenceEffect]:
    """Start `fence` on a store that holds this, and answer until it continues or stops."""
    effects = fence.step(Start())
    while True:
        match effects:
            case [ListClaims() as asked]:
                effects = fence.step(ClaimsListed(asked, claims))
            case [TakeClaim() as asked]:
                effects = fence.step(ClaimTaken(asked))
            case [ListHistory() as asked]:
                effects = fence.step(HistoryListed(asked, bases, manifests))
            case [HoldBase() as asked]:
                effects = fence.step(BaseHeld(asked, is_held))
            case [WriteBase() as asked]:
                effects = fence.step(BaseWritten(asked))
            case [CheckForClaim() as asked]:
                effects = fence.step(ClaimSeen(asked, None))
            case _:
                return effects


def test_a_first_start_goes_through_every_step_in_order() -> None:
    """Claim, then list, then base, then look, and only then go on (7.1, 7.2)."""
    fence = Fence("driver", "driver-1")
    assert fence.step(Start()) == [ListClaims()]
    assert fence.step(ClaimsListed(ListClaims(), ())) == [TakeClaim(MINE)]
    assert fence.step(ClaimTaken(TakeClaim(MINE))) == [ListHistory(1)]
    assert fence.step(HistoryListed(ListHistory(1), (), ())) == [WriteBase(Base(1, None))]
    assert fence.step(BaseWritten(WriteBase(Base(1, None)))) == [CheckForClaim(2)]
    assert fence.step(ClaimSeen(CheckForClaim(2), None)) == [Continue(1, ())]


def test_snapshots_are_published_one_at_a_time_and_undecided_ones_decided() -> None:
    """A second snapshot waits for the first; an unknown outcome is decided, here as aborted (7.6)."""
    fence = Fence("driver", "driver-1")
    drive(fence)
    write, decide = WriteManifest(1_000_000), DecideManifest(1_000_000)
    assert fence.step(Publish(1_000_000)) == [write]
    assert fence.step(Publish(1_000_002)) == []
    assert fence.step(ManifestUndecided(write)) == [decide]
    assert fence.step(ManifestWritten(write)) == [], "an answer that came too late decides nothing"
    assert fence.step(ManifestUndecided(decide)) == [decide]
    second = WriteManifest(1_000_002)
    assert fence.step(ManifestAborted(decide)) == [Unpublished(1_000_000), second]
    assert fence.step(ManifestWritten(second)) == [CheckForClaim(2)]
    assert fence.step(ClaimSeen(CheckForClaim(2), None)) == [Published(1_000_002)]
    assert fence.state is FenceState.READY


def test_a_fenced_life_says_so_once_and_then_nothing() -> None:
    """Whoever sees the next claim stops before acting, and every later event yields nothing."""
    fence = Fence("driver", "driver-1")
    drive(fence)
    fence.step(Publish(1_000_000))
    fence.step(ManifestWritten(WriteManifest(1_000_000)))
    assert fence.step(ClaimSeen(CheckForClaim(2), OTHERS)) == [Stop(OTHERS)]
    later: list[FenceEvent] = [Start(), Rollback(), Publish(1_000_001), ClaimSeen(CheckForClaim(2), None)]
    assert [fence.step(event) for event in later] == [[], [], [], []]


def test_a_rollback_forgets_what_waits_and_stops_where_the_claim_is_lost() -> None:
    """A rollback takes the next number or nothing; answers from before it are ignored."""
    fence = Fence("driver", "driver-1")
    drive(fence)
    fence.step(Publish(1_000_000))
    take = TakeClaim(Claim(2, "driver", "driver-1"))
    assert fence.step(Rollback()) == [take]
    assert fence.step(ManifestWritten(WriteManifest(1_000_000))) == []
    assert fence.step(Rollback()) == [], "the claim under way serves"
    assert fence.step(ClaimLost(take, OTHERS)) == [Stop(OTHERS)]


def test_a_new_submission_goes_on_above_whoever_was_quicker() -> None:
    """At a start a lost number is not the end: the second start fences the first."""
    fence = Fence("driver", "driver-1")
    fence.step(Start())
    assert fence.step(ClaimsListed(ListClaims(), (Claim(1, "other", "other-1"),))) == [
        TakeClaim(Claim(2, "driver", "driver-1"))
    ]
    assert fence.step(ClaimLost(TakeClaim(Claim(2, "driver", "driver-1")), OTHERS)) == [
        TakeClaim(Claim(3, "driver", "driver-1"))
    ]


def test_a_fenced_submission_does_not_take_the_run_back() -> None:
    """A coordinator that restarts below another submission's claim stops: two live drivers do not fight."""
    assert drive(Fence("driver", "driver-2"), MINE, OTHERS) == [Stop(OTHERS)]
    late = Fence("driver", "driver-2")
    late.step(Start())
    late.step(ClaimsListed(ListClaims(), (MINE,)))
    assert late.step(ClaimLost(TakeClaim(Claim(2, "driver", "driver-2")), OTHERS)) == [Stop(OTHERS)]


BASES = (Base(1, None),)
MANIFESTS = (1_000_000, 1_000_001, 1_000_002)


@pytest.mark.parametrize(
    ("restore_from", "continued"),
    [("latest", MANIFESTS), (1_000_001, MANIFESTS[:2]), (None, ())],
)
def test_where_a_submission_begins(restore_from: RestoreFrom, continued: tuple[int, ...]) -> None:
    """The newest, an older one, or afresh; what is left behind is no longer history."""
    fence = Fence("driver", "driver-1", restore_from)
    assert drive(fence, Claim(1, "other", "other-1"), bases=BASES, manifests=MANIFESTS) == [Continue(2, continued)]
    going_on = Base(2, continued[-1] if continued else None)
    assert history([*BASES, going_on], MANIFESTS) == continued


def test_a_restarted_coordinator_does_not_go_back_again() -> None:
    """restoreFrom is obeyed once per submission: a later life goes on from what came after."""
    claims = (Claim(1, "other", "other-1"), Claim(2, "driver", "driver-1"))
    bases, manifests = (*BASES, Base(2, 1_000_001)), (*MANIFESTS, 2_000_000)
    fence = Fence("driver", "driver-2", restore_from=1_000_001)
    expected = (1_000_000, 1_000_001, 2_000_000)
    assert drive(fence, *claims, bases=bases, manifests=manifests) == [Continue(3, expected)]


def test_a_rollback_may_go_behind_a_damaged_snapshot() -> None:
    """The fallback is a base like any other, so a later crash goes on from there."""
    fence = Fence("driver", "driver-1")
    drive(fence, Claim(1, "other", "other-1"), bases=BASES, manifests=MANIFESTS)
    take = TakeClaim(Claim(3, "driver", "driver-1"))
    assert fence.step(Rollback(to=1_000_001)) == [take]
    assert fence.step(ClaimTaken(take)) == [ListHistory(3, 1_000_001)]
    bases = (*BASES, Base(2, 1_000_002))
    older = Base(3, 1_000_001)
    assert fence.step(HistoryListed(ListHistory(3, 1_000_001), bases, MANIFESTS)) == [HoldBase(older)]
    assert fence.step(BaseHeld(HoldBase(older), True)) == [WriteBase(older)]


def test_what_is_being_removed_cannot_be_restored() -> None:
    """It is refused by name, before any base is written (7.8). The newest is never asked for, nor is a fresh start."""
    fence = Fence("driver", "driver-1", restore_from=1_000_001)
    with pytest.raises(RestoreRefused, match="1000001 is being removed"):
        drive(fence, Claim(1, "other", "other-1"), bases=BASES, manifests=MANIFESTS, is_held=False)
    assert fence.step(Rollback()) == []
    for restore_from in (1_000_002, "latest", None):
        fence = Fence("driver", "driver-1", restore_from)
        effects = drive(fence, Claim(1, "other", "other-1"), bases=BASES, manifests=MANIFESTS, is_held=False)
        assert isinstance(effects[0], Continue)


def test_a_pinned_snapshot_off_the_chain_can_be_restored() -> None:
    """The base names it, and the history is the chain that ends in it; a later claim's base has no say in that."""
    bases = (*BASES, Base(2, None), Base(9, None))
    fence = Fence("driver", "driver-1", restore_from=1_000_001)
    claims = (Claim(1, "other", "other-1"), Claim(2, "other", "other-2"))
    fence.step(Start())
    (take,) = fence.step(ClaimsListed(ListClaims(), claims))
    assert isinstance(take, TakeClaim)
    (asked,) = fence.step(ClaimTaken(take))
    assert asked == ListHistory(3, 1_000_001)
    listed = HistoryListed(asked, bases, (2_000_000,), MANIFESTS)
    assert fence.step(listed) == [HoldBase(Base(3, 1_000_001))]
    assert fence.step(BaseHeld(HoldBase(Base(3, 1_000_001)), True)) == [WriteBase(Base(3, 1_000_001))]
    assert fence.step(BaseWritten(WriteBase(Base(3, 1_000_001)))) == [CheckForClaim(4)]
    assert fence.step(ClaimSeen(CheckForClaim(4), None)) == [Continue(3, (1_000_000, 1_000_001))]


def test_what_is_not_history_cannot_be_restored() -> None:
    """A void or unknown snapshot is refused by name, before any base is written."""
    fence = Fence("driver", "driver-1", restore_from=1_000_009)
    with pytest.raises(RestoreRefused, match="1000009"):
        drive(fence, Claim(1, "other", "other-1"), bases=BASES, manifests=MANIFESTS)
    assert fence.step(Rollback()) == []


def test_claims_with_a_gap_are_corrupt() -> None:
    """A gap would let a fenced coordinator look for a number that nobody will ever take."""
    with pytest.raises(SnapshotCorrupt, match="gap"):
        drive(Fence("driver", "driver-1"), Claim(2, "other", "other-1"))


@pytest.mark.parametrize("event", [Start(), Publish(2_000_000), Publish(1_000_000)])
def test_commands_that_do_not_fit_are_refused(event: FenceEvent) -> None:
    """A second start, an id of another claim's block, an id that does not ascend: mistakes of the caller."""
    fence = Fence("driver", "driver-1")
    drive(fence)
    fence.step(Publish(1_000_000))
    with pytest.raises(ValueError, match=r"driver-1|1\d{6}|2\d{6}"):
        fence.step(event)


def test_nothing_is_published_before_the_run_is_ours() -> None:
    """Publish and Rollback have to wait for Start and Continue."""
    fence = Fence("driver", "driver-1")
    with pytest.raises(ValueError, match="NEW"):
        fence.step(Publish(1_000_000))
    with pytest.raises(ValueError, match="NEW"):
        fence.step(Rollback())
