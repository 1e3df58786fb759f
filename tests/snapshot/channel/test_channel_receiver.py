"""The receiver's end of a channel: order, progress, recordings that overlap, restored messages."""

from __future__ import annotations

from typing import Any

import pytest

from cutline.snapshot.channel.channel_receiver import ChannelReceiver
from cutline.snapshot.channel.channel_sender import ChannelSender
from cutline.snapshot.channel.frame import Frame, Marker
from cutline.snapshot.channel.output_buffer import BackpressureFlag
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.errors import ChannelError
from cutline.snapshot.ids import ChannelId, Subtask
from tests.snapshot.hosted import moved, values
from tests.snapshot.sample import values as frame

CHANNEL = ChannelId(Subtask("a"), Subtask("b"))


def receiver(*frames: Frame, processed: int = 0, restored: tuple[Frame, ...] = ()) -> ChannelReceiver:
    """A receiving end that got some frames."""
    end = ChannelReceiver(CHANNEL, processed=processed, restored=restored)
    for each in frames:
        end.deliver(each)
    return end


def stopped(end: ChannelReceiver, snapshot_id: int, written: int) -> tuple[int, int, list[Any]]:
    """A closed recording: processed, written, messages."""
    cut = end.stop_recording(snapshot_id, written)
    end.validate()
    return cut.processed, cut.written, values(cut)


def test_gaps_and_repeats_are_refused() -> None:
    """A gap or a repeat is an error, never repaired."""
    end = receiver(frame(1, "a", "b"))
    with pytest.raises(ChannelError, match="a gap: message 3 was due, 4 came"):
        end.deliver(frame(4, "d"))
    with pytest.raises(ChannelError, match="a repeat: message 3 was due, 2 came"):
        end.deliver(frame(2, "b"))
    with pytest.raises(ChannelError, match="follows message 5, but the last that came is 2"):
        end.deliver_marker(Marker(1, 1, 5, aligned=False))


def test_a_recording_holds_what_waits_and_what_comes() -> None:
    """PROTOCOL 1.2: (p, w], from the middle of a frame to the marker, though all is processed meanwhile."""
    end = receiver(frame(1, "a", "b", "c"))
    end.advance(1)
    end.start_recording(1)
    end.advance(2)
    end.deliver(frame(4, "d"))
    end.advance(1)
    assert stopped(end, 1, 4) == (1, 4, ["b", "c", "d"])
    end.deliver(frame(5, "e"))
    assert end.recorded_bytes == 0


def test_what_comes_after_an_aligned_marker_is_not_recorded() -> None:
    """PROTOCOL 4.3: a marker that waits in the queue bounds the recording, though later messages wait too."""
    end = receiver(frame(1, "a"))
    end.deliver_marker(Marker(1, 1, 1, aligned=True))
    end.deliver(frame(2, "b"))
    end.start_recording(1)
    assert stopped(end, 1, 1) == (0, 1, ["a"])
    end.advance(1)
    assert isinstance(end.head, Marker)
    end.pass_marker()
    assert isinstance(end.head, Frame)


def test_recordings_are_independent() -> None:
    """Two snapshots record the same channel, each from its own point to its own marker."""
    end = receiver(frame(1, "a", "b"))
    end.start_recording(1)
    end.advance(1)
    end.start_recording(2)
    end.deliver(frame(3, "c"))
    assert stopped(end, 1, 3) == (0, 3, ["a", "b", "c"])
    end.deliver(frame(4, "d"))
    assert stopped(end, 2, 4) == (1, 4, ["b", "c", "d"])


def test_discarded_and_emptied_recordings_hold_nothing() -> None:
    """After an abort nothing is kept; after a failure here nothing of before, and the marker may still come."""
    end = receiver(frame(1, "a"))
    end.start_recording(1)
    end.start_recording(2)
    assert end.recorded_bytes > 0
    end.discard(1)
    end.empty_recording(2)
    end.empty_recording(3)
    assert end.recorded_bytes == 0
    assert stopped(end, 2, 1)[2] == []


def test_a_held_channel_is_not_ready() -> None:
    """A held channel takes frames, but gives none."""
    end = receiver(frame(1, "a"))
    assert (end.ready, end.drained) == (True, False)
    end.held = True
    assert not end.ready
    end.deliver(frame(2, "b"))


def test_processed_bytes_are_given_back_once() -> None:
    """PROTOCOL 9.1: credit for whole frames, when their last message is processed."""
    first = frame(1, "a", "b")
    end = receiver(first, frame(3, "c"))
    end.advance(1)
    assert end.take_freed_bytes() == 0
    end.advance(1)
    assert (end.take_freed_bytes(), end.take_freed_bytes()) == (len(first.payload), 0)


def test_credit_is_given_back_ahead_of_time_once() -> None:
    """For frames that wait. When they are processed it is not given back again."""
    first, second = frame(1, "a", "b"), frame(3, "c")
    end = receiver(first, second)
    end.advance(1)
    charged = [end.has_charged_frames]
    end.free_ahead()
    end.free_ahead()
    charged.append(end.has_charged_frames)
    assert end.take_freed_bytes() == len(first.payload) + len(second.payload)
    end.deliver(frame(4, "d"))
    end.advance(1)
    end.advance(1)
    assert end.take_freed_bytes() == 0
    assert [*charged, end.has_charged_frames] == [True, False, True]
    end.advance(1)
    assert end.take_freed_bytes() == len(frame(4, "d").payload)


def test_restored_messages_are_ordinary() -> None:
    """PROTOCOL 6.2: ahead of the link, recorded if they still wait, never credited; the link goes on behind them."""
    end = receiver(processed=4, restored=(frame(5, "e"), frame(6, "f")))
    end.advance(1)
    end.start_recording(1)
    with pytest.raises(ChannelError, match="message 7 was due, 5 came"):
        end.deliver(frame(5, "e"))
    end.deliver(frame(7, "g"))
    assert stopped(end, 1, 7) == (5, 7, ["f", "g"])
    end.advance(1)
    assert end.take_freed_bytes() == 0
    end.advance(1)
    assert end.take_freed_bytes() == len(frame(7, "g").payload)


def test_both_ends_agree_on_an_exact_cut() -> None:
    """PROTOCOL 1.3: receiver's part, then sender's part, is exactly what was in flight between the two cuts."""
    sender, end = ChannelSender(CHANNEL, Codec(), BackpressureFlag()), receiver()
    for message in "abcd":
        sender.send(message)
        sender.seal()
    for _ in range(2):
        item = sender.buffer.take()
        assert isinstance(item, Frame)
        end.deliver(item)
    end.advance(1)
    end.start_recording(1)
    sender.put_marker(1, 1, aligned=False)
    moved(sender, end)
    sent, received = sender.buffer.settled(1), end.stop_recording(1, 2)
    assert sent is not None
    assert (values(received), values(sent)) == (["b"], ["c", "d"])
