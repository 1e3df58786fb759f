"""The histories of a run, over coordinator instances that die at any time and statuses that arrive in any order."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cutline.barrier_runtime.driver.run_histories import RunHistories, history_of
from cutline.snapshot.coordinator.bounded_history import HISTORY_MAX, BoundedHistory

#: {history: number of entries when a status was made}
_Counts = dict[str, int]


def _status(start: int, counts: _Counts) -> dict[str, Any]:
    """Return the status of the instance `start` after so many entries, as the coordinator makes it."""
    status: dict[str, Any] = {"coordinator_start": float(start), "phase": "running"}
    for key, count_key, entry in (("restarts", "restartCount", "timestamp"), ("aborted", "abortedCount", "id")):
        entries = [{entry: number, "reason": f"{key} of {start}"} for number in range(counts[key])]
        status[key], status[count_key] = entries[-HISTORY_MAX:], len(entries)
    return status


def _whole(history: BoundedHistory[Any]) -> tuple[int, list[tuple[Any, ...]]]:
    return history.count, [tuple(entry.values()) for entry in history.newest]


_COUNTS = st.fixed_dictionaries({"restarts": st.integers(0, 150), "aborted": st.integers(0, 150)})


@given(st.lists(st.lists(_COUNTS, min_size=1, max_size=4), min_size=1, max_size=4))
def test_nothing_that_a_status_held_is_lost(instances: list[list[_Counts]]) -> None:
    """Each instance grows, is asked, and dies; the next knows nothing. All that was asked for stays, and is counted."""
    histories = RunHistories()
    earlier: dict[str, list[tuple[Any, ...]]] = {"restarts": [], "aborted": []}
    for start, growth in enumerate(instances):
        counts = {"restarts": 0, "aborted": 0}
        for more in growth:
            counts = {key: count + more[key] for key, count in counts.items()}
            status = _status(start, counts)
            histories.complete(status)
            assert status["phase"] == "running"
            for key in earlier:
                expected = [*earlier[key], *((number, f"{key} of {start}") for number in range(counts[key]))]
                count, newest = _whole(history_of(status, key))
                assert count == len(expected)
                assert newest == expected[-len(newest) :] and len(newest) == min(count, HISTORY_MAX)
        for key in earlier:
            earlier[key] += [(number, f"{key} of {start}") for number in range(counts[key])]


@given(st.permutations([(1, 0), (1, 3), (1, 5), (2, 0), (2, 1), (2, 2), (3, 1)]))
def test_a_late_status_takes_nothing_back(arrivals: list[tuple[int, int]]) -> None:
    """Threads ask at one time: counts never fall, an older instance adds nothing after a newer one was heard of."""
    histories, newest, counts = RunHistories(), 0, dict[int, int]()
    for start, count in arrivals:
        if start >= newest:
            newest = start
            counts[start] = max(count, counts.get(start, 0))
        status = _status(start, {"restarts": count, "aborted": 0})
        histories.complete(status)
        assert status["restartCount"] == len(status["restarts"]) == sum(counts.values())
        assert (status["abortedCount"], status["aborted"]) == (0, [])


def test_entries_are_shared_between_statuses() -> None:
    """A hundred reports are kept: they hold the same entries, not a hundred copies of each."""
    histories = RunHistories()
    first, second, after = (_status(start, {"restarts": 3, "aborted": 2}) for start in (1, 1, 2))
    for status in (first, second, after):
        histories.complete(status)
    assert all(one is other for one, other in zip(first["restarts"], second["restarts"], strict=True))
    assert all(one is other for one, other in zip(first["aborted"], after["aborted"][:2], strict=True))
