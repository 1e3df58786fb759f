"""Stamps of messages and ends at one subtask, and what belongs to a snapshot by them (PROTOCOL 13.9 to 13.13)."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline.snapshot.channel.channel_receiver import ChannelReceiver
from cutline.snapshot.channel.channel_sender import ChannelSender
from cutline.snapshot.channel.frame import Frame, PayloadKind
from cutline.snapshot.channel.output_buffer import BackpressureFlag
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.channel.stamps import OpenStamps, Stamp, StampRuns
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.modes.clocks.epoch_assigner import EpochAssigner
from cutline.snapshot.node import Node
from cutline.snapshot.operators.monoids import Count
from cutline.snapshot.operators.persistent_aggregate import PersistentAggregate
from cutline.snapshot.testing.simulation.kept_totals import KeptTotals

ME, OUT = Subtask("me"), ChannelId(Subtask("me"), Subtask("out"))
A0, A1, B = (ChannelId(sender, ME) for sender in (Subtask("a", 0), Subtask("a", 1), Subtask("b")))


class Stamped:
    """The epochs of a subtask with some inputs and one output."""

    def __init__(self, *inputs: ChannelId, node: Node | None = None, processed: int = 0) -> None:
        self.ends = {channel: ChannelReceiver(channel, processed=processed) for channel in inputs}
        self.sender = ChannelSender(OUT, Codec(), BackpressureFlag(), stamps=OpenStamps(0))
        self.epochs = EpochAssigner(node or Node(), list(self.ends.values()), {OUT: self.sender})

    def handle(self, channel: ChannelId, *stamps: StampRuns) -> None:
        """Handle one frame for each sequence of stamps, and send a message for each message."""
        end = self.ends[channel]
        for runs in stamps:
            count = sum(count for _, count in runs)
            frame = Frame(end.processed + 1, count, PayloadKind.VALUES, b"", runs)
            end.deliver(frame)
            while end.head is not None:
                some = self.epochs.slice_begins(end, frame, frame.count)
                for _ in range(some):
                    self.sender.send(0)
                self.epochs.slice_handled(channel, some, together=False)
                end.advance(some)

    def end(self, channel: ChannelId, stamp: int) -> None:
        """Handle the end of an input, and send a message as `onEnd` does."""
        end = self.ends[channel]
        frame = Frame(end.processed + 1, 1, PayloadKind.CONTROL, b"", ((stamp, 1),))
        end.deliver(frame)
        self.epochs.input_ended(end, frame)
        end.advance(1)
        self.sender.send("ended")

    def sent(self, *snapshot_ids: int) -> list[int]:
        """Return how many sent messages belong to each of these snapshots, once their markers are sent."""
        self.sender.seal()
        return [self.epochs.sent(OUT, snapshot_id) for snapshot_id in snapshot_ids]


def test_a_relay_passes_the_stamp_of_each_message_on() -> None:
    """Not the newest stamp, and not that of its frame (PROTOCOL 13.9, epochs)."""
    relay = Stamped(A0, B)
    relay.handle(A0, ((0, 2), (3, 1)))
    relay.handle(B, ((0, 1),))
    assert relay.sent(1, 3, 4) == [3, 3, 4]
    assert [relay.epochs.received(A0, each) for each in (3, 4)] == [2, 3]
    assert [relay.epochs.received(B, each) for each in (3, 4)] == [1, 1]


def test_a_source_begins_an_epoch_with_its_cut() -> None:
    """What it sends behind the cut belongs to later snapshots only."""
    source = Stamped()
    source.sender.send(0)
    source.epochs.begin(5)
    source.sender.send(0)
    assert source.sent(5, 6) == [1, 2]


def test_an_aggregate_adds_up_by_epochs() -> None:
    """Its node has the epoch of the messages that come next."""
    node = PersistentAggregate(Count(), KeptTotals())
    node.open(cast("Any", None))
    aggregate = Stamped(A0, node=node)
    aggregate.handle(A0, ((0, 1), (4, 2)))
    assert node.epoch == 4
    aggregate.handle(A0, ((2, 1),))
    assert node.epoch == 2


def test_the_end_of_a_relay_has_the_highest_stamp_of_its_ends() -> None:
    """Whichever of them comes last (PROTOCOL 13.13, ends have epochs)."""
    relay = Stamped(A0, B)
    relay.end(A0, 7)
    relay.end(B, 0)
    relay.epochs.stream_ends()
    relay.sender.send_end()
    sent_by_hooks = 2
    assert relay.sent(7, 8) == [1, sent_by_hooks + 1]
    assert [relay.epochs.is_over(each) for each in (7, 8)] == [False, True]
    assert [relay.epochs.had_ended(A0, each) for each in (7, 8)] == [False, True]
    assert relay.epochs.had_ended(B, 7)


def test_messages_of_on_end_belong_to_a_snapshot_with_all_ends_of_the_edge() -> None:
    """A restore calls `onEnd` again where one of the ends comes again, so its messages must not count before."""
    relay = Stamped(A0, A1, B)
    relay.end(A0, 7)
    relay.end(A1, 0)
    assert relay.sent(7, 8) == [0, 2]
    relay.end(B, 0)  # another edge, whose ends belong to snapshot 7
    assert relay.sent(7, 8) == [1, 3]


def test_the_ends_of_the_restored_snapshot_belong_to_all() -> None:
    """They have no stamp, because they do not come again."""
    restored = Stamped(A0, processed=3)
    assert restored.epochs.had_ended(A0, 1) and restored.epochs.is_over(1)
    assert restored.epochs.received(A0, 1) == 3


def test_a_frame_without_the_next_message_is_an_error() -> None:
    """Stamps that are too few would count a message for no snapshot."""
    relay = Stamped(A0)
    frame = Frame(1, 3, PayloadKind.VALUES, b"", ((1, 2),))
    relay.ends[A0].deliver(frame)
    relay.ends[A0].advance(2)
    with pytest.raises(AssertionError):
        relay.epochs.slice_begins(relay.ends[A0], frame, 1)
    with pytest.raises(AssertionError, match="without stamps"):
        relay.epochs.slice_begins(relay.ends[A0], Frame(3, 1, PayloadKind.VALUES, b""), 1)


RUNS = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 3)), min_size=1, max_size=4).map(tuple)


@given(st.lists(st.tuples(st.sampled_from((A0, B)), RUNS), max_size=8), st.integers(0, 6))
def test_both_ends_count_alike(frames: list[tuple[ChannelId, StampRuns]], settled: int) -> None:
    """What a relay sends for a snapshot is what it has got for it, whatever is settled between."""
    relay, due = Stamped(A0, B), {channel: list[Stamp]() for channel in (A0, B)}
    for place, (channel, runs) in enumerate(frames):
        relay.handle(channel, runs)
        due[channel] += [stamp for stamp, count in runs for _ in range(count)]
        if place == len(frames) // 2:
            relay.epochs.settle(settled)
    for snapshot_id in range(settled, 8):
        got = {channel: relay.epochs.received(channel, snapshot_id) for channel in (A0, B)}
        below = {
            channel: sum(isinstance(stamp, int) and stamp < snapshot_id for stamp in due[channel])
            for channel in (A0, B)
        }
        # Messages of settled epochs that come late are counted all the same.
        assert got == below
        assert relay.sent(snapshot_id) == [sum(got.values())]
