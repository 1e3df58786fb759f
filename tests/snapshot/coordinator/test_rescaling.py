"""What a subtask takes over where its node has another parallelism (PROTOCOL 6.9, donors)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutline.snapshot.channel.partitioning import groups_of, heir_of
from cutline.snapshot.coordinator.control import RestoredSubtask
from cutline.snapshot.coordinator.rescaling import inherited, records_by_node, refuse_whole_state
from cutline.snapshot.errors import RestoreRefused
from cutline.snapshot.ids import Subtask
from cutline.snapshot.plan.topology import KEY_GROUPS
from cutline.snapshot.stored.certificate import OwnStateKind, SubtaskRecord
from cutline.snapshot.stored.list_rules import Lists, list_problems, list_problems_since
from cutline.snapshot.stored.part import Handle, PartKind
from tests.run_size import scaled
from tests.snapshot import sample
from tests.snapshot.listed import MADE, lists_of_node, own, ranges, rows, whole
from tests.snapshot.testing import mutants_of_rescaling as mutants

#: An incarnation that restores what `MADE` has made.
NOW = MADE._replace(incarnation=MADE.incarnation + 1)


def records_of(lists: dict[Subtask, Lists]) -> list[SubtaskRecord]:
    """Records with these lists."""
    record = sample.records()[0]
    state = record.state
    return [
        replace(
            record,
            subtask=subtask,
            handles=(replace(state, subtask=subtask),),
            sent=(), received=(), groups=each.groups, rows=each.rows, own=each.own,
        )
        for subtask, each in lists.items()
    ]  # fmt: skip


def taken_over(records: list[SubtaskRecord], now: int) -> list[RestoredSubtask]:
    """What all new subtasks take over."""
    return [inherited(Subtask("P", index), now, records, None, "seed") for index in range(now)]


def lists_of(restored: list[RestoredSubtask]) -> dict[Subtask, Lists]:
    """The lists of restored subtasks."""
    return {each.subtask: Lists(each.groups, each.rows, each.own) for each in restored}


@settings(max_examples=scaled(60), deadline=None)
@given(lists=lists_of_node(), now=st.integers(1, 5))
def test_lists_of_donors_are_joined_in_order_and_clipped(lists: dict[Subtask, Lists], now: int) -> None:
    """Groups tile; each group has the entries of its old subtask, in their order, and no others."""
    restored = taken_over(records_of(lists), now)
    assert [each.groups for each in restored] == ranges(now)
    for each in restored:
        lo, hi = each.groups or (0, 0)
        assert all(lo <= entry.lo < entry.hi <= hi for entry in each.rows)
    for group in [0, 1, KEY_GROUPS - 1, *(bound for bounds in ranges(now) for bound in bounds if bound < KEY_GROUPS)]:
        before = [entry.handle for old in lists.values() for entry in old.rows if entry.lo <= group < entry.hi]
        after = [entry.handle for each in restored for entry in each.rows if entry.lo <= group < entry.hi]
        assert after == before


@settings(max_examples=scaled(60), deadline=None)
@given(lists=lists_of_node(), now=st.integers(1, 5), data=st.data())
def test_the_first_snapshot_after_a_rescale_is_exact(
    lists: dict[Subtask, Lists], now: int, data: st.DataObject
) -> None:
    """Lists of what was restored, alone or with own generations behind, obey all rules (PROTOCOL 2.1 to 2.4)."""
    restored = lists_of(taken_over(records_of(lists), now))
    assert list(list_problems(restored, NOW, KEY_GROUPS)) == []
    made = {
        subtask: each._replace(rows=(*each.rows, whole(rows(subtask, (1, 1), each.groups or (0, 0), NOW.incarnation))))
        if data.draw(st.booleans())
        else each
        for subtask, each in restored.items()
    }
    assert list(list_problems(made, NOW, KEY_GROUPS)) == []
    assert list(list_problems_since(restored, made, NOW)) == []
    if any(each.rows for each in restored.values()):
        forgotten = {subtask: each._replace(rows=()) for subtask, each in restored.items()}
        assert list(list_problems_since(restored, forgotten, NOW))


def test_a_range_that_is_off_by_one_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The certificate refuses key groups that nobody has, or two have."""
    lists = {Subtask("P", i): Lists(groups, (), ()) for i, groups in enumerate(ranges(2))}
    mutants.range_off_by_one(monkeypatch)
    found = list(list_problems(lists_of(taken_over(records_of(lists), 3)), NOW, KEY_GROUPS))
    assert [each.startswith("P: its key groups end before") for each in found] == [True] * 3


def test_a_node_without_keyed_state_has_no_key_groups() -> None:
    """Its record says None, and so does what is restored."""
    lists = {Subtask("P", i): Lists(None, (), ()) for i in range(2)}
    assert [(each.groups, each.rows) for each in taken_over(records_of(lists), 3)] == [(None, ())] * 3


@pytest.mark.parametrize(("before", "now"), [(2, 4), (4, 3), (3, 1), (1, 5), (5, 4)])
def test_each_old_subtask_has_one_heir_and_gives_to_all_takers(before: int, now: int) -> None:
    """State parts of all donors, each with its list of own state behind it; what has no key goes to one."""
    lists = {
        Subtask("P", i): Lists(groups, (), (own(Subtask("P", i), (0, 1)), own(Subtask("P", i), (2, 2))))
        for i, groups in enumerate(ranges(before))
    }
    restored = taken_over(records_of(lists), now)
    heirs = [i for each in restored if each.inheritance for i in each.inheritance.heir_of]
    assert sorted(heirs) == list(range(before))
    for each in restored:
        assert each.inheritance is not None and each.state is None
        assert each.inheritance.heir_of == tuple(
            i for i in range(before) if heir_of(i, before, now) == each.subtask.index
        )
        mine = groups_of(each.subtask.index, now)
        donors = [i for i in range(before) if set(groups_of(i, before)) & set(mine)]
        assert [part.subtask.index for part in each.donor_parts] == [i for i in donors for _ in range(3)]
        assert [part.last for part in each.donor_parts if part.kind is PartKind.OWN] == [1, 2] * len(donors)


def test_readers_of_dealt_partitions_give_their_offsets() -> None:
    """They need not be donors of key groups."""
    lists = {Subtask("P", i): Lists(None, (), ()) for i in range(3)}
    records = [
        replace(record, status=replace(record.status, partitions=(name,)))
        for record, name in zip(records_of(lists), "abc", strict=True)
    ]
    restored = inherited(Subtask("P", 0), 3, records[:2], ("b",), "seed")
    assert _subtasks(restored.donor_parts) == [0, 1]
    assert _subtasks(inherited(Subtask("P", 0), 4, records, ("a", "c"), "seed").donor_parts) == [0, 2]


def _subtasks(handles: tuple[Handle, ...]) -> list[int]:
    return [handle.subtask.index for handle in handles]


def test_a_node_has_ended_only_if_all_its_subtasks_had() -> None:
    """As has a source that returns END."""
    records = records_of({Subtask("P", i): Lists(None, (), ()) for i in range(2)})
    for ends in ((False, False), (True, False), (True, True)):
        some = [
            replace(record, status=replace(record.status, ended=ended, passive=ended))
            for record, ended in zip(records, ends, strict=True)
        ]
        for each in taken_over(some, 3):
            assert each.inheritance is not None
            assert (each.inheritance.is_ended, each.inheritance.is_exhausted) == (all(ends), all(ends))
            assert each.inheritance.seed == "seed"


@pytest.mark.parametrize("kind", [*OwnStateKind, None])
def test_only_whole_state_is_refused(kind: OwnStateKind | None) -> None:
    """With the node, both parallelisms, how many subtasks, and the ways out."""
    records = records_of({Subtask("P", i): Lists(None, (), ()) for i in range(3)})
    some = [records[0], *(replace(each, status=replace(each.status, own_state=kind)) for each in records[1:])]
    if kind is not OwnStateKind.WHOLE:
        refuse_whole_state("run 'r', snapshot 7", "P", some, 2)
        return
    with pytest.raises(RestoreRefused) as refused:
        refuse_whole_state("run 'r', snapshot 7", "P", some, 2)
    text = str(refused.value)
    assert text.startswith(
        "run 'r', snapshot 7: node 'P' had parallelism 3, now 2, and 2 of its subtasks, P[1] first, keep a state of "
        "their own that nobody can divide. Keep it as keyed state (context.getValueState), by partitions "
    )
    assert text.endswith("; or submit it with parallelism 3")


def test_records_are_sorted_by_index() -> None:
    """A manifest may have them in any order."""
    records = records_of({Subtask("P", i): Lists(None, (), ()) for i in (2, 0, 1)})
    assert [record.subtask.index for record in records_by_node(records)["P"]] == [0, 1, 2]
