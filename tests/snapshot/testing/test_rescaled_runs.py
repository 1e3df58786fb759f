"""Runs that go on with one parallelism after another: nothing is lost, doubled or disordered, whatever fails and when.

500 chains are run with ``CUTLINE_EXAMPLES=2.5``, which takes some five minutes on a quiet machine. ``make test`` runs
200, in two minutes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from random import Random

import pytest

from cutline.snapshot.keyed.heap import HeapTier
from cutline.snapshot.keyed.tier import Tier
from cutline.snapshot.plan.topology import Partitioning
from cutline.snapshot.subtask.environment import SubtaskEnvironment
from cutline.snapshot.testing.simulation import host
from tests.run_size import FACTOR, scaled
from tests.snapshot.keyed.cold_tiers import LateTier
from tests.snapshot.testing.rescale_chains import REFUSALS, Chain
from tests.snapshot.testing.rescaled import JOBS
from tests.snapshot.testing.rescaled_channels import Channels

#: Chains of the campaign, in parts that each fit a time limit, and those of the cold tier.
_CHAINS, _PARTS, _COLD_CHAINS = 200, 8, 20

#: Refusals that chance hardly meets. They have tests of their own (`test_rerouting`).
_RARE = ("ended receiver", "copies hold others")

#: What must have been seen, or else the campaign shows nothing.
_DUE = (
    *(f"reshaped: {each.value}" for each in Partitioning),
    "reshaped: in a cycle",
    "rescaled before waves were drained",
    "rolled back before waves were drained",
    "rescaled with wave 2",
    "rescaled with keyless timers",
    "rescaled with prepared output",
    "rescaled with pieces under two clips",
    "waves stored",
    "a piece under two clips",
    "END in flight",
    *(f"refused: {kind}" for kind in REFUSALS if kind not in _RARE),
)


@pytest.fixture(scope="module")
def seen() -> Iterator[Counter[str]]:
    """Situations of all chains. The campaign is void without some of them."""
    found: Counter[str] = Counter()
    yield found
    print(found)
    # Not where a test was chosen by its name.
    if FACTOR >= 1 and found["chains"] >= _CHAINS:
        assert [what for what in _DUE if not found[what]] == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(_PARTS))
def test_nothing_is_lost_doubled_or_disordered(part: int, seen: Counter[str]) -> None:
    """Levels 2, 4, 3, 1 and random ones, with faults, overlapping snapshots, ends in flight, and refusals."""
    for seed in range(part, scaled(_CHAINS), _PARTS):
        seen.update(Chain(seed).run())
        seen["chains"] += 1


class SealingTier(LateTier):
    """A cold tier of four changed rows, whose writer works at once."""

    made = 0

    def __init__(self) -> None:
        super().__init__()
        self.writer.is_prompt = True
        SealingTier.made += 1


@pytest.fixture
def cold_tier(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[Tier]]:
    """About half of the subtasks keep rows in a cold tier, so that rows of a chain go from tier to tier."""
    chance = Random("tiers")
    SealingTier.made = 0

    def tier_of(_: object) -> Tier:
        return SealingTier() if chance.randrange(2) else HeapTier()

    monkeypatch.setattr(host, "SubtaskEnvironment", partial(SubtaskEnvironment, tier_of=tier_of))
    yield SealingTier
    assert SealingTier.made


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("cold_tier")
def test_rows_go_from_tier_to_tier() -> None:
    """Keyed state, times to live and keyed timers of a heap are restored by a cold tier, and the other way round."""
    for seed in range(scaled(_COLD_CHAINS)):
        Chain(seed * len(JOBS)).run()


def test_records_of_a_key_pass_in_order_over_many_restores() -> None:
    """Rescales and plain restores of channels alone, with waves that are not drained, some thousand times."""
    seen: Counter[str] = Counter()
    for seed in range(scaled(1_000)):
        seen.update(Channels(Random(f"channels {seed}")).run())
    assert seen["rescaled with waves"] and seen["plain with waves"], "a plain rollback must bring waves back"
