"""History of a run: claims, bases, and the chain of snapshots that they make (PROTOCOL 7).

Owns the two write-once records of the fence, and the functions that compute the history from them. Must not know how
records are stored, nor which processes are alive.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from cutline.snapshot.errors import SnapshotCorrupt
from cutline.snapshot.ids import claim_of_snapshot


@dataclass(frozen=True, slots=True)
class Claim:
    """Write-once record by which a coordinator takes a run. A larger number fences all smaller ones."""

    number: int  #: 1, 2, 3, … without a gap
    owner: str  #: token of one submission of the run, shared by all instances of its coordinator
    instance: str  #: token of one coordinator instance; never used twice


@dataclass(frozen=True, slots=True)
class Base:
    """Write-once record: the owner of `claim` continued from `snapshot_id`, or from the beginning if it is None."""

    claim: int
    snapshot_id: int | None


def history(bases: Iterable[Base], manifests: Iterable[int]) -> tuple[int, ...]:
    """Return the ids of the snapshots in the run's history, ascending. The last id is the newest.

    The history is the chain of bases from the highest claim with a base (PROTOCOL 7.3). A manifest off the chain is
    void, because a fenced coordinator wrote it, or the run was rolled back past it. Ids that retention has deleted
    are left out, except the newest: reading its missing manifest must raise an error.

    Parameters
    ----------
    bases
        All bases of the run, in any order.
    manifests
        Ids of all manifests of the run, in any order, read after the bases; without aborted records.

    Raises
    ------
    SnapshotCorrupt
        if a base of the chain is missing or points forward.
    """
    base_of = {base.claim: base for base in bases}
    if not base_of:
        return ()
    stored: dict[int, list[int]] = {}
    for snapshot_id in sorted(manifests):
        stored.setdefault(claim_of_snapshot(snapshot_id), []).append(snapshot_id)
    base = base_of[max(base_of)]
    chain = stored.get(base.claim, [])
    newest = chain[-1] if chain else base.snapshot_id
    while base.snapshot_id is not None:
        earlier = _base_below(base, base_of)
        chain = [i for i in stored.get(earlier.claim, []) if i <= base.snapshot_id] + chain
        base = earlier
    if newest is not None and newest not in chain:
        chain.append(newest)
    return tuple(chain)


def bases_to(bases: Iterable[Base], claim: int, snapshot_id: int) -> tuple[Base, ...]:
    """Return the bases as they are after the holder of `claim` has continued from `snapshot_id`."""
    return (*(base for base in bases if base.claim < claim), Base(claim, snapshot_id))


def may_discard(left_by: int, incarnation: int) -> bool:
    """Return whether `incarnation` may remove unpublished data that incarnation `left_by` left (PROTOCOL 7.4).

    A coordinator may learn late that it is fenced, so it must never discard its successor's data.
    """
    return left_by < incarnation


def _base_below(base: Base, base_of: dict[int, Base]) -> Base:
    assert base.snapshot_id is not None
    claim = claim_of_snapshot(base.snapshot_id)
    if claim >= base.claim or claim not in base_of:
        raise SnapshotCorrupt(
            f"base of claim {base.claim} continues from snapshot {base.snapshot_id}, but claim {claim} has no base "
            "below it: the run's claims are damaged; restore them from a copy, or start under another name"
        )
    return base_of[claim]
