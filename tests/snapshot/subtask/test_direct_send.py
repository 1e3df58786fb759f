"""`Context.send` in one function does exactly what the ordinary way does."""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from snapshot.channel.channel_sender import MESSAGE_BYTES_MAX, ChannelSender
from snapshot.channel.frame import Frame
from snapshot.channel.output_buffer import BackpressureFlag
from snapshot.channel.partitioning import HashPartitioner
from snapshot.channel.serialization import Codec
from snapshot.errors import CutlineError, NodeError
from snapshot.ids import ChannelId, Subtask
from snapshot.subtask.context import SubtaskContext
from snapshot.subtask.observer import ObservedSender, Observer
from snapshot.subtask.output_edge import OutputEdge
from snapshot.subtask.timers import Timers

_SOURCE = Subtask("a", 0)
_WIDTH = 3


def _key_of(message: Any) -> Any:
    return message["key"] if isinstance(message, dict) else message[0]


def _context(key_of: Callable[[Any], Any] = _key_of, *, is_observed: bool) -> tuple[SubtaskContext, OutputEdge]:
    codec = Codec()
    ends = {i: ChannelSender(ChannelId(_SOURCE, Subtask("b", i)), codec, BackpressureFlag()) for i in range(_WIDTH)}
    senders = {i: ObservedSender(end, Observer()) for i, end in ends.items()} if is_observed else ends
    edge = OutputEdge(_SOURCE, "b", senders, HashPartitioner(key_of, _WIDTH), (), None)
    logger = logging.LoggerAdapter(logging.getLogger("test"), {})
    context = SubtaskContext(
        run="r", incarnation=1, subtask=_SOURCE, parallelism=1, inputs=(), edges=(edge,), timers=Timers(),
        logger=logger, chance=lambda: Random(1), ask_snapshot=lambda: None,
    )  # fmt: skip
    context.send_directly(codec)
    assert ("send" in vars(context)) is not is_observed
    return context, edge


def _ends_of(edge: OutputEdge) -> dict[int, ChannelSender]:
    return {i: end.end if isinstance(end, ObservedSender) else end for i, end in edge.ends.items()}


class _NotEncodable:
    def __reduce__(self) -> Any:
        raise TypeError("never leaves its process")


_KEYS = st.one_of(
    st.integers(-2, 5), st.sampled_from(["", "a", "bb"]), st.booleans(), st.none(), st.just(1.0), st.just([1]),
    st.tuples(st.integers(0, 2), st.text(max_size=1)), st.binary(max_size=1),
)  # fmt: skip
_VALUES = st.one_of(
    st.integers(), st.text(max_size=3), st.just((1, (2,))), st.just([1, [2]]), st.just({"x": (1,)}), st.just("y" * 400),
    st.builds(_NotEncodable), st.just(2**70),
)  # fmt: skip
_MESSAGES = st.one_of(
    st.tuples(_KEYS, _VALUES), st.lists(_VALUES, min_size=1, max_size=2),
    st.builds(lambda k, v: {"key": k, "v": v}, _KEYS, _VALUES), st.just(7), st.just(()),
)  # fmt: skip
_BATCH = pa.record_batch({"key": [1, 2, 3]})
_STEPS = st.one_of(
    st.builds(lambda message: ("send", message), _MESSAGES),
    st.builds(lambda message, index: ("send to", message, index), _MESSAGES, st.integers(0, _WIDTH)),
    st.sampled_from([("seal",), ("silence",), ("unsilence",), ("batch",)]),
)


def _do(context: SubtaskContext, edge: OutputEdge, step: Any) -> str:
    """Take a step; what it raised."""
    try:
        match step:
            case "send", message:
                context.send(message)
            case "send to", message, index:
                context.send(message, Subtask("b", index))
            case ("batch",):
                context.send(_BATCH)
            case ("seal",):
                for end in _ends_of(edge).values():
                    end.seal()
            case ("silence",):
                context.silence("snapshotState")
            case ("unsilence",):
                context.unsilence()
    except CutlineError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _taken(edge: OutputEdge) -> list[tuple[int, Frame]]:
    frames = []
    for index, end in _ends_of(edge).items():
        end.seal()
        end.validate()
        while (frame := end.buffer.take()) is not None:
            assert isinstance(frame, Frame)
            frames.append((index, replace(frame, payload=bytes(frame.payload))))
    return frames


@given(st.lists(_STEPS, max_size=30))
def test_the_direct_way_is_the_ordinary_way(steps: list[Any]) -> None:
    """The same frames on the same channels, and the same errors, whatever is sent, in whatever order."""
    direct, ordinary = _context(is_observed=False), _context(is_observed=True)
    for step in steps:
        assert _do(*direct, step) == _do(*ordinary, step), step
    assert _taken(direct[1]) == _taken(ordinary[1])


def test_a_send_kept_from_another_hook_is_silenced_too() -> None:
    """Who keeps `context.send` cannot send from snapshotState through it."""
    context, edge = _context(is_observed=False)
    send = context.send
    for _ in range(2):  # the key is known then
        send(("a", 1))
    context.silence("snapshotState")
    with pytest.raises(NodeError, match="snapshotState must not send"):
        send(("a", 2))
    context.unsilence()
    send(("a", 3))
    assert sum(frame.count for _, frame in _taken(edge)) == 3


def test_a_message_too_large_is_refused_and_the_others_stay() -> None:
    """The direct way looks at what is large as soon as it is sent."""
    context, edge = _context(is_observed=False)
    for _ in range(2):
        context.send(("a", b"small"))
    with pytest.raises(CutlineError, match="can be sent"):
        context.send(("a", bytes(MESSAGE_BYTES_MAX)))
    assert sum(frame.count for _, frame in _taken(edge)) == 2
