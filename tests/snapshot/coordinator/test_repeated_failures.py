"""Which messages are isolated after which failures."""

from __future__ import annotations

import pickle
from collections import Counter
from dataclasses import dataclass
from math import ceil, log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline import Graph, NodeError
from cutline.snapshot.coordinator.repeated_failures import Counted, Isolated, Poisoned, RepeatedFailures
from cutline.snapshot.failed_event import (
    DeadLetter,
    FailedBatch,
    FailedMessage,
    FailedTimer,
    IsolatedMessages,
    Suspects,
)
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.plan.compiled_graph import build
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.stored.certificate import ReceivedEntry, SubtaskRecord, SubtaskStatus
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


def one(number: int, content: bytes = b"") -> FailedMessage:
    """A message that failed alone. By default each number has a content of its own."""
    return FailedMessage(CHANNEL, number, content or b"of %d" % number)


@dataclass
class Consumer:
    """Passes numbered rows to a hook that fails on some, in batches that end where the isolation says."""

    bad: frozenset[int]
    rows: int
    aside: list[int]

    def run(self, suspects: Suspects) -> FailedBatch | FailedMessage | None:
        """Begin at the first row, and return what failed."""
        number, self.aside = 1, []
        letters = {letter.number for letter in suspects.letters}
        ends = [*(each.last for each in suspects.isolated), *(each.first - 1 for each in suspects.isolated)]
        ends += [end for row in letters for end in (row - 1, row)]
        while number <= self.rows:
            last = min([self.rows, *(end for end in ends if end >= number)])
            if number in letters:
                self.aside.append(number)
            elif any(number <= row <= last for row in self.bad):
                return one(number) if number == last else FailedBatch(CHANNEL, number, last)
            number = last + 1
        return None


@given(rows=st.integers(1, 300), data=st.data(), poison_after=st.integers(1, 4))
def test_exactly_the_rows_that_fail_are_set_aside(rows: int, data: st.DataObject, poison_after: int) -> None:
    """Of one batch, with restarts that grow with the logarithm of its rows, and each after its own failures alone."""
    bad = data.draw(st.frozensets(st.integers(1, rows), max_size=5))
    failures, consumer = RepeatedFailures(topology(), poison_after), Consumer(bad, rows, [])
    restarts = 0
    alone: Counter[int] = Counter()
    while (failed := consumer.run(failures.suspects(B))) is not None:
        verdict = failures.count(failed, f"failure {restarts}")
        restarts += 1
        assert isinstance(verdict, Counted) if restarts < poison_after else not isinstance(verdict, Poisoned)
        if isinstance(failed, FailedMessage):
            alone[failed.number] += 1
            assert isinstance(verdict, Isolated) == (alone[failed.number] == poison_after)
    assert consumer.aside == sorted(bad)
    assert alone == dict.fromkeys(bad, poison_after)
    assert restarts <= poison_after - 1 + len(bad) * (poison_after + ceil(log2(rows)))
    failures.note_published(1, published(rows))
    assert failures.suspects(B) == Suspects()


def letter(number: int, error: str, content: bytes = b"") -> DeadLetter:
    return DeadLetter(CHANNEL, number, content or b"of %d" % number, error)


def test_only_failures_in_a_row_count() -> None:
    """A published snapshot ends the row of the messages before it, and of no other."""
    failures = RepeatedFailures(topology(), 3)
    for _ in range(2):
        assert isinstance(failures.count(one(5), "five"), Counted)
        assert isinstance(failures.count(one(9), "nine"), Counted)
        failures.note_published(1, published(4))
    failures.note_published(1, published(5))
    assert isinstance(failures.count(one(5), "five"), Counted)
    assert isinstance(failures.count(one(9), "nine"), Isolated)
    assert failures.suspects(B).letters == (letter(9, "nine"),)
    failures.note_published(1, published(8))
    assert failures.suspects(B).letters == (letter(9, "nine"),)
    failures.note_published(1, published(9))
    assert failures.suspects(B) == Suspects()


def test_equal_messages_that_were_handled_do_not_add_up() -> None:
    """The failure of another number is another message's then. One that fails again was not handled for good."""
    failures = RepeatedFailures(topology(), 3)
    for number in range(1, 9):
        for _ in range(2):
            assert isinstance(failures.count(one(number, b"equal"), "why"), Counted)
        assert one(number, b"equal") in failures.suspects(B).messages
        failures.note_handled(one(number, b"equal"), 1)
    assert isinstance(failures.count(one(5, b"equal"), "why"), Isolated)
    failures.note_handled(one(99, b"unknown"), 1)


def test_a_timer_that_was_handled_counts_until_a_snapshot_lies_behind_it() -> None:
    """Because an equal one may have fired before it, which every restart repeats."""
    failures, timer = RepeatedFailures(topology(), 2), FailedTimer(B, "'k'", b"k", 0.0)
    for first in (1, 3, 5):
        assert failures.count(timer, "why") is None
        assert failures.suspects(B) == Suspects(timers=(timer,))
        failures.note_handled(timer, first + 1)
        failures.note_published(first, published(0))
        failures.note_published(first + 1, ())  # such as another subtask's record
        assert failures.suspects(B) == Suspects(timers=(timer,))
        failures.note_published(first + 1, published(0))
        assert failures.suspects(B) == Suspects()
    assert failures.count(timer, "why") is None
    failures.note_handled(timer, 7)
    assert isinstance(failures.count(timer, "why"), Poisoned)


def test_a_timer_that_fails_behind_its_handling_was_not_handled() -> None:
    """A snapshot that lies between both says nothing of the second."""
    failures, timer = RepeatedFailures(topology(), 3), FailedTimer(B, "'k'", b"k", 0.0)
    assert failures.count(timer, "why") is None
    failures.note_handled(timer, 2)
    assert failures.count(timer, "why") is None
    failures.note_published(2, published(0))
    assert isinstance(failures.count(timer, "why"), Poisoned)


def test_a_message_is_known_behind_several_inputs() -> None:
    """After each restart it may have another number, and its number may be another message's."""
    failures = RepeatedFailures(topology(), 3)
    assert isinstance(failures.count(one(5, b"bad"), "first"), Counted)
    assert isinstance(failures.count(one(5, b"other"), "once"), Counted)
    assert isinstance(failures.count(one(9, b"bad"), "second"), Counted)
    assert isinstance(failures.count(one(7, b"bad"), "third"), Isolated)
    assert failures.suspects(B).letters == (letter(7, "third", b"bad"),)
    assert failures.suspects(B).messages == (one(5, b"other"),)


def test_a_message_that_differs_after_each_restart_is_known_by_its_number() -> None:
    """Such as one that holds the time of its sending."""
    for poison_after, restarts in ((1, 5), (2, 5), (5, 5), (7, 7)):
        failures = RepeatedFailures(topology(), poison_after)
        verdicts = [failures.count(one(5, b"at %d" % now), f"at {now}") for now in range(1, restarts + 1)]
        assert not any(isinstance(verdict, Poisoned) for verdict in verdicts)
        assert failures.suspects(B).letters == (DeadLetter(CHANNEL, 5, None, f"at {restarts}"),)
        again = failures.count(one(5, b"at 9"), "at 9")
        while isinstance(again, Counted):
            again = failures.count(one(5, b"at 9"), "at 9")
        assert again == Poisoned("at 9\n(message 5 of a[0]->b[0] cannot be set aside to 'dead')")


@pytest.mark.parametrize("poison_after", [1, 3])
def test_one_whose_number_differs_too_is_not_known_by_it(poison_after: int) -> None:
    """Because another message may have the number after the next restart."""
    failures = RepeatedFailures(topology(), poison_after)
    for now, number in enumerate((5, 7, 5, 5, 5, 5, 5)):
        assert not isinstance(failures.count(one(number, b"at %d" % now), "why"), Poisoned)
    assert None not in [each.content for each in failures.suspects(B).letters]
    failures.note_published(1, published(5))  # what is set aside by its number has not moved
    for number in (8, 9):
        for now in range(5):
            failures.note_published(1, published(7))
            assert not isinstance(failures.count(one(number, b"%d at %d" % (number, now)), "why"), Poisoned)
    assert [each.number for each in failures.suspects(B).letters if each.content is None] == [8, 9]


def test_two_messages_of_one_number_have_each_their_error() -> None:
    """Behind several inputs, one has it after one restart, and the other after the next."""
    failures = RepeatedFailures(topology(), 1)
    assert isinstance(failures.count(one(5, b"bad"), "of bad"), Isolated)
    assert isinstance(failures.count(one(5, b"worse"), "of worse"), Isolated)
    assert failures.suspects(B).letters == (letter(5, "of bad", b"bad"), letter(5, "of worse", b"worse"))


def test_equal_messages_are_set_aside_each_at_its_number() -> None:
    """The second is reached once the first is set aside, and its letter does not take the place of the first."""
    failures = RepeatedFailures(topology(), 2)
    for number in (3, 8):
        assert isinstance(failures.count(one(number, b"equal"), f"at {number}"), Counted)
        assert isinstance(failures.count(one(number, b"equal"), f"at {number}"), Isolated)
    assert failures.suspects(B).letters == (letter(3, "at 3", b"equal"), letter(8, "at 8", b"equal"))


def test_a_row_is_set_aside_alone() -> None:
    """The rest of its half stays isolated."""
    failures = RepeatedFailures(topology(), 1)
    assert isinstance(failures.count(FailedBatch(CHANNEL, 1, 8), "batch"), Isolated)
    assert failures.suspects(B).isolated == (IsolatedMessages(CHANNEL, 1, 4), IsolatedMessages(CHANNEL, 5, 8))
    assert isinstance(failures.count(one(2), "two"), Isolated)
    assert failures.suspects(B) == Suspects(
        isolated=(IsolatedMessages(CHANNEL, 1, 1), IsolatedMessages(CHANNEL, 3, 4), IsolatedMessages(CHANNEL, 5, 8)),
        letters=(letter(2, "two"),),
    )


def test_only_so_many_suspects_are_kept() -> None:
    """The oldest is forgotten, because a run lives for months."""
    failures = RepeatedFailures(topology(), 2)
    for at in range(1_001):
        assert failures.count(FailedTimer(B, "", b"", float(at)), "why") is None
    assert failures.count(FailedTimer(B, "", b"", 0.0), "why") is None
    assert isinstance(failures.count(FailedTimer(B, "", b"", 1000.0), "why"), Poisoned)


def test_a_snapshot_without_the_channel_forgets_nothing() -> None:
    """Its records say nothing about the messages that failed."""
    failures = RepeatedFailures(topology(), 2)
    assert isinstance(failures.count(one(1), "one"), Counted)
    failures.note_published(1, ())
    assert isinstance(failures.count(one(1), "one"), Isolated)
    failures.note_published(1, ())
    assert failures.suspects(B).letters == (letter(1, "one"),)


def test_the_end_names_what_failed() -> None:
    """Without a dead-letter edge, where setting aside fails, and for a timer."""
    for failed in (one(5), FailedBatch(CHANNEL, 5, 7)):
        without = RepeatedFailures(topology(None), 1).count(failed, "why")
        assert isinstance(without, Poisoned) and f"why\n({failed} failed 1 times in a row" in without.text
        assert "RestartPolicy(poisonAfter=1); connect('a', 'b', onError=...) would set such" in without.text
    failures = RepeatedFailures(topology(), 1)
    assert isinstance(failures.count(one(5), "why"), Isolated)
    again = failures.count(one(5), "too large")
    assert again == Poisoned("too large\n(message 5 of a[0]->b[0] cannot be set aside to 'dead')")
    timer = FailedTimer(B, "'k'", b"k", 7.5)
    timers = RepeatedFailures(topology(), 2)
    assert timers.count(timer, "why") is None and timers.count(FailedTimer(B, "'k'", b"k", 8.5), "why") is None
    assert timers.count(FailedTimer(B, "'k'", b"another k", 7.5), "why") is None
    assert timers.count(timer, "why") == Poisoned(
        "why\n(the timer of b[0] with key 'k' at 7.500000 failed 2 times in a row; RestartPolicy(poisonAfter=2))"
    )
    assert str(FailedTimer(B, "", b"", 7.5)) == "the timer of b[0] at 7.500000"


def test_other_failures_are_not_counted() -> None:
    """Neither those without a failed event, nor any without a limit."""
    failures = RepeatedFailures(topology(), None)
    assert {failures.count(one(5), "why") for _ in range(9)} == {None}
    assert {RepeatedFailures(topology(), 1).count(None, "why") for _ in range(9)} == {None}


def test_which_failures_count_by_the_channel() -> None:
    """Those of messages that would be set aside. Each has its own count."""
    timer, together = FailedTimer(B, "", b"", 1.0), FailedBatch(CHANNEL, 3, 4)
    failures = RepeatedFailures(topology(), 4)
    found = [failures.count(each, "why") for each in (one(1), together, one(2), together, one(1), together)]
    assert found == [Counted(CHANNEL, times) for times in (1, 1, 1, 2, 2, 3)]
    assert failures.count(timer, "why") is None and failures.count(None, "why") is None
    for without in (RepeatedFailures(topology(None), 2), RepeatedFailures(topology(), None)):
        assert without.count(one(1), "why") is None and without.count(together, "why") is None


def test_an_error_carries_its_failed_event_across_processes() -> None:
    """Pickled as any error."""
    timer = FailedTimer(B, "k", b"k", 1.0)
    error = pickle.loads(pickle.dumps(NodeError("text", timer)))
    assert str(error) == "text" and error.failed_event == timer
