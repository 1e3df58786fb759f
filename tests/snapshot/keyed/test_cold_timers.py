"""Far timers are rows of the store: they fire once, in time, wherever the horizon is, and leave no row for nothing."""

from __future__ import annotations

from typing import Any

from cutline.snapshot.keyed.segment import Segment
from tests.snapshot.keyed.cold_tiers import LateTier
from tests.snapshot.keyed.keyed_subtask import KeyedSubtask


class _Cold:
    """A subtask over a cold tier, with ten near timers, of which a restore leaves none in memory."""

    def __init__(self, *segments: Segment | None) -> None:
        self.tier = LateTier(near_timers=10, loaded_timers=4)
        self.subtask = KeyedSubtask(lambda: self.tier, [each for each in segments if each is not None])
        self.subtask.states.opened()
        self.timers = self.subtask.timers

    def register(self, *times: int, key: Any = "k") -> None:
        for at in times:
            self.timers.register(float(at), key)

    def apply(self) -> None:
        """Write all changed rows to the store."""
        self.tier.seal()
        self.tier.writer.finish()
        self.tier.turn()
        assert not self.tier.memtables

    def fired(self, now: float) -> list[tuple[float, Any]]:
        found = []
        while (due := self.timers.pop_due(now)) is not None:
            found.append(due)
        return found


def _captured(*times: int) -> Segment | None:
    cold = _Cold()
    cold.register(*times)
    return cold.subtask.capture_segment()


def test_memory_holds_near_timers_only() -> None:
    """Timers beyond the limit leave memory, also those of one time, and all fire in time, each once."""
    cold = _Cold()
    for key in range(300):
        cold.register(key % 3 + 1, key=key)
        assert len(cold.timers._registered) <= 10
    cold.apply()
    assert cold.timers.next_at() == 1.0
    assert sorted(cold.fired(2.0)) == sorted((float(key % 3 + 1), key) for key in range(300) if key % 3 < 2)
    assert len(cold.timers._registered) <= 10
    assert len(cold.fired(3.0)) == 100
    assert cold.timers.next_at() is None


def test_far_timers_that_wait_fire() -> None:
    """Timers that left memory before the store had them, sealed or not, fire in time."""
    cold = _Cold()
    cold.register(*range(50, 100))
    cold.tier.seal()
    cold.register(*range(50))
    assert len(cold.timers._registered) <= 10
    assert [at for at, _ in cold.fired(100.0)] == list(range(100))


def test_restored_timers_are_read_a_few_at_a_time() -> None:
    """A search begins at the horizon, because fired timers leave tombstones before it."""
    cold, starts = _Cold(_captured(*range(1, 101))), []
    scan = cold.tier.rows.scan
    cold.tier.rows.scan = lambda start, end: starts.append(start) or scan(start, end)  # type: ignore[method-assign,func-returns-value]
    assert cold.fired(9.5) == [(float(at), "k") for at in range(1, 10)]
    assert len(cold.timers._registered) <= 4
    assert len(starts) == 3
    assert starts == sorted(set(starts))
    assert [at for at, _ in cold.fired(100.0)] == list(range(10, 101))


def test_a_fired_timer_fires_no_more() -> None:
    """Not while its tombstone waits for the writer, nor when the horizon moves back before the timer and forward."""
    cold = _Cold(_captured(1, 2, 3))
    assert len(cold.fired(2.0)) == 2
    cold.register(*range(4, 30))
    cold.tier.seal()
    assert cold.fired(4.0) == [(3.0, "k"), (4.0, "k")]
    again = _Cold(_captured(1, 2, 3, 4), cold.subtask.capture_segment())
    assert [at for at, _ in again.fired(100.0)] == list(range(5, 30))


def test_a_deleted_timer_does_not_fire() -> None:
    """Not if the store has the timer and its tombstone waits, nor if the timer waits itself."""
    cold = _Cold(_captured(1, *range(10, 20), 50, 60))
    assert cold.timers.next_at() == 1.0
    cold.register(70, 80)
    cold.tier.seal()
    for at in (50.0, 70.0, 90.0):
        cold.timers.delete(at, "k")
    cold.register(90)
    cold.timers.delete(90.0, "k")
    cold.tier.seal()
    assert [at for at, _ in cold.fired(100.0)] == [1.0, *range(10, 20), 60.0, 80.0]


def test_only_stored_timers_leave_tombstones() -> None:
    """A far timer that is registered and deleted between two captures leaves no row; a stored one leaves one."""
    cold = _Cold(_captured(*range(1, 20)))
    assert cold.timers.next_at() == 1.0
    cold.register(50, 60)
    cold.timers.delete(50.0, "k")
    cold.timers.delete(70.0, "k")
    cold.timers.delete(19.0, "k")
    cold.register(18)
    assert cold.subtask.rows() == {"#timers": {"k": {60.0: True, 19.0: None}}}


def test_a_timer_without_a_key_is_not_late() -> None:
    """It stays in memory, and far timers before it fire before it."""
    from cutline.snapshot.subtask.timers import NO_KEY

    cold = _Cold(_captured(5, 6, 7))
    cold.timers.register(6.5, NO_KEY)
    assert cold.fired(7.0) == [(5.0, "k"), (6.0, "k"), (6.5, NO_KEY), (7.0, "k")]


def test_applied_timers_leave_the_heaps() -> None:
    """What has been applied is in the store only: memory does not grow with far timers."""
    cold = _Cold()
    for start in range(0, 1_000, 50):
        cold.register(*range(start, start + 50))
        cold.apply()
        cold.timers.register(0.5, start)
        assert cold.timers.next_at() in (0.0, 0.5)
    cold.timers._make_far(cold.timers._cold)  # type: ignore[arg-type]
    assert cold.timers._cold is not None
    assert len(cold.timers._cold._sealed) <= 1
    assert len(list(cold.timers.each())) == 1_020


def test_applied_timers_leave_the_heaps_though_none_is_due() -> None:
    """A run that only registers timers holds no more of them than one that fires some."""
    cold = _Cold()
    cold.register(*range(100))
    assert cold.timers.next_at() == 0.0
    for start in range(1_000, 2_000, 50):
        cold.register(*range(start, start + 50))
        cold.apply()
    assert cold.timers._cold is not None
    assert len(cold.timers._cold._sealed) <= 1
