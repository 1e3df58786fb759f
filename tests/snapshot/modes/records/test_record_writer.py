"""What a worker does with the records of its subtasks, step by step."""

from __future__ import annotations

import pytest

from cutline.snapshot.ids import SNAPSHOT_IDS_PER_CLAIM, ChannelId, Subtask
from cutline.snapshot.modes.records.record_writer import Decisions, LocalCheckpointWriter
from cutline.snapshot.stored.certificate import ReceivedEntry, SentEntry, SubtaskRecord, SubtaskStatus
from cutline.snapshot.stored.history import Claim
from cutline.snapshot.stored.local_checkpoint import first_record_number
from cutline.snapshot.stored.part import Handle, PartKind

A, B, C = Subtask("a"), Subtask("b"), Subtask("c")
AB, BC = ChannelId(A, B), ChannelId(B, C)
FIRST = first_record_number(3)
OTHER = Claim(4, "other", "other 1")


def handle(kind: PartKind, number: int, channel: ChannelId | None = None, first: int = 0, last: int = 0) -> Handle:
    """A handle of a part of B."""
    return Handle(kind, "run", 3, number, B, channel, first, last, 10, b"", f"parts/{number}", None)


def record(number: int, processed: int, sent: int, first: int = 0, *, ended: bool = False) -> SubtaskRecord:
    """A record of B that holds the messages from `first` on."""
    handles = [handle(PartKind.STATE, number)]
    if first:
        handles.append(handle(PartKind.SENT, number, BC, first, sent))
    return SubtaskRecord(
        B, 3, tuple(handles), (SentEntry(BC, sent, first - 1, first, sent),),
        (ReceivedEntry(AB, processed, processed, 0, 0),), SubtaskStatus(ended, True, False, ended, ()),
    )  # fmt: skip


def writer(*, recorded: int = 0, is_complete: bool = True) -> LocalCheckpointWriter:
    """The writer of a worker with B alone, in incarnation 3."""
    return LocalCheckpointWriter("run", 3, {B: ((AB,), (BC,))}, {AB: recorded}, is_complete=is_complete)


def stored(records: LocalCheckpointWriter, found: SubtaskRecord) -> Decisions:
    """Capture a record, and store its parts."""
    number = records.begin(B, 0.0)
    assert number is not None
    decisions = Decisions()
    records.parts_stored(found, number, decisions)
    return decisions


def test_a_record_waits_for_its_senders() -> None:
    """It is written when the sender has recorded what it has processed, and not before (PROTOCOL 14.2)."""
    records = writer()
    decisions = stored(records, record(FIRST, 5, 2, 1))
    assert not decisions.write and decisions.awaits == [(B, (A,))]
    late = Decisions()
    records.neighbour_recorded([(AB, 4)], [], (), late)
    assert not late.write
    records.neighbour_recorded([(AB, 5)], [], (("a", 7),), late)
    assert [each.number for each in late.write] == [FIRST]
    assert late.write[0].checkpoint == (("a", 7),)
    assert [each.last for each in late.write[0].log] == [2]


def test_nothing_is_done_behind_another_claim() -> None:
    """A written record is neither announced nor committed while another claim is there (PROTOCOL 14.3)."""
    records = writer(recorded=9)
    stored(records, record(FIRST, 5, 2, 1))
    fenced = Decisions()
    records.written(B, FIRST, 4, OTHER, 0.5, fenced)
    assert fenced.fenced == [OTHER] and not (fenced.announce or fenced.commit or fenced.stored)
    permitted = Decisions()
    records.permitted(4, True, permitted)
    assert [each.number for each in permitted.write] == [FIRST] and records.next_claim == 5
    done = Decisions()
    records.written(B, FIRST, 5, None, 0.5, done)
    assert [(each.number, seconds) for each, seconds in done.announce] == [(FIRST, 0.5)] and done.commit == [(B, FIRST)]


def test_an_answer_about_an_older_claim_is_asked_again() -> None:
    """The claim was permitted while the record was written, so the next claim is what counts."""
    records = writer(recorded=9)
    stored(records, record(FIRST, 5, 2, 1))
    records.permitted(4, True, Decisions())
    again = Decisions()
    records.written(B, FIRST, 4, OTHER, 0.5, again)
    assert [each.number for each in again.write] == [FIRST] and not again.fenced


def test_output_waits_for_the_first_snapshot() -> None:
    """Records are announced before, and nothing is committed (PROTOCOL 14.4, trimming, and the first snapshot)."""
    records = writer(recorded=9, is_complete=False)
    stored(records, record(FIRST, 5, 2, 1))
    done = Decisions()
    records.written(B, FIRST, 4, None, 0.5, done)
    assert done.announce and not done.commit
    permitted = Decisions()
    records.permitted(3, True, permitted)
    assert permitted.commit == [(B, FIRST)]


def test_logs_are_trimmed_behind_recorded_numbers() -> None:
    """A part goes when the receiver has recorded its last message, and stays while it has one left."""
    records = writer(recorded=99)
    logs = []
    for number, (first, sent, processed) in enumerate([(1, 2, 1), (3, 6, 3), (7, 9, 6), (0, 9, 9)]):
        stored(records, record(FIRST + number, 1, sent, first))
        done = Decisions()
        records.written(B, FIRST + number, 4, None, 0.5, done)
        logs.append([(each.first, each.last) for each in done.announce[0][0].log])
        records.neighbour_recorded([], [(BC, processed)], (), Decisions())
    assert logs == [[(1, 2)], [(1, 2), (3, 6)], [(3, 6), (7, 9)], [(7, 9)]]


def test_a_failed_record_is_no_record() -> None:
    """The next one has another number, and the one that failed is not taken late."""
    records = writer(recorded=9)
    assert records.begin(B, 0.0) == FIRST
    assert records.begin(B, 0.0) is None
    failed = Decisions()
    records.failed(B, FIRST, failed)
    assert failed.failed == [B] and not records.may_hurry(B)
    assert records.begin(B, 0.0) == FIRST + 1
    records.failed(B, FIRST, failed)
    assert failed.failed == [B]


def test_an_ended_subtask_records_once_more() -> None:
    """A request of the coordinator asks only subtasks whose end no record shows."""
    records = writer(recorded=9)
    assert records.request(7) == [B]
    stored(records, record(FIRST, 5, 2, 1, ended=True))
    records.written(B, FIRST, 4, None, 0.5, Decisions())
    assert records.is_over(B) and records.request(8) == []


def test_numbers_end_with_their_incarnation() -> None:
    """A record never has a number of the next incarnation."""
    records = writer(recorded=9)
    records._subtasks[B].next_number = 4 * SNAPSHOT_IDS_PER_CLAIM
    with pytest.raises(OverflowError, match="has used all numbers of records of this incarnation"):
        records.begin(B, 0.0)
