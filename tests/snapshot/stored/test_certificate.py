"""The certificate: a cut that is complete and exact has no problems, and any other has one that names it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.stored.certificate import ReceivedEntry, SentEntry, SubtaskRecord, problems
from cutline.snapshot.stored.part import PartKind
from tests.snapshot import sample

CHANNELS = (sample.PQ, sample.QP)
Records = tuple[SubtaskRecord, ...]


def found(records: Records, incarnation: int = sample.INCARNATION) -> list[str]:
    """The problems of a sample that was changed."""
    return problems(CHANNELS, (sample.P, sample.Q), records, incarnation, run=sample.RUN)


def changed(at: int, **fields: object) -> Records:
    """The sample's records with fields of one replaced."""
    records = list(sample.records())
    records[at] = replace(records[at], **fields)  # type: ignore[arg-type]
    return tuple(records)


def test_an_exact_cut_has_no_problems() -> None:
    """The sample is complete and exact, in any order."""
    assert found(sample.records()) == []
    assert found(sample.records()[::-1]) == []


P_RECORD, Q_RECORD = sample.records()


@pytest.mark.parametrize(
    ("records", "says"),
    [
        (sample.records()[:1], "Q[0]: 0 times a record"),
        (sample.records() + sample.records()[:1], "P[0]: 2 times a record"),
        ((*sample.records(), replace(P_RECORD, subtask=Subtask("R"))), "R[0]: a record, but the run has no such thing"),
        (changed(0, incarnation=6), "P[0]: its record is of incarnation 6, the snapshot of 7"),
        (changed(0, handles=P_RECORD.handles[1:]), "P[0]: 0 states instead of one"),
        (changed(0, handles=P_RECORD.handles + P_RECORD.handles[:1]), "P[0]: 2 states"),
        (changed(0, handles=(*P_RECORD.handles[:-1],)), "P[0]->Q[0]: 0 sent parts"),
        (changed(0, handles=(*P_RECORD.handles, P_RECORD.handles[-1])), "P[0]->Q[0]: 2 sent parts"),
        (changed(1, handles=(*Q_RECORD.handles, P_RECORD.handles[-1])), "Q[0]: lists a part that P[0] made"),
        (changed(1, handles=(*Q_RECORD.handles, P_RECORD.handles[-1])), "its entry says no messages"),
        (changed(0, sent=()), "P[0]->Q[0]: 0 times a sender's entry"),
        (changed(1, received=Q_RECORD.received * 2), "P[0]->Q[0]: 2 times a receiver's entry"),
        (changed(1, sent=(*Q_RECORD.sent, *P_RECORD.sent)), "P[0]->Q[0]: its sender's entry came from Q[0]"),
        (changed(0, received=(*P_RECORD.received, *Q_RECORD.received)), "its receiver's entry came from P[0]"),
    ],
)
def test_incomplete_cuts_are_named(records: Records, says: str) -> None:
    """Anything missing, doubled, strange or of another incarnation is said with its name."""
    assert any(says in problem for problem in found(records)), found(records)


def with_entry(end: str, **numbers: int) -> Records:
    """The sample with numbers of PQ's entry at one end changed."""
    if end == "sent":
        return changed(0, sent=(replace(P_RECORD.sent[0], **numbers),))  # type: ignore[arg-type]
    return changed(1, received=(replace(Q_RECORD.received[0], **numbers),))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("records", "says"),
    [
        (with_entry("received", processed=6), "6 messages processed, but the marker was behind message 5"),
        (with_entry("received", processed=1), "receiver's part holds messages 3 to 5, but messages 2 to 5 were due"),
        (with_entry("received", processed=-1), "-1 messages processed"),
        (with_entry("received", written=4), "sender's marker was behind message 5, the receiver's behind 4"),
        (with_entry("sent", written=6), "sender's marker was behind message 6, the receiver's behind 5"),
        (with_entry("sent", sent=4), "4 messages sent, but the marker was behind message 5"),
        (with_entry("sent", sent=7), "sender's part holds messages 6 to 8, but messages 6 to 7 were due"),
        (with_entry("sent", first=0, last=0), "sender's part holds no messages, but messages 6 to 8 were due"),
        (with_entry("received", first=4), "its entry says messages 4 to 5"),
    ],
)
def test_inexact_cuts_are_named(records: Records, says: str) -> None:
    """Each way in which the numbers of one channel can contradict each other is said with the numbers."""
    assert any(problem.startswith(("P[0]->Q[0]", "inline")) and says in problem for problem in found(records))


def span(after: int, upto: int) -> tuple[int, int]:
    """First and last number of the part that covers (after, upto]."""
    return (after + 1, upto) if upto > after else (0, 0)


@given(st.integers(0, 3), st.integers(0, 3), st.integers(0, 3), st.data())
def test_only_the_exact_cut_passes(processed: int, queued: int, overtaken: int, data: st.DataObject) -> None:
    """For any numbers: the exact cut passes, and changing any one number of any entry is noticed."""
    written, sent = processed + queued, processed + queued + overtaken
    channel = ChannelId(sample.P, sample.Q)
    sender = SentEntry(channel, sent, written, *span(written, sent))
    receiver = ReceivedEntry(channel, processed, written, *span(processed, written))
    template = {PartKind.SENT: P_RECORD.handles[-1], PartKind.RECEIVED: Q_RECORD.handles[-1]}

    def check(sender: SentEntry, receiver: ReceivedEntry) -> list[str]:
        sent_part = () if sent == written else (replace(template[PartKind.SENT], first=written + 1, last=sent),)
        received_part = ()
        if processed != written:
            received_part = (replace(template[PartKind.RECEIVED], first=processed + 1, last=written),)  # type: ignore[assignment]
        records = (
            replace(P_RECORD, handles=(P_RECORD.state, *sent_part), sent=(sender,), received=()),
            replace(Q_RECORD, handles=(Q_RECORD.state, *received_part), sent=(), received=(receiver,)),
        )
        return problems([channel], [sample.P, sample.Q], records, sample.INCARNATION, run=sample.RUN)

    assert check(sender, receiver) == []
    entry = data.draw(st.one_of(st.just(sender), st.just(receiver)))
    field = data.draw(st.sampled_from(["written", "first", "last", "sent" if entry is sender else "processed"]))
    changes: dict[str, Any] = {field: getattr(entry, field) + data.draw(st.sampled_from([-2, -1, 1, 2]))}
    wrong = replace(entry, **changes)
    assert check(wrong, receiver) if isinstance(wrong, SentEntry) else check(sender, wrong)
