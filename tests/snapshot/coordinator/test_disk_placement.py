"""Places of subtasks: on workers that see the disks with their versions, at their own worker where that is possible."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline.snapshot.coordinator.control import RestoredSubtask
from cutline.snapshot.coordinator.disk_placement import hosts_of, placed_on
from cutline.snapshot.errors import RestoreRefused
from cutline.snapshot.ids import Subtask
from cutline.snapshot.stored.certificate import LocalVersion

#: subtasks of two nodes, at three places
PLACES = {Subtask(node, index): index for node in ("a", "b") for index in range(3)}


def _plan(disks: dict[Subtask, str]) -> list[RestoredSubtask]:
    versions = {each: LocalVersion(disk, "run", each, 7, 9) for each, disk in disks.items()}
    return [RestoredSubtask(each, None, (), (), (), version=versions.get(each)) for each in PLACES]


_needs = st.dictionaries(st.sampled_from(list(PLACES)), st.sampled_from("xyz"))
_seen = st.lists(st.sets(st.sampled_from("xyz")), min_size=3, max_size=3)


@given(_needs, _seen)
def test_a_host_is_found_if_there_is_one(needs: dict[Subtask, str], disks: list[set[str]]) -> None:
    """By comparison with all assignments of places to workers. Else the run is refused."""
    possible = [
        hosts for hosts in permutations(range(3))
        if all(disk in disks[hosts[PLACES[subtask]]] for subtask, disk in needs.items())
    ]  # fmt: skip
    plan = _plan(needs)
    if not possible:
        with pytest.raises(RestoreRefused):
            hosts_of(plan, PLACES, disks, is_copied=False)
        return
    hosts, hosted = hosts_of(plan, PLACES, disks, is_copied=False)
    assert hosts in possible and hosted == plan
    if (0, 1, 2) in possible and all(needs.get(each) for each in PLACES):
        assert hosts == (0, 1, 2)


@given(_needs, _seen)
def test_rows_that_were_copied_need_no_disk(needs: dict[Subtask, str], disks: list[set[str]]) -> None:
    """Each version that is left is on a disk that its host sees. All places have hosts."""
    hosts, hosted = hosts_of(_plan(needs), PLACES, disks, is_copied=True)
    assert sorted(hosts) == [0, 1, 2] and [each.subtask for each in hosted] == list(PLACES)
    at = placed_on(hosts, PLACES)
    assert all(each.version.disk in disks[at[each.subtask]] for each in hosted if each.version is not None)


def test_a_place_is_its_own_host() -> None:
    """Where nothing is on a disk."""
    assert hosts_of(_plan({}), PLACES, [set(), set(), set()], is_copied=False)[0] == (0, 1, 2)
    assert placed_on((), PLACES) == PLACES


def test_what_is_missing_is_named() -> None:
    """By snapshot, node, subtask and disk; and where each disk is seen, but not by one worker."""
    with pytest.raises(RestoreRefused) as refused:
        hosts_of(_plan({Subtask("a", 1): "y"}), PLACES, [{"x"}, {"x"}, {"z"}], is_copied=False)
    said = "step 7 of 'a', subtask 1 is on disk y, which no worker sees; bring it back, or use copy=True"
    assert str(refused.value) == f"{said} in the next run"
    needs = {Subtask("a", 0): "x", Subtask("b", 0): "y"}
    with pytest.raises(RestoreRefused, match=r"no worker is left that sees .* together: a\[0\] on disk x, b\[0\] on"):
        hosts_of(_plan(needs), PLACES, [{"x"}, {"y"}, {"z"}], is_copied=False)
