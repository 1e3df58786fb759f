"""Lists of parts: a list that obeys the rules has no problems, and any other has one that names its rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline.snapshot.ids import Subtask
from cutline.snapshot.plan.topology import KEY_GROUPS
from cutline.snapshot.stored.certificate import ListEntry, LocalVersion, StepBase, problems
from cutline.snapshot.stored.list_rules import Lists, list_problems, list_problems_since
from cutline.snapshot.stored.part import Handle
from tests.snapshot import sample
from tests.snapshot.listed import MADE, keyed_records, lists_of_node, own, ranges, rows, whole

P, OTHER = Subtask("P"), Subtask("P", 1)
ALL = (0, KEY_GROUPS)


def found(lists: dict[Subtask, Lists]) -> list[str]:
    """The problems of lists."""
    return list(list_problems(lists, MADE, KEY_GROUPS))


def of_rows(*entries: ListEntry | Handle) -> dict[Subtask, Lists]:
    """The only subtask of P, with this list."""
    return {P: Lists(ALL, tuple(whole(each) if isinstance(each, Handle) else each for each in entries), ())}


def of_own(*handles: Handle) -> dict[Subtask, Lists]:
    """The only subtask of P, with this list of own state."""
    return {P: Lists(None, (), handles)}


@given(lists_of_node())
def test_lists_that_obey_have_no_problems(lists: dict[Subtask, Lists]) -> None:
    """Any parallelism, with and without a base, with and without what was restored, in one piece or several."""
    assert found(lists) == []
    assert list(list_problems_since(lists, lists, MADE)) == []


def test_the_sample_obeys() -> None:
    """A clip of another subtask, and a single key group in two pieces. Records without lists have no problems."""
    for records in (keyed_records(), sample.records()):
        lists = {record.subtask: record.lists for record in records}
        assert found(lists) == [] and list(list_problems_since(lists, lists, MADE)) == []


# ---------------------------------------------------------------- each rule, broken alone

BASE = rows(P, (0, 2), ALL)
ONE, TWO, THREE = (rows(P, (number, number), ALL) for number in (1, 2, 3))
OLD_BASE, OLD = rows(P, (0, 4), ALL, 3), rows(P, (5, 5), ALL, 3)
LATER = rows(P, (1, 1), ALL, sample.INCARNATION + 1)
ELSEWHERE = rows(Subtask("Q"), (1, 1), ALL, 3)
FULL, DELTA, NEXT = (own(P, each) for each in ((0, 0), (1, 2), (3, 3)))
OLD_FULL = own(P, (0, 7), 3)


@pytest.mark.parametrize(
    ("lists", "says"),
    [
        ({P: Lists((0, 5), (), ())}, "P: its key groups end before 5 and go on with 32768"),
        ({P: Lists((1, KEY_GROUPS), (), ())}, "P: its key groups end before 0 and go on with 1"),
        ({P: Lists((0, 9), (), ()), OTHER: Lists((8, KEY_GROUPS), (), ())}, "end before 9 and go on with 8"),
        ({P: Lists((9, KEY_GROUPS), (), ()), OTHER: Lists((0, 9), (), ())}, "end before 0 and go on with 9"),
        ({P: Lists((0, 9), (), ()), OTHER: Lists((9, 8), (), ())}, "end before 9 and go on with 9, up to 8"),
        ({P: Lists(ALL, (), ()), OTHER: Lists(None, (), ())}, "P[1]: has no key groups, but other subtasks of P have"),
        ({P: Lists(None, (whole(ONE),), ())}, "P[0]: reads key groups 0 to 32767 of inline rows part"),
        (of_rows(OLD_BASE, ListEntry(rows(OTHER, (5, 5), (7, 9), 3), 6, 9)), "where only 7 to 8 are to read"),
        (of_rows(OLD_BASE, ListEntry(rows(OTHER, (5, 5), (7, 9), 3), 8, 8)), "reads key groups 8 to 7 of"),
        (
            {P: Lists((0, 9), (ListEntry(OLD_BASE, 0, 10),), ()), OTHER: Lists((9, KEY_GROUPS), (), ())},
            "P[0]: reads key groups 0 to 9 of inline rows part of P[0], key groups 0 to 32767, generations 0 to 4, "
            "snapshot 3000004, where only 0 to 8 are to read",
        ),
    ],
)
def test_key_groups_and_clips(lists: dict[Subtask, Lists], says: str) -> None:
    """Rows that two subtasks restore, or none, are found before they are lost (PROTOCOL 2.1, key groups)."""
    assert any(says in problem for problem in found(lists)), found(lists)


@pytest.mark.parametrize(
    ("lists", "says"),
    [
        (of_rows(replace(ONE, run="other")), "its list of rows has a part of run 'other': inline rows part"),
        (of_rows(ELSEWHERE), "has a part of another node: inline rows part of Q[0]"),
        (of_rows(LATER), f"has a part of the later incarnation {sample.INCARNATION + 1}"),
        (of_rows(ONE, OLD), "has a restored part behind an own part: inline rows part of P[0]"),
        (of_rows(rows(OTHER, (1, 1), ALL)), "has a part that P[1] made in this incarnation"),
        (of_own(OLD_FULL, own(OTHER, (1, 1))), "its list of own state has a part that P[1] made in this incarnation"),
        ({P: Lists(ALL, (ListEntry(FULL, *ALL),), ())}, "its list of rows has a part of another kind: inline own part"),
        (of_own(ONE), "its list of own state has a part of another kind: inline rows part"),
    ],
)
def test_who_made_a_part(lists: dict[Subtask, Lists], says: str) -> None:
    """A part of the wrong run, node, incarnation, kind or place is named (PROTOCOL 10.2, stored once)."""
    assert any(says in problem for problem in found(lists)), found(lists)


@pytest.mark.parametrize(
    ("lists", "says"),
    [
        (of_rows(TWO), "its own generations begin with 2, not with 1 or a base"),
        (of_rows(ONE, THREE), "generations 3 to 3 are listed where 2 was due"),
        (of_rows(ONE, TWO, TWO), "lists a piece twice, of generations 2 to 2"),
        (of_rows(ONE, rows(P, (1, 2), ALL)), "generations 1 to 2 are listed where 2 was due"),
        (of_rows(ONE, TWO, ONE), "generations 1 to 1 are listed where 3 was due"),
        (of_rows(BASE, rows(P, (2, 3), ALL)), "generations 2 to 3 are listed where 3 was due"),
        (of_rows(OLD_BASE, BASE), "lists a base, and still what was restored"),
        (of_rows(ONE, rows(P, (2, 2), (0, 9)), rows(P, (2, 2), (8, 10))), "two pieces have key group 8"),
        (of_rows(ONE, rows(P, (2, 2), (4, 9)), rows(P, (2, 2), (4, 5))), "two pieces have key group 4"),
        (of_rows(ListEntry(ONE, 0, 9)), "reads key groups 0 to 8 only of its own inline rows part"),
        (
            of_rows(rows(P, (1, 1), (4, 5), piece=1), rows(P, (1, 1), (4, 5), piece=1)),
            "lists a piece twice, of generations 1 to 1",
        ),
    ],
)
def test_generations(lists: dict[Subtask, Lists], says: str) -> None:
    """A generation that is missing, doubled, out of order or read in part is named (PROTOCOL 2.2 and 2.3)."""
    assert any(says in problem for problem in found(lists)), found(lists)


@pytest.mark.parametrize(
    ("lists", "says"),
    [
        (of_own(DELTA), "generations 1 to 2, snapshot 7000002 is listed where generation 0 was due"),
        (of_own(FULL, NEXT), "is listed where generation 1 was due"),
        (of_own(FULL, DELTA, DELTA), "is listed where generation 3 was due"),
        (of_own(FULL, DELTA, own(P, (0, 3))), "is listed where generation 3 was due"),
        (of_own(OLD_FULL, own(P, (8, 8))), "is listed where generation 1 was due"),
        (of_own(OLD_FULL, FULL), "is listed where generation 1 was due"),
    ],
)
def test_deltas_of_own_state(lists: dict[Subtask, Lists], says: str) -> None:
    """A delta without what it changes is named (PROTOCOL 2.4, own state in deltas)."""
    assert any(says in problem for problem in found(lists)), found(lists)
    assert found(of_own(FULL, DELTA, NEXT)) == found(of_own(OLD_FULL, own(P, (1, 1)))) == []


def _without(lists: Lists, place: int) -> Lists:
    return lists._replace(rows=lists.rows[:place] + lists.rows[place + 1 :])


def _doubled(lists: Lists, place: int) -> Lists:
    return lists._replace(rows=lists.rows[: place + 1] + lists.rows[place:])


def _exchanged(lists: Lists, place: int) -> Lists:
    return lists._replace(rows=(*lists.rows[:place], *lists.rows[place:][:2][::-1], *lists.rows[place + 2 :]))


@given(lists_of_node(), st.data())
def test_any_damage_to_the_own_part_is_found(lists: dict[Subtask, Lists], data: st.DataObject) -> None:
    """Of valid lists: an own segment taken out, doubled or exchanged is found, by itself or against the one before."""
    subtask = data.draw(st.sampled_from(sorted(lists)))
    mine = lists[subtask]
    change = data.draw(st.sampled_from([_without, _doubled, _exchanged]))
    count = MADE.restored_count(mine.row_handles)
    place = data.draw(st.integers(count, len(mine.rows) - 1))
    segment = [(handle.first, handle.last) for handle in mine.row_handles]
    if change is _without and segment.count(segment[place]) > 1:
        return  # nothing says how many pieces a segment has
    if change is _exchanged and segment[place : place + 1] == segment[place + 1 : place + 2]:
        return  # pieces of one segment have no order
    changed = {**lists, subtask: change(mine, place)}
    if changed != lists:
        assert found(changed) or list(list_problems_since(lists, changed, MADE))


# ---------------------------------------------------------------- against the snapshot before


def since(before: dict[Subtask, Lists], now: dict[Subtask, Lists]) -> list[str]:
    """The problems against the lists before, of lists that are right by themselves."""
    assert found(now) == []
    return list(list_problems_since(before, now, MADE))


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ({}, {}),
        ({}, of_rows(ONE)),
        (of_rows(ONE), of_rows(ONE, TWO, THREE)),
        (of_rows(ONE, TWO), of_rows(rows(P, (1, 2), ALL))),
        (of_rows(OLD_BASE, OLD), of_rows(OLD_BASE, OLD)),
        (of_rows(OLD_BASE, OLD), of_rows(OLD_BASE, OLD, ONE)),
        (of_rows(OLD_BASE, ONE, TWO), of_rows(BASE, THREE)),
        (of_rows(OLD_BASE), of_rows(rows(P, (0, 0), ALL))),
        (of_rows(BASE), of_rows(rows(P, (0, 3), ALL))),
        (of_rows(replace(OLD_BASE, run="origin", incarnation=99)), of_rows(rows(P, (0, 0), ALL))),
        (of_own(OLD_FULL), of_own(OLD_FULL, own(P, (1, 1)))),
        (of_own(OLD_FULL, own(P, (1, 1))), of_own(own(P, (0, 2)))),
    ],
)
def test_what_may_follow(before: dict[Subtask, Lists], now: dict[Subtask, Lists]) -> None:
    """More generations, merged generations, and a base in place of what was restored."""
    assert since(before, now) == []


@pytest.mark.parametrize(
    ("before", "now", "says"),
    [
        (of_rows(OLD_BASE, OLD), of_rows(OLD_BASE), "lost or changed what was restored: 1 entries instead of 2"),
        (of_rows(OLD_BASE), of_rows(), "lost or changed what was restored: 0 entries instead of 1"),
        (of_rows(OLD_BASE), of_rows(ONE), "lost or changed what was restored: 0 entries instead of 1"),
        (of_rows(OLD_BASE), of_rows(OLD_BASE, OLD), "lost or changed what was restored: 2 entries instead of 1"),
        (of_rows(), of_rows(OLD_BASE, ONE), "lost or changed what was restored: 1 entries instead of 0"),
        (of_rows(OLD_BASE), of_rows(ListEntry(OLD_BASE, 0, 9)), "lost or changed what was restored: 1 entries"),
        (of_rows(ONE, TWO), of_rows(ONE), "its list of rows ends with generation 1, but 2 was published"),
        (of_rows(ONE), of_rows(), "its list of rows ends with generation 0, but 1 was published"),
        (of_rows(BASE, THREE), of_rows(BASE), "its list of rows ends with generation 2, but 3 was published"),
        (of_rows(BASE), of_rows(ONE, TWO), "its list of rows has lost its base"),
        (of_own(OLD_FULL), of_own(), "its list of own state has lost or changed what was restored"),
        (of_own(FULL), of_own(), "its list of own state has lost its base"),
        (of_own(FULL, DELTA), of_own(FULL), "its list of own state ends with generation 0, but 2 was published"),
        (of_rows(replace(OLD_BASE, run="origin", incarnation=99)), of_rows(), "lost or changed what was restored"),
    ],
)
def test_what_may_not_follow(before: dict[Subtask, Lists], now: dict[Subtask, Lists], says: str) -> None:
    """A list that is right by itself, but has lost what the snapshot before had (PROTOCOL 2.3, bases)."""
    assert any(says in problem for problem in since(before, now)), since(before, now)


# ---------------------------------------------------------------- the whole certificate


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda p: {"rows": p.rows[:-3]}, None),
        (lambda p: {"rows": (*p.rows, whole(rows(P, (9, 9), ALL)))}, "generations 9 to 9 are listed where 4 was due"),
        (lambda p: {"groups": (0, 9)}, "P: its key groups end before 9"),
        (lambda p: {"own": p.own[1:]}, "is listed where generation 0 was due"),
        (lambda p: {"handles": (*p.handles, p.rows[2].handle)}, "P[0]: has a part outside its lists: inline rows"),
        (lambda p: {"handles": (*p.handles, p.own[2])}, "P[0]: has a part outside its lists: inline own part"),
    ],
)
def test_lists_are_in_the_certificate(change: Callable[..., dict[str, object]], says: str | None) -> None:
    """`problems` names the faults of lists too, so that every reader finds them."""
    p, q = keyed_records()
    records = (replace(p, **change(p)), q)  # type: ignore[arg-type]
    channels, subtasks = (sample.PQ, sample.QP), (sample.P, sample.Q)
    said = problems(channels, subtasks, records, sample.INCARNATION, run=sample.RUN)
    assert (said == []) if says is None else any(says in problem for problem in said), said


def test_another_number_of_key_groups_is_proved_too() -> None:
    """A snapshot of another Cutline is refused at the restore, not called damaged."""
    lists = {P: Lists((0, 64), (), ()), OTHER: Lists((64, 128), (), ())}
    assert list(list_problems(lists, MADE, 128)) == []
    assert found(lists)


@pytest.mark.parametrize("parallelism", [1, 2, 3, 7, 100, KEY_GROUPS, KEY_GROUPS + 1])
def test_every_parallelism_tiles(parallelism: int) -> None:
    """The ranges of `subtask_of_group`, also where a subtask has no key group."""
    lists = {Subtask("P", index): Lists(groups, (), ()) for index, groups in enumerate(ranges(parallelism))}
    assert found(lists) == []


def test_a_former_name_admits_restored_parts_only() -> None:
    """Parts of the former name are listed behind a rename, of no other node, and never as own parts (PROTOCOL 6.14)."""
    former = {"P": "Q"}
    assert list(list_problems(of_rows(ELSEWHERE), MADE, KEY_GROUPS, former)) == []
    assert list(list_problems(of_own(own(Subtask("Q"), (0, 7), 3)), MADE, KEY_GROUPS, former)) == []
    third = list(list_problems(of_rows(rows(Subtask("R"), (1, 1), ALL, 3)), MADE, KEY_GROUPS, former))
    assert any("has a part of another node" in problem for problem in third)
    made = list(list_problems(of_rows(rows(Subtask("Q"), (1, 1), ALL)), MADE, KEY_GROUPS, former))
    assert any("has a part that Q[0] made in this incarnation" in problem for problem in made)


def test_a_version_is_that_of_the_base() -> None:
    """Of the run, of the subtask, and made at the cut of the snapshot that has its state."""
    base = StepBase(7, MADE.incarnation, 3, (), ())
    version = LocalVersion("disk", MADE.run, P, 7, 9)
    assert found({P: Lists(ALL, (), (), (), base, version)}) == []
    for wrong, due in (
        (version._replace(run="other"), base), (version._replace(subtask=OTHER), base),
        (version._replace(snapshot_id=6), base), (version, None), (version, base._replace(snapshot_id=8)),
    ):  # fmt: skip
        (problem,) = found({P: Lists(ALL, (), (), (), due, wrong)})
        assert problem.startswith(f"{P}: lists the local version of run {wrong.run!r}, {wrong.subtask}, snapshot ")
