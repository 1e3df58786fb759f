"""What is stored together: all of a worker's, or what is large. Nothing twice; only the settled is forgotten."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from cutline.snapshot.channel.frame import Frame, PayloadKind
from cutline.snapshot.ids import Subtask
from cutline.snapshot.stored.contribution import Contribution
from cutline.snapshot.worker.upload_batcher import BATCH_BYTES_MAX, PendingUpload, UploadBatcher
from tests.snapshot import sample

LARGE = memoryview(bytes(BATCH_BYTES_MAX))


def of(index: int, snapshot_id: int, *, is_large: bool = False) -> Contribution:
    """What a subtask gave to a snapshot."""
    state = (LARGE,) if is_large else (b"x",)
    return replace(sample.taken()[0], subtask=Subtask("S", index), snapshot_id=snapshot_id, state=state)


def test_small_ones_wait_for_the_last() -> None:
    """Each snapshot by itself; each comes with the time at which it was given."""
    batcher = UploadBatcher(3)
    assert batcher.add(of(0, 1), 10.0) == ()
    assert batcher.add(of(0, 2), 11.0) == ()
    assert batcher.add(of(2, 1), 12.0) == ()
    expected = (PendingUpload(of(0, 1), 10.0), PendingUpload(of(2, 1), 12.0), PendingUpload(of(1, 1), 13.0))
    assert batcher.add(of(1, 1), 13.0) == expected


def test_large_ones_do_not_wait() -> None:
    """Messages count as well as states; what waited goes along, and who comes later waits for the last again."""
    batcher = UploadBatcher(4)
    taken = of(1, 1)
    frames = (Frame(1, 1, PayloadKind.BATCH, LARGE),)
    large = replace(taken, received={sample.QP: replace(taken.received[sample.QP], frames=frames)})
    assert batcher.add(of(0, 1), 0.0) == ()
    assert [given.taken.subtask.index for given in batcher.add(large, 0.0)] == [0, 1]
    assert batcher.add(of(2, 1), 0.0) == ()
    assert [given.taken.subtask.index for given in batcher.add(of(3, 1), 0.0)] == [2, 3]


def test_released_contributions_do_not_wait() -> None:
    """What was released early is stored once; a later contribution of the snapshot waits for the last one."""
    batcher = UploadBatcher(3)
    batcher.add(of(0, 1), 10.0)
    batcher.add(of(0, 2), 10.5)
    assert batcher.release(1) == (PendingUpload(of(0, 1), 10.0),)
    assert batcher.release(1) == batcher.release(3) == ()
    assert batcher.add(of(1, 1), 12.0) == ()
    assert [given.taken.subtask.index for given in batcher.add(of(2, 1), 12.0)] == [1, 2]
    assert batcher.release(1) == ()


def test_a_limit_of_zero_stores_each_alone() -> None:
    """Nothing waits, however many subtasks there are."""
    batcher = UploadBatcher(3, batch_bytes_max=0)
    assert [len(batcher.add(of(index, 1), 0.0)) for index in range(3)] == [1, 1, 1]


def test_settled_ones_are_forgotten() -> None:
    """Below min_snapshot_id, and only there."""
    batcher = UploadBatcher(2)
    for snapshot_id in (1, 2, 3):
        batcher.add(of(0, snapshot_id), 0.0)
    batcher.discard_below(3)
    assert batcher.add(of(1, 2), 0.0) == ()
    assert len(batcher.add(of(1, 3), 0.0)) == 2


@given(st.integers(1, 5), st.data())
def test_each_is_stored_once(subtask_count: int, data: st.DataObject) -> None:
    """In whatever order snapshots and subtasks come, and whichever are large."""
    coming = data.draw(st.permutations([(index, s) for index in range(subtask_count) for s in (1, 2, 3)]))
    batcher = UploadBatcher(subtask_count)
    released: list[tuple[int, int]] = []
    for index, snapshot_id in coming:
        late = [batcher.release(each) for each in (1, 2, 3) if data.draw(st.booleans())]
        added = batcher.add(of(index, snapshot_id, is_large=data.draw(st.booleans())), 0.0)
        for together in (*late, added):
            assert len({each.taken.snapshot_id for each in together}) <= 1
            released += [(each.taken.subtask.index, each.taken.snapshot_id) for each in together]
    assert sorted(released) == sorted(coming)
