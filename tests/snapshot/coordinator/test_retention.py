"""Which snapshots are removed."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from cutline.snapshot.coordinator.retention import SWEEP_INTERVAL_SECONDS, RemovalRequest, Retention


def test_the_newest_are_kept() -> None:
    """The rest is due once, and the next only after the answer."""
    retention = Retention(2)
    retention.take_over([1, 2, 3])
    assert retention.next_removal([]) == (1,)
    retention.add(4)
    assert retention.next_removal([]) == ()
    retention.removed((1,))
    assert retention.history == [2, 3, 4]
    assert retention.next_removal([]) == (2,)


def test_what_was_left_is_not_asked_for_again() -> None:
    """It is held, or the store failed; it is asked for again after a sweep."""
    retention = Retention(1)
    retention.take_over([1, 2, 3])
    assert retention.next_removal([]) == (1, 2)
    retention.removed((2,))
    assert (retention.history, retention.next_removal([])) == ([1, 3], ())


def test_what_was_left_is_asked_for_again_after_a_sweep() -> None:
    """A fork that held it may have its own snapshot by now. Nobody says so to this run."""
    retention = Retention(1)
    assert retention.is_sweep_due(0.0)
    retention.take_over([1, 2])
    assert retention.next_removal([]) == (1,)
    retention.removed(())
    assert not retention.is_sweep_due(SWEEP_INTERVAL_SECONDS - 1) and retention.next_removal([]) == ()
    assert retention.is_sweep_due(SWEEP_INTERVAL_SECONDS) and retention.next_removal([]) == (1,)


def test_a_claim_in_between_changes_nothing_of_what_is_under_way() -> None:
    """The answer comes after the listing, which may still show what is being removed."""
    retention = Retention(1)
    retention.take_over([1, 2])
    assert retention.next_removal([]) == (1,)
    retention.take_over([1, 2, 3])
    assert retention.next_removal([]) == ()
    retention.removed((1,))
    assert (retention.history, retention.next_removal([])) == ([2, 3], (2,))


def test_a_request_goes_with_the_next_removal() -> None:
    """Also of a snapshot among the newest. The answer says which requests are done, removed or not."""
    retention = Retention(3)
    retention.take_over([1, 2, 3, 4])
    first, second = RemovalRequest(7, 2), RemovalRequest(8, 3)
    assert retention.request(first) and retention.next_removal([]) == (1, 2)
    assert retention.request(second) and retention.next_removal([]) == ()
    assert retention.removed((1,)) == [first]
    assert (retention.history, retention.next_removal([])) == ([2, 3, 4], (3,))
    assert retention.removed((3,)) == [second]
    assert (retention.history, retention.next_removal([])) == ([2, 4], ())


def test_a_removal_waits_for_lower_snapshots() -> None:
    """A snapshot below the newest that may still appear may need what would be removed. One above needs nothing."""
    retention = Retention(1)
    retention.take_over([1, 3])
    assert retention.request(RemovalRequest(7, 1))
    assert retention.next_removal([2, 4]) == ()
    assert retention.next_removal([4]) == (1,)
    retention.take_over([])
    assert retention.removed((1,)) and retention.next_removal([2]) == ()


def test_neither_the_newest_nor_a_stranger_is_requested() -> None:
    """A rollback restores the newest."""
    retention = Retention(1)
    retention.take_over([1, 2])
    assert not retention.request(RemovalRequest(7, 2)) and not retention.request(RemovalRequest(8, 3))
    assert retention.next_removal([]) == (1,) and retention.removed((1,)) == []


def test_what_goes_meanwhile_answers_its_request() -> None:
    """Two requests of one snapshot are both answered, though one removal does for both."""
    retention = Retention(1)
    retention.take_over([1, 2])
    assert retention.next_removal([]) == (1,)
    requests = [RemovalRequest(7, 1), RemovalRequest(8, 1)]
    assert all(retention.request(each) for each in requests)
    assert retention.removed((1,)) == requests and retention.history == [2]


def test_a_claim_in_between_answers_what_cannot_be_removed_any_more() -> None:
    """Another coordinator has removed one snapshot, and the other one is the newest of the new history."""
    retention = Retention(3)
    retention.take_over([1, 2, 3, 4])
    assert retention.next_removal([]) == (1,)
    requests = [RemovalRequest(7, 2), RemovalRequest(8, 3)]
    assert all(retention.request(each) for each in requests)
    retention.take_over([1, 3])
    assert retention.removed((1,)) == requests and retention.history == [3] and not retention.next_removal([])


def test_a_changed_pin_is_asked_again() -> None:
    """A snapshot that was left because of its pin is removed after it is unpinned."""
    retention = Retention(1)
    retention.take_over([1, 2])
    assert retention.next_removal([]) == (1,)
    assert retention.removed(()) == [] and retention.next_removal([]) == ()
    retention.reconsider(1)
    assert retention.next_removal([]) == (1,)


@given(st.data())
def test_each_request_is_answered_once(data: st.DataObject) -> None:
    """Whatever is published, requested, pinned and left meanwhile. The newest snapshot is never removed."""
    retention = Retention(data.draw(st.integers(1, 3)))
    retention.take_over([1, 2])
    asked, answered, removing = dict[int, int](), list[int](), tuple[int, ...]()
    for number in range(data.draw(st.integers(0, 20))):
        match data.draw(st.sampled_from(("publish", "request", "answer", "unpin"))):
            case "publish":
                retention.add(retention.history[-1] + 1)
            case "request":
                request = RemovalRequest(number, data.draw(st.integers(0, retention.history[-1] + 1)))
                is_removable = request.snapshot_id in retention.history[:-1]
                assert retention.request(request) == is_removable
                if is_removable:
                    asked[number] = request.snapshot_id
            case "unpin":
                retention.reconsider(data.draw(st.integers(0, retention.history[-1])))
            case "answer" if removing:
                gone = [each for each in removing if data.draw(st.booleans())]
                answered += [each.request_id for each in retention.removed(gone)]
                assert not {*gone} & {*retention.history}
                removing = ()
        if not removing:
            removing = retention.next_removal([])
        assert retention.history[-1] not in removing and {*removing} <= {*retention.history}
    while removing:
        answered += [each.request_id for each in retention.removed(removing)]
        removing = retention.next_removal([])
    assert sorted(answered) == sorted(asked)
