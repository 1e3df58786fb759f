"""When a subtask that repeats its log goes on: which messages, steps and ends it waits for (PROTOCOL 12.10)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from cutline.snapshot.channel.channel_receiver import ChannelReceiver
from cutline.snapshot.channel.channel_sender import ChannelSender
from cutline.snapshot.channel.frame import Frame, PayloadKind
from cutline.snapshot.channel.output_buffer import BackpressureFlag
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.errors import ChannelError
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.modes.steps.determinants import Cut, Took, TookTogether
from cutline.snapshot.modes.steps.replay import Replay
from cutline.snapshot.modes.steps.replay_turns import ReplayTurns

CHANNEL = ChannelId(Subtask("a"), Subtask("b"))


def cut(snapshot_id: int) -> Cut:
    """The end of a step."""
    return Cut(snapshot_id, (), (), ())


class Repeated:
    """Turns that repeat a log, whose subtask does nothing."""

    def __init__(self, *steps: list[Any]) -> None:
        self.end = ChannelReceiver(CHANNEL)
        self.steps = SimpleNamespace(
            replay=Replay(steps), is_spilling=False, is_crowded=False, keeps_state=False,
            inputs=(SimpleNamespace(end=self.end, handle_together=self.end.advance),),
            repeat_cut=lambda *_: None, hashes=lambda _: None, finish=lambda: None,
        )  # fmt: skip
        core = SimpleNamespace(node=None, context=None, backpressure=BackpressureFlag())
        acts = SimpleNamespace(core=core, listeners=())
        self.turns = ReplayTurns(cast("Any", self.steps), cast("Any", acts))
        self.turns.begin()


def test_a_step_waits_for_room_and_not_for_all_of_the_last_step() -> None:
    """Two subtasks may each have taken messages of the other's next step ahead of a step that was aborted."""
    repeated = Repeated([Took(0, 1), cut(1)], [Took(0, 1), cut(2)])
    repeated.steps.is_spilling = repeated.steps.is_crowded = True
    repeated.steps.replay.done()
    repeated.turns.begin()
    waits = [repeated.turns.timer_at is None]
    repeated.steps.is_crowded = False
    assert [*waits, repeated.turns.timer_at is None] == [True, False]
    repeated.turns.begin()
    assert isinstance(repeated.steps.replay.head, Took)


def test_a_replay_ends_when_nothing_waits_on_disk() -> None:
    """Because from then on a full buffer closes backpressure."""
    repeated = Repeated([Took(0, 1), cut(1)])
    repeated.steps.is_spilling = True
    repeated.steps.replay.done()
    repeated.turns.begin()
    assert (repeated.turns.over, repeated.turns.timer_at) == (None, None)
    repeated.steps.is_spilling = False
    repeated.turns.begin()
    assert repeated.turns.over is not None


def test_credit_is_given_back_for_a_call_that_needs_more_messages() -> None:
    """Its messages were in one frame before, and are in several now, of which one has come."""
    sender = ChannelSender(CHANNEL, Codec(), BackpressureFlag())
    repeated = Repeated([TookTogether(0, 3), cut(1)])
    for message in ("one", "two", "three"):
        sender.send(message)
        sender.seal()
    frames = [sender.buffer.take() for _ in range(3)]
    needs = [repeated.turns.is_runnable]  # not yet, because nothing has come that takes credit
    for frame in frames[:2]:
        repeated.end.deliver(cast("Any", frame))
    assert [*needs, repeated.turns.is_runnable, repeated.turns.may_handle(CHANNEL)] == [False, True, False]
    assert repeated.turns.handle(CHANNEL, 9) == 0
    assert repeated.end.take_freed_bytes() == sum(cast("Any", frame).size for frame in frames[:2])
    repeated.end.deliver(cast("Any", frames[2]))
    assert repeated.turns.may_handle(CHANNEL)


def test_an_unknown_control_frame_is_refused_by_name() -> None:
    """Also where messages of the log are counted only, because the restored state has them already."""
    repeated = Repeated([Took(0, 1), cut(1)])
    repeated.steps.keeps_state = True
    repeated.end.deliver(Frame(1, 1, PayloadKind.CONTROL, b"\x01later"))
    with pytest.raises(ChannelError, match=r"a\[0\]->b\[0\]: message 1 is a control frame"):
        repeated.turns.handle(CHANNEL, 9)
    assert repeated.end.processed == 0
