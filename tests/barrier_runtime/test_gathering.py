"""What is stored together: all of a worker's, or what is large. Nothing twice; only the settled is forgotten."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from barrier_runtime.gathering import GATHERED_BYTES_MAX, WAIT_SECONDS_MAX, Gathering, Given
from snapshot.channel.frame import Frame, PayloadKind
from snapshot.ids import Subtask
from snapshot.subtask.reports import SnapshotTaken
from tests.snapshot import sample

LARGE = memoryview(bytes(GATHERED_BYTES_MAX))


def of(index: int, snapshot_id: int, *, is_large: bool = False) -> SnapshotTaken:
    """What a subtask gave to a snapshot."""
    state = (LARGE,) if is_large else (b"x",)
    return replace(sample.taken()[0], subtask=Subtask("S", index), snapshot_id=snapshot_id, state=state)


def test_small_ones_wait_for_the_last() -> None:
    """Each snapshot by itself; each comes with the time at which it was given."""
    gathering = Gathering(3)
    assert gathering.add(of(0, 1), 10.0) == []
    assert gathering.add(of(0, 2), 11.0) == []
    assert gathering.add(of(2, 1), 12.0) == []
    expected = [Given(of(0, 1), 10.0), Given(of(2, 1), 12.0), Given(of(1, 1), 13.0)]
    assert gathering.add(of(1, 1), 13.0) == expected


def test_large_ones_do_not_wait() -> None:
    """Messages count as well as states; what waited goes along, and who comes later waits for the last again."""
    gathering = Gathering(4)
    taken = of(1, 1)
    frames = (Frame(1, 1, PayloadKind.BATCH, LARGE),)
    large = replace(taken, received={sample.QP: replace(taken.received[sample.QP], frames=frames)})
    assert gathering.add(of(0, 1), 0.0) == []
    assert [given.taken.subtask.index for given in gathering.add(large, 0.0)] == [0, 1]
    assert gathering.add(of(2, 1), 0.0) == []
    assert [given.taken.subtask.index for given in gathering.add(of(3, 1), 0.0)] == [2, 3]


def test_nothing_waits_long() -> None:
    """So that a deadline names who is late and not those who wait for him; he still goes with who comes after."""
    gathering = Gathering(3)
    gathering.add(of(0, 1), 10.0)
    gathering.add(of(0, 2), 10.5)
    assert gathering.overdue(10.0 + WAIT_SECONDS_MAX - 0.1) == []
    assert gathering.overdue(10.0 + WAIT_SECONDS_MAX) == [[Given(of(0, 1), 10.0)]]
    assert gathering.overdue(10.0 + WAIT_SECONDS_MAX) == []
    assert gathering.add(of(1, 1), 12.0) == []
    assert [given.taken.subtask.index for given in gathering.add(of(2, 1), 12.0)] == [1, 2]


def test_settled_ones_are_forgotten() -> None:
    """Below the floor, and only there."""
    gathering = Gathering(2)
    for snapshot_id in (1, 2, 3):
        gathering.add(of(0, snapshot_id), 0.0)
    gathering.settle(3)
    assert gathering.add(of(1, 2), 0.0) == []
    assert len(gathering.add(of(1, 3), 0.0)) == 2


@given(st.integers(1, 5), st.data())
def test_each_is_stored_once(subtask_count: int, data: st.DataObject) -> None:
    """In whatever order snapshots and subtasks come, and whichever are large."""
    coming = data.draw(st.permutations([(index, s) for index in range(subtask_count) for s in (1, 2, 3)]))
    gathering = Gathering(subtask_count)
    released: list[tuple[int, int]] = []
    for index, snapshot_id in coming:
        late = gathering.overdue(data.draw(st.sampled_from([0.0, WAIT_SECONDS_MAX])))
        added = gathering.add(of(index, snapshot_id, is_large=data.draw(st.booleans())), 0.0)
        for together in (*late, added):
            assert len({each.taken.snapshot_id for each in together}) <= 1
            released += [(each.taken.subtask.index, each.taken.snapshot_id) for each in together]
    assert sorted(released) == sorted(coming)
