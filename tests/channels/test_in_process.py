"""The link between subtasks of one worker."""

from __future__ import annotations

from cutline.channels.in_process import InProcessConnection
from cutline.snapshot.channel.channel_sender import ChannelSender
from cutline.snapshot.channel.output_buffer import BackpressureFlag
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.channel.shapes import Shapes
from cutline.snapshot.ids import ChannelId, Subtask


def test_all_frames_are_counted() -> None:
    """At both ends alike, because what leaves a subtask of a worker reaches another one."""
    end = ChannelSender(ChannelId(Subtask("a"), Subtask("b")), Codec(), BackpressureFlag(), shapes=Shapes())
    link = InProcessConnection()
    link.attach_sending(1, end)
    link.attach_receiving(1)
    received = 0
    for number in range(3):
        end.send(("message", number))
        end.seal()
        link.pump()
        received += len(link.receive())
    traffic = link.traffic
    assert (traffic.frames_in, traffic.frames_out) == (received, received) == (3, 3)
    assert (traffic.messages_in, traffic.messages_out) == (3, 3)
    assert traffic.bytes_in == traffic.bytes_out > 0
