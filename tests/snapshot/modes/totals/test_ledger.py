"""Differences between their cut and their commit: whatever comes when, each is in one write that counts."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from cutline.snapshot.ids import Subtask
from cutline.snapshot.modes.totals.difference_gate import HeldDifferences
from cutline.snapshot.modes.totals.ledger import CommitTotals, TotalsLedger, TotalsTask, WriteTotals
from cutline.snapshot.modes.totals.store_calls import StoreCalls, opening
from cutline.snapshot.operators.aggregate_store import StoreClaim
from cutline.snapshot.operators.monoids import Count
from cutline.snapshot.subtask.strand import DifferenceCaptured
from cutline.snapshot.testing.simulation.kept_totals import KeptTotals, StoredCells
from tests.snapshot.testing.totalled import Multiset

ME = Subtask("sums")
CLAIM = StoreClaim("g", 1)


def _log() -> TotalsLedger:
    return TotalsLedger(ME, Count(), lambda held: None)


# ---------------------------------------------------------------- one log, step by step


def test_a_difference_is_written_and_then_committed() -> None:
    """The write at the cut, the commit at the announcement, each once."""
    log = _log()
    (write,) = log.captured(1, DifferenceCaptured({"a": 2}, 10))
    assert write == WriteTotals(ME, 1, {"a": 2})
    assert log.ready(1) is None
    log.done(write, None)
    assert log.ready(1) == {} and log.held == HeldDifferences(True, 10, 1)
    assert log.settled(1, 0) == [CommitTotals(ME, 1)]
    assert log.settled(1, 0) == [] and log.held == HeldDifferences(False, 0, 0)


def test_an_aborted_difference_joins_the_next() -> None:
    """And is written with it, for the id of the next (PROTOCOL 13.4, an aborted difference joins the next)."""
    log = _log()
    log.captured(1, DifferenceCaptured({"a": 2, "b": 1}, 10))
    assert log.settled(0, 2) == [] and log.held == HeldDifferences(False, 10, 2)
    assert log.captured(2, DifferenceCaptured({"a": 3}, 5)) == [WriteTotals(ME, 2, {"a": 5, "b": 1})]
    assert log.held == HeldDifferences(True, 15, 2)


def test_a_difference_waits_while_the_last_is_undecided() -> None:
    """Only the decision says whether the last one counts already, or joins (PROTOCOL 13.4)."""
    published, aborted = _log(), _log()
    for log in (published, aborted):
        log.captured(1, DifferenceCaptured({"a": 2}, 10))
        assert log.captured(2, DifferenceCaptured({"a": 3}, 5)) == [] and log.held == HeldDifferences(True, 15, 2)
    assert published.settled(1, 0) == [CommitTotals(ME, 1), WriteTotals(ME, 2, {"a": 3})]
    assert aborted.settled(0, 2) == [WriteTotals(ME, 2, {"a": 5})]


def test_a_task_that_still_runs_keeps_its_difference() -> None:
    """Its difference is joined as a copy."""
    log = _log()
    (task,) = log.captured(1, DifferenceCaptured({"a": 2}, 10))
    log.settled(0, 2)
    log.captured(2, DifferenceCaptured({"a": 3, "b": 1}, 5))
    assert isinstance(task, WriteTotals) and task.difference == {"a": 2}


def test_the_end_of_an_aborted_write_is_no_acknowledgement() -> None:
    """The snapshot that comes next waits for its own write."""
    log = _log()
    (write,) = log.captured(1, DifferenceCaptured({"a": 2}, 10))
    log.settled(0, 2)
    log.captured(2, DifferenceCaptured({}, 0))
    log.done(write, None)
    assert log.ready(1) is None and log.ready(2) is None


# ---------------------------------------------------------------- any order


class Played:
    """A coordinator, the log of a subtask and its store. Each step happens if it can."""

    def __init__(self) -> None:
        self.cells = StoredCells()
        store = KeptTotals(self.cells)
        for _ in opening(store, CLAIM, "sums", 0):
            pass
        self.log = TotalsLedger(ME, Multiset(), lambda held: None)
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
        self.put(self.log.captured(self.pending, DifferenceCaptured({"all": state, f"key {item % 3}": state}, 10)))

    def store(self) -> None:
        """Make the next call on the store, and check what counts then."""
        if not self.calls.has_work:
            return
        done = self.calls.step()
        if isinstance(done, WriteTotals):
            self.log.done(done, None)
            if self.log.ready(done.snapshot_id) is not None:
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
                self.put(self.log.settled(number, 0))
            else:
                self.min_at_worker = number
                self.put(self.log.settled(0, number))

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
