"""The chain of bases, over generated pasts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline.snapshot.errors import SnapshotCorrupt
from cutline.snapshot.ids import first_snapshot_id
from cutline.snapshot.stored.history import Base, history


@st.composite
def lineages(draw: st.DrawFn) -> tuple[list[Base], list[int], list[int]]:
    """Bases, manifests and the true history of a run in which each claim goes on from some earlier snapshot."""
    true: list[int] = []
    bases: list[Base] = []
    manifests: list[int] = []
    for claim in range(1, draw(st.integers(1, 6)) + 1):
        if draw(st.booleans()) or claim == 1:
            true = true[: draw(st.integers(0, len(true)))]
            bases.append(Base(claim, true[-1] if true else None))
            written = [first_snapshot_id(claim) + i for i in draw(st.sets(st.integers(0, 9), max_size=3))]
            manifests += written
            true = sorted(true + written)
    return draw(st.permutations(bases)), draw(st.permutations(manifests)), true


@given(lineages())
def test_history_is_the_chain_of_bases(lineage: tuple[list[Base], list[int], list[int]]) -> None:
    """Whatever was left behind is void, in any order of listing, and the rest ascends to the newest."""
    bases, manifests, true = lineage
    assert history(bases, manifests) == tuple(true)


@given(lineages(), st.data())
def test_retention_leaves_gaps_but_never_takes_the_newest(
    lineage: tuple[list[Base], list[int], list[int]], data: st.DataObject
) -> None:
    """Deleted older snapshots are left out; a newest one that is gone is still named, to be missed loudly."""
    bases, manifests, true = lineage
    deleted = data.draw(st.sets(st.sampled_from(true))) if true else set()
    found = history(bases, [i for i in manifests if i not in deleted])
    top = max(bases, key=lambda base: base.claim)
    kept = [i for i in true if i not in deleted]
    above = [i for i in kept if i >= first_snapshot_id(top.claim)]
    missed = [] if above or top.snapshot_id is None or top.snapshot_id in kept else [top.snapshot_id]
    assert found == tuple(kept + missed)


def test_nothing_counts_before_the_first_base() -> None:
    """A manifest without any base is void, and an empty store has an empty history."""
    assert history([], []) == ()
    assert history([], [1_000_000]) == ()


@pytest.mark.parametrize("bases", [[Base(3, 2_000_000)], [Base(2, 2_000_000)], [Base(1, None), Base(2, 5_000_000)]])
def test_a_chain_that_is_broken_is_corrupt(bases: list[Base]) -> None:
    """A base that is missing from the chain, or that points at its own claim or above, is named."""
    with pytest.raises(SnapshotCorrupt, match=f"base of claim {bases[-1].claim}"):
        history(bases, [2_000_000])
