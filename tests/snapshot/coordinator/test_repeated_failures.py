"""Which messages are isolated after which failures."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from math import ceil, log2

from hypothesis import given
from hypothesis import strategies as st

from snapshot import Graph, NodeError
from snapshot.coordinator.repeated_failures import Isolated, Poisoned, RepeatedFailures
from snapshot.culprit import FailedMessages, FailedTimer, IsolatedMessages
from snapshot.ids import ChannelId, Subtask
from snapshot.plan.compiled_graph import build
from snapshot.plan.topology import Topology
from snapshot.stored.certificate import ReceivedEntry, SubtaskRecord, SubtaskStatus
from tests.snapshot.graphs import Passive

A, B = Subtask("a"), Subtask("b")
CHANNEL = ChannelId(A, B)


def topology(on_error: str | None = "dead") -> Topology:
    graph = Graph("g").add("a", Passive()).add("b", Passive()).add("dead", Passive())
    return build(graph.connect("a", "b", onError=on_error), "unaligned").topology


def published(processed: int) -> list[SubtaskRecord]:
    """Records of a snapshot in which `b` has processed so many messages."""
    status = SubtaskStatus(ended=False, passive=True, has_timers=False, outer_inputs_ended=False, uncommitted=())
    return [SubtaskRecord(B, 1, (), (), (ReceivedEntry(CHANNEL, processed, processed, 0, 0),), status)]


@dataclass
class Consumer:
    """Passes numbered rows to a hook that fails on some, in batches that end where the isolation says."""

    bad: frozenset[int]
    rows: int
    aside: list[int]

    def run(self, isolated: tuple[IsolatedMessages, ...]) -> FailedMessages | None:
        """Begin at the first row, and return what failed."""
        number, self.aside = 1, []
        while number <= self.rows:
            last, error = self.rows, None
            for each in isolated:
                if number < each.first:
                    last = each.first - 1
                    break
                if number <= each.last:
                    last, error = each.last, each.error
                    break
            if error is not None:
                self.aside.append(number)
            elif any(number <= row <= last for row in self.bad):
                return FailedMessages(CHANNEL, number, last)
            number = last + 1
        return None


@given(rows=st.integers(1, 300), data=st.data(), poison_after=st.integers(1, 4))
def test_exactly_the_rows_that_fail_are_set_aside(rows: int, data: st.DataObject, poison_after: int) -> None:
    """Of one batch, and with restarts that grow with the logarithm of its rows."""
    bad = data.draw(st.frozensets(st.integers(1, rows), max_size=5))
    failures, consumer = RepeatedFailures(topology(), poison_after), Consumer(bad, rows, [])
    restarts = 0
    while (failed := consumer.run(failures.isolated(B))) is not None:
        verdict = failures.count(failed, f"failure {restarts}")
        restarts += 1
        assert verdict is None if restarts < poison_after else isinstance(verdict, Isolated)
    assert consumer.aside == sorted(bad)
    assert restarts <= poison_after - 1 + len(bad) * (1 + ceil(log2(rows)))
    failures.note_published(published(rows))
    assert failures.isolated(B) == ()


def test_only_failures_in_a_row_count() -> None:
    """A published snapshot ends the row of the messages before it, and of no other."""
    failures = RepeatedFailures(topology(), 3)
    for _ in range(2):
        assert failures.count(FailedMessages(CHANNEL, 5, 5), "five") is None
        assert failures.count(FailedMessages(CHANNEL, 9, 9), "nine") is None
        failures.note_published(published(4))
    failures.note_published(published(5))
    assert failures.count(FailedMessages(CHANNEL, 5, 5), "five") is None
    assert isinstance(failures.count(FailedMessages(CHANNEL, 9, 9), "nine"), Isolated)
    assert failures.isolated(B) == (IsolatedMessages(CHANNEL, 9, 9, "nine"),)
    failures.note_published(published(8))
    assert failures.isolated(B) == (IsolatedMessages(CHANNEL, 9, 9, "nine"),)
    failures.note_published(published(9))
    assert failures.isolated(B) == ()


def test_a_snapshot_without_the_channel_forgets_nothing() -> None:
    """Its records say nothing about the messages that failed."""
    failures = RepeatedFailures(topology(), 2)
    assert failures.count(FailedMessages(CHANNEL, 1, 1), "one") is None
    failures.note_published(())
    assert isinstance(failures.count(FailedMessages(CHANNEL, 1, 1), "one"), Isolated)
    failures.note_published(())
    assert failures.isolated(B) == (IsolatedMessages(CHANNEL, 1, 1, "one"),)


def test_the_end_names_what_failed() -> None:
    """Without a dead-letter edge, where setting aside fails, and for a timer."""
    without = RepeatedFailures(topology(None), 1).count(FailedMessages(CHANNEL, 5, 5), "why")
    assert isinstance(without, Poisoned)
    assert "why\n(message 5 of a[0]->b[0] failed 1 times in a row" in without.text and "onError" in without.text
    failures = RepeatedFailures(topology(), 1)
    assert isinstance(failures.count(FailedMessages(CHANNEL, 5, 5), "why"), Isolated)
    again = failures.count(FailedMessages(CHANNEL, 5, 5), "too large")
    assert again == Poisoned("too large\n(message 5 of a[0]->b[0] cannot be set aside to 'dead')")
    timer = FailedTimer(B, "'k'", 7.5)
    timers = RepeatedFailures(topology(), 2)
    assert timers.count(timer, "why") is None and timers.count(FailedTimer(B, "'k'", 8.5), "why") is None
    assert timers.count(timer, "why") == Poisoned(
        "why\n(the timer of b[0] with key 'k' at 7.500000 failed 2 times in a row)"
    )


def test_other_failures_are_not_counted() -> None:
    """Neither those without a culprit, nor any without a limit."""
    failures = RepeatedFailures(topology(), None)
    assert {failures.count(FailedMessages(CHANNEL, 5, 5), "why") for _ in range(9)} == {None}
    assert {RepeatedFailures(topology(), 1).count(None, "why") for _ in range(9)} == {None}


def test_an_error_carries_its_culprit_across_processes() -> None:
    """Pickled as any error."""
    error = pickle.loads(pickle.dumps(NodeError("text", FailedTimer(B, "k", 1.0))))
    assert str(error) == "text" and error.culprit == FailedTimer(B, "k", 1.0)


def test_a_channel_that_no_record_names_keeps_its_suspects() -> None:
    """A published snapshot says nothing of such a channel, so the count of a failure there goes on."""
    failures = RepeatedFailures(topology(), 2)
    assert failures.count(FailedMessages(CHANNEL, 3, 3), "once") is None
    failures.note_published([])
    assert isinstance(failures.count(FailedMessages(CHANNEL, 3, 3), "twice"), Isolated)
