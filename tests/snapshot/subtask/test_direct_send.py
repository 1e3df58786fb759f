"""`Context.send` in one function does exactly what the ordinary way does, wherever the receivers are."""

from __future__ import annotations

import logging
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline.snapshot.channel.channel_sender import MESSAGE_BYTES_MAX, ChannelSender
from cutline.snapshot.channel.frame import Marker
from cutline.snapshot.channel.frame_codec import encoded_frame, messages_of
from cutline.snapshot.channel.object_frame import AnyFrame
from cutline.snapshot.channel.output_buffer import BackpressureFlag
from cutline.snapshot.channel.partitioning import HashPartitioner, Partitioner, partitioner
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.channel.shapes import SHAPES_MAX, Shapes
from cutline.snapshot.errors import CutlineError, NodeError
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.plan.topology import Partitioning
from cutline.snapshot.subtask.context import SubtaskContext
from cutline.snapshot.subtask.observer import ObservedSender, Observer
from cutline.snapshot.subtask.output_edge import OutputEdge
from cutline.snapshot.subtask.timers import Timers

_SOURCE = Subtask("a", 0)
_WIDTH = 3
_CODEC = Codec()

_Edges = tuple[OutputEdge, ...]
_Where = tuple[str, int]

_PLACES: list[_Where] = [*(("b", i) for i in range(_WIDTH)), ("c", 0), ("d", 0)]
_BY_KEY, _TO_ONE, _KEYED_TO_ONE, _BOTH = ("b",), ("c",), ("d",), ("b", "c")
_TARGETS = [_BY_KEY, _TO_ONE, _KEYED_TO_ONE, _BOTH]


def _key_of(message: Any) -> Any:
    return message["key"] if isinstance(message, dict) else message[0]


def _context(
    local: frozenset[_Where] = frozenset(_PLACES), targets: tuple[str, ...] = _BY_KEY, *, is_observed: bool = False
) -> tuple[SubtaskContext, _Edges]:
    """A subtask with a hash edge to `b` or `d`, or a forward edge to `c`; those of `local` are in its own worker."""
    shapes = Shapes()

    def edge_to(target: str, count: int, chooser: Partitioner) -> OutputEdge:
        ends = {
            i: ChannelSender(ChannelId(_SOURCE, Subtask(target, i)), _CODEC, BackpressureFlag(), shapes=shapes)
            for i in range(count)
        }
        for i, end in ends.items():
            if (target, i) in local:
                end.take_objects()
        senders = {i: ObservedSender(end, Observer()) for i, end in ends.items()} if is_observed else ends
        return OutputEdge(_SOURCE, target, senders, chooser, (), None)

    made = {
        "b": edge_to("b", _WIDTH, HashPartitioner(_key_of, _WIDTH)),
        "d": edge_to("d", 1, HashPartitioner(_key_of, 1)),
        "c": edge_to("c", 1, partitioner(Partitioning.FORWARD, None, 0, 1)),
    }
    edges = tuple(made[target] for target in targets)
    context = SubtaskContext(
        run="r", incarnation=1, subtask=_SOURCE, parallelism=1, inputs=(), edges=edges, timers=Timers(),
        logger=logging.LoggerAdapter(logging.getLogger("test"), {}), chance=lambda: Random(1),
        ask_snapshot=lambda: None,
    )  # fmt: skip
    context.send_directly(_CODEC, shapes)
    return context, edges


def _ends_of(edges: _Edges) -> dict[_Where, ChannelSender]:
    return {
        (edge.target, i): end.end if isinstance(end, ObservedSender) else end
        for edge in edges
        for i, end in edge.ends.items()
    }


class _NotEncodable:
    def __reduce__(self) -> Any:
        raise TypeError("never leaves its process")


class _Text(str):
    """A subclass of an atom, which somebody can change."""


_KEYS = st.one_of(
    st.integers(-2, 5), st.sampled_from(["", "a", "bb"]), st.booleans(), st.none(), st.just(1.0), st.just([1]),
    st.tuples(st.integers(0, 2), st.text(max_size=1)), st.binary(max_size=1),
)  # fmt: skip
_VALUES = st.one_of(
    st.integers(), st.text(max_size=3), st.just((1, (2,))), st.just([1, [2]]), st.just({"x": (1,)}), st.just("y" * 400),
    st.builds(_NotEncodable), st.just(2**70), st.just(()), st.floats(), st.just("\ud800"), st.builds(bytearray),
    st.just(tuple(range(20))), st.just(_Text("t")),
)  # fmt: skip
_MESSAGES = st.one_of(
    st.tuples(_KEYS, _VALUES), st.lists(_VALUES, min_size=1, max_size=2), st.tuples(_KEYS, _VALUES, _VALUES),
    st.builds(lambda k, v: {"key": k, "v": v}, _KEYS, _VALUES), st.just(7), st.just(()), _VALUES,
)  # fmt: skip
_BATCH = pa.record_batch({"key": [1, 2, 3]})
_STEPS = st.one_of(
    st.builds(lambda message: ("send", message), _MESSAGES),
    st.builds(lambda message, count: ("send", *[message] * count), _MESSAGES, st.integers(2, 300)),
    st.builds(lambda message, index: ("send to", message, index), _MESSAGES, st.integers(0, _WIDTH)),
    st.builds(lambda messages: ("send all", messages * 50), st.lists(_MESSAGES, max_size=3)),
    st.sampled_from([("seal",), ("silence",), ("unsilence",), ("batch",)]),
)


def _do(context: SubtaskContext, edges: _Edges, step: Any) -> str:
    """Take a step; what it raised."""
    try:
        match step:
            case "send", *messages:
                for message in messages:
                    context.send(message)
            case "send to", message, index:
                context.send(message, Subtask(edges[0].target, index))
            case "send all", messages:
                context.sendAll(messages)
            case ("batch",):
                context.send(_BATCH)
            case ("seal",):
                for end in _ends_of(edges).values():
                    end.seal()
            case ("silence",):
                context.silence("snapshotState")
            case ("unsilence",):
                context.unsilence()
    except CutlineError as error:
        return f"{type(error).__name__}: {error}"
    return ""


def _read(frame: AnyFrame) -> list[Any]:
    messages = messages_of(frame, _CODEC)
    return messages.to_pylist() if isinstance(messages, pa.RecordBatch) else messages


def _typed(value: Any) -> Any:
    """A value with the types of all that it holds, for a comparison that knows 1 from True, and NaN from nothing."""
    if isinstance(value, list | tuple):
        return type(value), [_typed(each) for each in value]
    if isinstance(value, dict):
        return type(value), [(_typed(key), _typed(each)) for key, each in value.items()]
    return type(value), repr(value)


def _taken(edges: _Edges) -> dict[_Where, list[Any]]:
    """What each receiver gets, in order; each frame's encoding holds the same."""
    taken: dict[_Where, list[Any]] = {}
    for where, end in _ends_of(edges).items():
        end.seal()
        end.validate()
        assert not end.waiting_bytes or end.buffer.has_data
        taken[where] = []
        while (item := end.buffer.take()) is not None:
            assert not isinstance(item, Marker)
            messages = _read(item)
            assert len(messages) == item.count and item.size > 0
            assert _typed(_read(encoded_frame(item))) == _typed(messages)
            taken[where] += [_typed(message) for message in messages]
        assert not end.waiting_bytes
    return taken


@given(
    st.lists(_STEPS, max_size=20),
    st.frozensets(st.sampled_from(_PLACES)),
    st.sampled_from(_TARGETS),
)
def test_the_direct_way_is_the_ordinary_way(
    steps: list[Any], local: frozenset[_Where], targets: tuple[str, ...]
) -> None:
    """The same messages in the same order on the same channels, and the same errors, whatever is sent to wherever."""
    direct, ordinary = _context(local, targets), _context(frozenset(), targets, is_observed=True)
    for step in steps:
        assert _do(*direct, step) == _do(*ordinary, step), step
    assert _taken(direct[1]) == _taken(ordinary[1])


def test_a_silent_hook_is_named_before_a_wrong_key() -> None:
    """A message of a known shape whose key cannot be read is refused as any message of that hook is."""
    context, _ = _context(frozenset([("b", 0)]), ("b",))
    context.send(1, Subtask("b", 0))  # its shape is known then, although it has no key
    with pytest.raises(NodeError, match="key of"):
        context.send(7)
    context.silence("snapshotState")
    with pytest.raises(NodeError, match="snapshotState must not send"):
        context.send(7)


@given(_MESSAGES, st.booleans())
def test_placement_cannot_be_seen(message: Any, is_list: bool) -> None:
    """A local and a remote receiver get equal values of equal types, or none, though the sender changes what it can."""
    context, edges = _context(frozenset([("b", 0), ("c", 0)]), _BOTH)
    remote, remote_edges = _context(frozenset(), _BOTH)
    step = ("send all", [message] * 100) if is_list else ("send", message)
    assert _do(context, edges, step) == _do(remote, remote_edges, step)
    _change(message)
    assert _taken(edges) == _taken(remote_edges)


def _change(value: Any) -> None:
    if isinstance(value, list | bytearray):
        value.append(1)
    if isinstance(value, dict):
        value["changed"] = True
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        _change(each)


@pytest.mark.parametrize("targets", _TARGETS)
def test_a_send_kept_from_another_hook_is_silenced_too(targets: tuple[str, ...]) -> None:
    """Who keeps `context.send` cannot send from snapshotState through it."""
    context, edges = _context(targets=targets)
    for _ in range(2):  # key and shape are known then
        context.send(("a", 1))
    send = context.send
    context.silence("snapshotState")
    with pytest.raises(NodeError, match="snapshotState must not send"):
        send(("a", 2))
    context.unsilence()
    send(("a", 3))
    assert [len(each) for each in _taken(edges).values() if each] == [3] * len(targets)


@pytest.mark.parametrize("local", [frozenset(), frozenset(_PLACES)])
def test_a_message_too_large_is_refused_and_the_others_stay(local: frozenset[_Where]) -> None:
    """The direct way looks at what is large as soon as it is sent."""
    context, edges = _context(local)
    for _ in range(2):
        context.send(("a", b"small"))
    with pytest.raises(CutlineError, match="can be sent"):
        context.send(("a", bytes(MESSAGE_BYTES_MAX)))
    assert sum(map(len, _taken(edges).values())) == 2


@pytest.mark.parametrize("targets", _TARGETS)
def test_known_shapes_go_by_one_call(targets: tuple[str, ...]) -> None:
    """After the first message of a shape the ordinary way is not taken any more, neither by the context nor the end."""
    context, edges = _context(targets=targets)
    message = ("a", 1)
    context.send(message)
    context.send(message)
    for end in _ends_of(edges).values():
        end.send = None  # type: ignore[method-assign,assignment]
    assert type(context).send.__globals__["otherwise"]
    context.send(message)
    received = [each for end in _ends_of(edges).values() for each in end.objects.messages]
    assert len(received) == 3 * len(targets) and all(each is message for each in received)


def test_messages_without_a_pattern_are_encoded() -> None:
    """A subtask that sends many shapes pays for no check any more."""
    context, edges = _context(targets=_TO_ONE)
    for number in range(SHAPES_MAX + 2):
        context.send(((), *range(number)) if number < SHAPES_MAX - 1 else ({}, *range(number - 8)))
    [end] = _ends_of(edges).values()
    assert not end.objects.shapes.fits((1,)) and not end.objects.shapes.names()
    assert len(_taken(edges)["c", 0]) == SHAPES_MAX + 2
