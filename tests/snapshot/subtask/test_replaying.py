"""When a subtask that repeats its log goes on: which messages, steps and ends it waits for (PROTOCOL 12.10)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from cutline.snapshot.channel.channel_receiver import ChannelReceiver
from cutline.snapshot.channel.channel_sender import ChannelSender
from cutline.snapshot.channel.output_buffer import BackpressureFlag
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.steps.determinants import Cut, Took, TookTogether
from cutline.snapshot.steps.replay import Replay
from cutline.snapshot.subtask.replaying import Replayer

CHANNEL = ChannelId(Subtask("a"), Subtask("b"))


def cut(snapshot_id: int) -> Cut:
    """The end of a step."""
    return Cut(snapshot_id, (), (), ())


class Repeated:
    """A replayer of a log, whose subtask does nothing."""

    def __init__(self, *steps: list[Any]) -> None:
        self.end = ChannelReceiver(CHANNEL)
        self.ends = 0
        self.steps = SimpleNamespace(
            replay=Replay(steps), is_spilling=False, is_crowded=False, keeps_state=False,
            inputs=(SimpleNamespace(end=self.end, handle_together=self.end.advance),),
            repeat_cut=lambda *_: None, finish=lambda: None,
        )  # fmt: skip
        calls = SimpleNamespace(hashes=lambda _: None, end_of_replay=self._end)
        self.replayer = Replayer(*cast("tuple[Any, Any, Any, Any]", (None, None, self.steps, calls)))
        self.replayer.settle()

    def _end(self) -> None:
        self.ends += 1


def test_a_step_waits_for_room_and_not_for_all_of_the_last_step() -> None:
    """Two subtasks may each have taken messages of the other's next step ahead of a step that was aborted."""
    repeated = Repeated([Took(0, 1), cut(1)], [Took(0, 1), cut(2)])
    repeated.steps.is_spilling = repeated.steps.is_crowded = True
    repeated.steps.replay.done()
    repeated.replayer.settle()
    waits = [not repeated.replayer.is_timer]
    repeated.steps.is_crowded = False
    assert [*waits, not repeated.replayer.is_timer] == [True, False]
    repeated.replayer.settle()
    assert isinstance(repeated.steps.replay.head, Took)


def test_a_replay_ends_when_nothing_waits_on_disk() -> None:
    """Because from then on a full buffer closes backpressure."""
    repeated = Repeated([Took(0, 1), cut(1)])
    repeated.steps.is_spilling = True
    repeated.steps.replay.done()
    repeated.replayer.settle()
    assert [repeated.ends, repeated.replayer.is_timer] == [0, False]
    repeated.steps.is_spilling = False
    repeated.replayer.settle()
    assert repeated.ends == 1


def test_credit_is_given_back_for_a_call_that_needs_more_messages() -> None:
    """Its messages were in one frame before, and are in several now, of which one has come."""
    sender = ChannelSender(CHANNEL, Codec(), BackpressureFlag())
    repeated = Repeated([TookTogether(0, 3), cut(1)])
    for message in ("one", "two", "three"):
        sender.send(message)
        sender.seal()
    frames = [sender.buffer.take() for _ in range(3)]
    needs = [repeated.replayer.needs_room]  # not yet, because nothing has come that takes credit
    for frame in frames[:2]:
        repeated.end.deliver(cast("Any", frame))
    assert [*needs, repeated.replayer.needs_room, repeated.replayer.is_possible] == [False, True, False]
    assert repeated.replayer.repeat(9) == 0
    assert repeated.end.take_freed_bytes() == sum(cast("Any", frame).size for frame in frames[:2])
    repeated.end.deliver(cast("Any", frames[2]))
    assert [repeated.replayer.needs_room, repeated.replayer.is_possible] == [False, True]
