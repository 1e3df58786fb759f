"""Differences between their cut and their commit: whatever comes when, each is in one write that counts."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cutline.snapshot.coordinator.control import SnapshotAcknowledged
from cutline.snapshot.ids import Subtask
from cutline.snapshot.operators.aggregate_store import StoreClaim
from cutline.snapshot.operators.monoids import Count
from cutline.snapshot.subtask.events import DifferencesHeld
from cutline.snapshot.subtask.reports import DifferenceCaptured, PublicationHandled
from cutline.snapshot.testing.simulation.kept_totals import KeptTotals, StoredCells
from cutline.snapshot.worker.difference_log import CommitTotals, DifferenceLog, DifferenceLogs, TotalsTask, WriteTotals
from cutline.snapshot.worker.store_calls import StoreCalls, opening
from tests.snapshot.sample import TIMINGS, records
from tests.snapshot.testing.totalled import Multiset

ME = Subtask("sums")
CLAIM = StoreClaim("g", 1)


def _log() -> DifferenceLog:
    return DifferenceLog(ME, Count())


# ---------------------------------------------------------------- one log, step by step


def test_a_difference_is_written_and_then_committed() -> None:
    """The write at the cut, the commit at the announcement, each once."""
    log = _log()
    assert log.captured(1, {"a": 2}, 10) == [WriteTotals(ME, 1, {"a": 2})]
    assert not log.is_written(1)
    log.written(1)
    assert log.is_written(1) and log.held == DifferencesHeld(True, 10)
    assert log.published(1) == [CommitTotals(ME, 1)]
    assert log.published(1) == [] and log.held == DifferencesHeld(False, 0)


def test_an_aborted_difference_joins_the_next() -> None:
    """And is written with it, for the id of the next (PROTOCOL 13.4)."""
    log = _log()
    log.captured(1, {"a": 2, "b": 1}, 10)
    assert log.settled_below(2) == [] and (log.held, log.held_keys) == (DifferencesHeld(False, 10), 2)
    assert log.captured(2, {"a": 3}, 5) == [WriteTotals(ME, 2, {"a": 5, "b": 1})]
    assert log.held == DifferencesHeld(True, 15)


def test_a_difference_waits_while_the_last_is_undecided() -> None:
    """Only the decision says whether the last one counts already, or joins (PROTOCOL 13.4)."""
    published, aborted = _log(), _log()
    for log in (published, aborted):
        log.captured(1, {"a": 2}, 10)
        assert log.captured(2, {"a": 3}, 5) == [] and (log.held, log.held_keys) == (DifferencesHeld(True, 15), 2)
    assert published.published(1) == [CommitTotals(ME, 1), WriteTotals(ME, 2, {"a": 3})]
    assert aborted.settled_below(2) == [WriteTotals(ME, 2, {"a": 5})]


def test_a_task_that_still_runs_keeps_its_difference() -> None:
    """Its difference is joined as a copy."""
    log = _log()
    (task,) = log.captured(1, {"a": 2}, 10)
    log.settled_below(2)
    log.captured(2, {"a": 3, "b": 1}, 5)
    assert isinstance(task, WriteTotals) and task.difference == {"a": 2}


def test_the_end_of_an_aborted_write_is_no_acknowledgement() -> None:
    """The snapshot that comes next waits for its own write."""
    log = _log()
    log.captured(1, {"a": 2}, 10)
    log.settled_below(2)
    log.captured(2, {}, 0)
    log.written(1)
    assert not log.is_written(1) and not log.is_written(2)


# ---------------------------------------------------------------- any order


class Played:
    """A coordinator, the log of a subtask and its store. Each step happens if it can."""

    def __init__(self) -> None:
        self.cells = StoredCells()
        store = KeptTotals(self.cells)
        for _ in opening(store, CLAIM, "sums", 0):
            pass
        self.log = DifferenceLog(ME, Multiset())
        self.calls = StoreCalls(store, CLAIM, Multiset(), keys_at_once=1)
        self.newest = 0
        self.pending: int | None = None
        self.min_at_worker = 0
        self.is_cut = False
        self.acknowledged: dict[int, None] = {}
        self.messages: deque[tuple[str, int]] = deque()
        #: {item: id of the snapshot of its cut}
        self.cuts: dict[int, int] = {}

    def trigger(self) -> None:
        """Begin a snapshot, one at a time."""
        if self.pending is None:
            self.newest += 1
            self.pending, self.is_cut = self.newest, False

    def cut(self) -> None:
        """Capture. A marker may come ahead of older decisions, and not behind its own."""
        if self.pending is None or self.is_cut or self.pending < self.min_at_worker:
            return
        self.is_cut = True
        item = len(self.cuts)
        self.cuts[item] = self.pending
        state = ((("item", item), 1),)
        self.put(self.log.captured(self.pending, {"all": state, f"key {item % 3}": state}, 10))

    def store(self) -> None:
        """Make the next call on the store, and check what counts then."""
        if not self.calls.has_work:
            return
        done = self.calls.step()
        if isinstance(done, WriteTotals):
            self.log.written(done.snapshot_id)
            if self.log.is_written(done.snapshot_id):
                self.acknowledged[done.snapshot_id] = None
        self.check()

    def publish(self) -> None:
        """Publish what is acknowledged."""
        if self.pending in self.acknowledged:
            assert self.pending is not None
            self.messages += [("published", self.pending), ("settled", self.pending + 1)]
            self.pending = None

    def abort(self) -> None:
        """Give up what is pending."""
        if self.pending is not None:
            self.messages.append(("settled", self.pending + 1))
            self.pending = None

    def receive(self) -> None:
        """Let the worker receive the next message."""
        if self.messages:
            what, number = self.messages.popleft()
            if what == "published":
                self.put(self.log.published(number))
            else:
                self.min_at_worker = number
                self.put(self.log.settled_below(number))

    def put(self, tasks: list[TotalsTask]) -> None:
        """Give tasks to the store's thread."""
        for task in tasks:
            self.calls.put(task)

    def check(self) -> None:
        """Check that exactly the items of cuts up to the committed snapshot count, in both of their keys."""
        due = [item for item, snapshot_id in self.cuts.items() if snapshot_id <= self.cells.committed]
        totals = KeptTotals(self.cells).totals()
        assert totals.get("all", ()) == tuple((("item", item), 1) for item in due)
        by_key = sorted(each for key, state in totals.items() if key != "all" for each in state)
        assert by_key == [(("item", item), 1) for item in due]

    def finish(self) -> None:
        """Publish a last snapshot."""
        for step in (self.abort, self._drain, self.trigger, self.cut, self._drain, self.publish, self._drain):
            step()
        assert self.cells.committed == self.newest

    def _drain(self) -> None:
        for _ in range(200):  # more than all steps could have left
            self.receive()
            self.store()
        assert not self.messages and not self.calls.has_work


_STEPS = ("trigger", "cut", "store", "store", "publish", "abort", "receive")


@given(st.lists(st.sampled_from(_STEPS), max_size=60))
def test_each_difference_is_in_one_write_that_counts(steps: list[str]) -> None:
    """In whatever order cuts, calls and decisions come, and whichever snapshots are aborted."""
    played = Played()
    for step in steps:
        getattr(played, step)()
    played.finish()
    played.check()


# ---------------------------------------------------------------- all logs of a worker


def _acknowledged(snapshot_id: int) -> SnapshotAcknowledged:
    return SnapshotAcknowledged(1, snapshot_id, replace(records()[0], subtask=ME), TIMINGS)


def _logs() -> DifferenceLogs:
    return DifferenceLogs({ME: _log()})


def _captured(logs: DifferenceLogs, snapshot_id: int, states: dict[Any, Any]) -> list[TotalsTask]:
    return logs.captured(DifferenceCaptured(snapshot_id, ME, states, 10))


def test_an_acknowledgement_waits_for_the_store() -> None:
    """Whichever comes first (PROTOCOL 13.2)."""
    early, late, message = _logs(), _logs(), _acknowledged(1)
    (task,) = _captured(early, 1, {"a": 1})
    assert early.done(task) is None and early.may_pass(message)
    (task,) = _captured(late, 1, {"a": 1})
    assert not late.may_pass(message) and late.done(task) == message


def test_the_acknowledgement_of_an_aborted_snapshot_is_dropped() -> None:
    """Its write may end long after."""
    logs = _logs()
    (task,) = _captured(logs, 1, {"a": 1})
    assert not logs.may_pass(_acknowledged(1))
    logs.settled_below(2)
    assert logs.done(task) is None and logs.unsettled == ()


def test_an_acknowledgement_is_kept_until_its_snapshot_is_settled() -> None:
    """It may have been lost with a connection, and the snapshot has no timeout (PROTOCOL 13.5)."""
    logs, message = _logs(), _acknowledged(1)
    (task,) = _captured(logs, 1, {"a": 1})
    logs.may_pass(message)
    kept = [logs.unsettled]
    for step in (lambda: logs.done(task), lambda: logs.published(1), lambda: logs.settled_below(2)):
        step()
        kept.append(logs.unsettled)
    assert kept == [(), (message,), (message,), ()]


def test_a_commit_is_reported_when_the_store_has_it() -> None:
    """And later announcements of it at once (PROTOCOL 13.6)."""
    logs, report = _logs(), PublicationHandled(1, ME)
    logs.done(*_captured(logs, 1, {"a": 1}))
    (commit,) = logs.published(1)
    assert not logs.is_committed(report)
    assert logs.done(commit) == report
    assert logs.published(1) == [] and logs.is_committed(report)
