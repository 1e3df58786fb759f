"""Which snapshots are removed."""

from __future__ import annotations

from snapshot.coordinator.retention import Retention


def test_the_newest_are_kept() -> None:
    """The rest is due once, and the next only after the answer."""
    retention = Retention(2)
    retention.take_over([1, 2, 3])
    assert retention.next_removal() == (1,)
    retention.add(4)
    assert retention.next_removal() == ()
    retention.removed((1,))
    assert retention.history == [2, 3, 4]
    assert retention.next_removal() == (2,)


def test_what_was_left_is_not_asked_for_again() -> None:
    """It is pinned, or the store failed; a later life asks again."""
    retention = Retention(1)
    retention.take_over([1, 2, 3])
    assert retention.next_removal() == (1, 2)
    retention.removed((2,))
    assert (retention.history, retention.next_removal()) == ([1, 3], ())


def test_a_claim_in_between_changes_nothing_of_what_is_under_way() -> None:
    """The answer comes after the listing, which may still show what is being removed."""
    retention = Retention(1)
    retention.take_over([1, 2])
    assert retention.next_removal() == (1,)
    retention.take_over([1, 2, 3])
    assert retention.next_removal() == ()
    retention.removed((1,))
    assert (retention.history, retention.next_removal()) == ([2, 3], (2,))
