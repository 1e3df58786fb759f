"""The cut of the newest records: which parts have the messages between them, and what the certificate says."""

from __future__ import annotations

import pytest

from cutline import MemoryBackend
from cutline.snapshot.channel.frame import Frame, PayloadKind
from cutline.snapshot.channel.frame_codec import frame_of_pieces, messages_of
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.errors import RestoreRefused, SnapshotCorrupt
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.modes.records.composed_cut import plan_cut
from cutline.snapshot.modes.records.recovery_report import compare, report_of
from cutline.snapshot.plan.compiled_graph import build
from cutline.snapshot.plan.modes import ChannelLogs
from cutline.snapshot.stored.certificate import ReceivedEntry, SentEntry, SubtaskRecord, SubtaskStatus, problems
from cutline.snapshot.stored.local_checkpoint import (
    LocalCheckpoint,
    decode_record,
    encode_record,
    first_record_number,
)
from cutline.snapshot.stored.local_checkpoint_files import LocalCheckpointFiles
from cutline.snapshot.stored.part import Handle, PartKind, channel_part, decode_frames, state_part
from cutline.snapshot.stored.recovery_report import Relation
from cutline.snapshot.stored.run_store import RunStore
from tests.snapshot.testing.recorded import recorded

CODEC = Codec()
TOPOLOGY = build(recorded(0, 1, links=1), "unaligned", ChannelLogs()).topology
NUMBERS, LINK, OUT = Subtask("numbers"), Subtask("link"), Subtask("out")
CHANNEL = ChannelId(NUMBERS, LINK)
FIRST = first_record_number(1)


def frames(first: int, last: int) -> list[Frame]:
    """One frame of numbers."""
    return [frame_of_pieces(first, PayloadKind.VALUES, [CODEC.encode(number) for number in range(first, last + 1)])]


class Store:
    """A store, and records in it."""

    def __init__(self) -> None:
        self.store = RunStore(MemoryBackend(), "recorded")
        self.files = LocalCheckpointFiles(self.store)

    def part(self, number: int, first: int, last: int) -> Handle:
        """Store a part of the log of the first channel."""
        return self.store.put_parts([channel_part(PartKind.SENT, "recorded", 1, number, CHANNEL, frames(first, last))])[
            0
        ]

    def record(
        self, subtask: Subtask, processed: int = 0, sent: int = 0, log: tuple[Handle, ...] = (), number: int = FIRST
    ) -> LocalCheckpoint:
        """A record of a subtask, whose other channels are empty."""
        (state,) = self.store.put_parts([state_part("recorded", 1, number, subtask, [b"state"])])
        outputs, inputs = TOPOLOGY.outputs_of(subtask), TOPOLOGY.inputs_of(subtask)
        ends = [(sent if channel == CHANNEL else 0) for channel in outputs]
        done = [(processed if channel == CHANNEL else 0) for channel in inputs]
        entries = SubtaskRecord(
            subtask, 1, (state,),
            tuple(SentEntry(channel, each, each, 0, 0) for channel, each in zip(outputs, ends, strict=True)),
            tuple(ReceivedEntry(channel, each, each, 0, 0) for channel, each in zip(inputs, done, strict=True)),
            SubtaskStatus(False, True, False, False, ()),
        )  # fmt: skip
        return LocalCheckpoint("recorded", number, entries, log, ((str(subtask), processed + sent),), 0)

    def all(self, processed: int, sent: int, *log: Handle) -> list[LocalCheckpoint]:
        """Records of all subtasks."""
        others = [each for each in TOPOLOGY.subtasks if each not in (NUMBERS, LINK)]
        return [
            self.record(NUMBERS, sent=sent, log=log),
            self.record(LINK, processed),
            *(self.record(each) for each in others),
        ]


@pytest.mark.parametrize(
    ("processed", "pieces", "is_cut"),
    [(2, [(1, 4), (5, 6)], True), (4, [(1, 4), (5, 6)], False), (0, [(1, 4), (3, 6)], False), (3, [(4, 6)], False)],
)
def test_the_cut_is_exact(processed: int, pieces: list[tuple[int, int]], is_cut: bool) -> None:
    """Entries are cut inside, and overlap as they like: the certificate finds each message once."""
    store = Store()
    log = [store.part(FIRST + number, *piece) for number, piece in enumerate(pieces)]
    plan = plan_cut("recorded", TOPOLOGY, None, store.all(processed, 6, *log))
    (state,) = plan.channels
    assert state.is_cut_inside is is_cut
    records = store.files.store_cut(plan, 2_000_000, 2)
    assert problems(TOPOLOGY.channels, TOPOLOGY.subtasks, records, 2, run="recorded") == []
    (part,) = [each for record in records for each in record.handles if each.channel is not None]
    found = [frame for frame in decode_frames(part, store.store.read_part(part))]
    assert [each for frame in found for each in messages_of(frame, CODEC)] == list(range(processed + 1, 7))


def test_a_gap_in_a_log_is_named() -> None:
    """The channel, what its log has, and the message that is missing."""
    store = Store()
    with pytest.raises(RestoreRefused, match=r"channel numbers\[0\]->link\[0\]: the log has 5 to 6, but 4 is needed"):
        plan_cut("recorded", TOPOLOGY, None, store.all(3, 6, store.part(FIRST, 5, 6)))


def test_a_receiver_ahead_is_found_by_the_certificate() -> None:
    """The plan decides nothing about numbers: the certificate refuses a receiver ahead of its sender."""
    store = Store()
    records = store.files.store_cut(plan_cut("recorded", TOPOLOGY, None, store.all(7, 6)), 2_000_000, 2)
    found = problems(TOPOLOGY.channels, TOPOLOGY.subtasks, records, 2, run="recorded")
    assert any("numbers[0]->link[0]" in each for each in found), found


def test_a_subtask_without_a_record_is_refused() -> None:
    """Without a snapshot with which the records began, each subtask needs one."""
    store = Store()
    with pytest.raises(RestoreRefused, match=r"there is no record of link\[0\]"):
        plan_cut("recorded", TOPOLOGY, None, [each for each in store.all(0, 0) if each.subtask != LINK])


def test_the_newest_record_of_one_incarnation_is_read() -> None:
    """Records of other incarnations do not count, whatever their numbers (PROTOCOL 14.6, which records count)."""
    store = Store()
    for number in (FIRST, FIRST + 2, FIRST + 1):
        store.files.write(store.record(LINK, number=number))
    assert [each.number for each in store.files.newest(1)] == [FIRST + 2]
    assert store.files.newest(2) == ()
    store.files.write(store.record(LINK, number=FIRST + 2))  # again, with the same bytes
    with pytest.raises(SnapshotCorrupt, match="another record of the same number"):
        store.files.write(store.record(LINK, processed=1, number=FIRST + 2))


def test_a_record_comes_back_equal() -> None:
    """All fields are stored, and a flipped bit is found."""
    store = Store()
    record = store.record(NUMBERS, sent=3, log=(store.part(FIRST, 1, 3),))
    data = b"".join(bytes(each) for each in encode_record(record))
    assert decode_record(data, "a record") == record
    with pytest.raises(SnapshotCorrupt):
        decode_record(data[:-1] + bytes([data[-1] ^ 1]), "a record")


def test_the_report_compares_with_the_senders() -> None:
    """A subtask that has processed less is behind, and its messages are counted."""
    store = Store()
    records = store.all(2, 6, store.part(FIRST, 1, 6))
    plan = plan_cut("recorded", TOPOLOGY, None, records)
    link = next(each for each in report_of(plan, None, records).subtasks if each.subtask == LINK)
    log = next(each for each in link.logs if each.sender == NUMBERS)
    assert (log.first, log.last, log.count, log.relation) == (3, 6, 4, Relation.BEHIND)


@pytest.mark.parametrize(
    ("one", "other", "relation"),
    [
        ((("p", 1),), (("p", 1),), Relation.EQUAL),
        ((("p", 1),), (("p", 2),), Relation.BEHIND),
        ((), (("p", 2),), Relation.BEHIND),
        ((("p", 2), ("q", 1)), (("p", 2),), Relation.AHEAD),
        ((("p", 2),), (("p", 1), ("q", 1)), Relation.INCOMPARABLE),
    ],
)
def test_checkpoints_are_compared_by_partition(
    one: tuple[tuple[str, int], ...], other: tuple[tuple[str, int], ...], relation: Relation
) -> None:
    """A partition that is missing is at its begin."""
    assert compare(one, other) is relation
