"""The log of a channel, which its buffer fills, and the memory that all logs of a subtask share."""

from __future__ import annotations

from cutline.snapshot.channel.channel_sender import ChannelSender
from cutline.snapshot.channel.output_buffer import BackpressureFlag
from cutline.snapshot.channel.send_log import LogMemory, SendLog
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.ids import ChannelId, Subtask

CHANNEL = ChannelId(Subtask("a"), Subtask("b"))


def sender(bytes_max: int) -> tuple[ChannelSender, SendLog, LogMemory, BackpressureFlag]:
    """A sender with a log."""
    flag = BackpressureFlag()
    memory = LogMemory(flag, bytes_max)
    log = SendLog(memory)
    return ChannelSender(CHANNEL, Codec(), flag, sent=3, log=log), log, memory, flag


def test_a_log_has_what_was_sent_also_when_the_link_took_it() -> None:
    """Frames stay until they are dropped by number, and a frame with a newer message stays whole."""
    end, log, _, _ = sender(1000)
    for number in range(4):
        end.send(f"message {number}")
        if number % 2:
            end.seal()
            assert end.buffer.take() is not None
    assert [(frame.first, frame.last) for frame in log.frames()] == [(4, 5), (6, 7)]
    log.drop_through(6)
    assert [(frame.first, frame.last) for frame in log.frames()] == [(6, 7)]
    log.drop_through(7)
    assert log.frames() == ()


def test_full_logs_hold_the_subtask_until_they_are_stored() -> None:
    """From half of the memory on the next record should not wait, and from all of it no event comes."""
    end, log, memory, flag = sender(60)
    found = []
    for _ in range(3):
        end.send("x" * 19)
        end.seal()
        found.append((memory.is_half_full, flag.closed))
    assert found == [(False, 0), (True, 0), (True, 1)]
    log.drop_through(4)
    assert (memory.is_half_full, flag.closed) == (True, 0)
    log.drop_through(6)
    assert (memory.is_half_full, flag.closed) == (False, 0)
