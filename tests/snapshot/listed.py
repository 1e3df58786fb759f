"""Lists of parts for tests: keyed state and own state of nodes, with restored parts and own parts."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from hypothesis import strategies as st

from cutline.snapshot.ids import Subtask
from cutline.snapshot.plan.topology import KEY_GROUPS
from cutline.snapshot.stored.certificate import ListEntry, SubtaskRecord
from cutline.snapshot.stored.list_rules import Lists, Made
from cutline.snapshot.stored.part import Handle, own_part, rows_part
from tests.snapshot import sample

#: Run and incarnation of the lists.
MADE = Made(sample.RUN, sample.INCARNATION)


def rows(
    subtask: Subtask,
    generations: tuple[int, int],
    groups: tuple[int, int],
    incarnation: int = sample.INCARNATION,
    *,
    piece: int = 0,
) -> Handle:
    """An inline piece of a segment. `piece` tells apart the pieces of a single key group."""
    body = f"rows {generations} {groups} {piece}".encode()
    snapshot_id = incarnation * 1_000_000 + generations[1]
    return rows_part(sample.RUN, incarnation, snapshot_id, subtask, generations, groups, [body], 1).inline()


def own(subtask: Subtask, generations: tuple[int, int], incarnation: int = sample.INCARNATION) -> Handle:
    """Inline own state: the whole state, or a delta."""
    snapshot_id = incarnation * 1_000_000 + generations[1]
    return own_part(sample.RUN, incarnation, snapshot_id, subtask, generations, [b"own"]).inline()


def whole(handle: Handle) -> ListEntry:
    """An entry that reads all of a piece."""
    assert handle.groups is not None
    return ListEntry(handle, *handle.groups)


def ranges(parallelism: int) -> list[tuple[int, int]]:
    """Key groups [lo, hi) of each subtask."""
    bounds = [-(-index * KEY_GROUPS // parallelism) for index in range(parallelism + 1)]
    return list(pairwise(bounds))


def keyed_records() -> tuple[SubtaskRecord, ...]:
    """The sample, where P has keyed state of two lineages and own state in deltas, and Q has keyed state only."""
    p, q = sample.records()
    half = KEY_GROUPS // 2
    return (
        replace(
            p,
            groups=(0, KEY_GROUPS),
            rows=(
                whole(rows(sample.P, (0, 4), (0, KEY_GROUPS), 3)),
                ListEntry(rows(Subtask("P", 1), (5, 5), (7, 900), 3), 100, 900),
                whole(rows(sample.P, (1, 1), (0, half))),
                whole(rows(sample.P, (1, 1), (half, KEY_GROUPS))),
                whole(rows(sample.P, (2, 3), (5, 6), piece=1)),
                whole(rows(sample.P, (2, 3), (5, 6), piece=2)),
            ),
            own=(own(sample.P, (0, 2), 3), own(sample.P, (3, 3), 3), own(sample.P, (1, 1))),
        ),
        replace(q, groups=(0, KEY_GROUPS), rows=(whole(rows(sample.Q, (0, 2), (0, KEY_GROUPS))),)),
    )


@st.composite
def segments(
    draw: st.DrawFn, subtask: Subtask, groups: tuple[int, int], incarnation: int, *, has_base: bool, count: int
) -> list[ListEntry]:
    """Own entries of one lineage: `count` segments that abut, each of one piece or several."""
    entries: list[ListEntry] = []
    first = 0 if has_base else 1
    for _ in range(count):
        last = first + draw(st.integers(0, 2))
        if draw(st.booleans()):
            group = draw(st.integers(groups[0], groups[1] - 1))
            pieces = [rows(subtask, (first, last), (group, group + 1), incarnation, piece=at) for at in range(2)]
        else:
            inner = draw(st.lists(st.integers(groups[0] + 1, groups[1] - 1), max_size=2, unique=True).map(sorted))
            bounds = [groups[0], *inner, groups[1]]
            pieces = [rows(subtask, (first, last), each, incarnation) for each in pairwise(bounds)]
        entries += map(whole, pieces)
        first = last + 1
    return entries


@st.composite
def lists_of_node(draw: st.DrawFn, node: str = "P") -> dict[Subtask, Lists]:
    """Lists of all subtasks of a node that obey the rules: some with a base, some with what was restored."""
    found: dict[Subtask, Lists] = {}
    parallelism = draw(st.integers(1, 3))
    for index, groups in enumerate(ranges(parallelism)):
        subtask = Subtask(node, index)
        has_base = draw(st.booleans())
        older = st.integers(0 if has_base else 1, 2)
        entries = [] if has_base else draw(segments(subtask, groups, 3, has_base=True, count=draw(older)))
        entries += draw(segments(subtask, groups, sample.INCARNATION, has_base=has_base, count=draw(st.integers(1, 3))))
        deltas = [own(subtask, (0, 1), 3), own(subtask, (2, 2), 3), own(subtask, (1, 2)), own(subtask, (3, 3))]
        found[subtask] = Lists(groups, tuple(entries), tuple(deltas[: draw(st.integers(0, 4))]))
    return found
