"""`Context.sendAll` is `Context.send` for each message: the same messages on the same channels, in the same order."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cutline.snapshot.channel.channel_cuts import SentCut
from cutline.snapshot.channel.channel_sender import ChannelSender
from cutline.snapshot.channel.frame import Frame
from cutline.snapshot.channel.output_buffer import BackpressureFlag
from cutline.snapshot.channel.partitioning import partitioner
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.errors import CutlineError, NodeError
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.plan.declarations import Transform, TransformKind
from cutline.snapshot.plan.topology import Partitioning
from cutline.snapshot.subtask.context import SubtaskContext
from cutline.snapshot.subtask.observer import ObservedSender, Observer
from cutline.snapshot.subtask.output_edge import OutputEdge
from cutline.snapshot.subtask.timers import Timers
from tests.snapshot.hosted import values

_SOURCE = Subtask("a", 1)
_WIDTH = 3


def _key_of(message: Any) -> Any:
    return message["key"] if isinstance(message, dict) else message[0] if isinstance(message, tuple) else message


class _Peer:
    """A context with an edge of some spread to ``b`` and a rebalanced one to ``c``."""

    def __init__(
        self, partitioning: Partitioning, transforms: tuple[Transform, ...] = (), *, is_observed: bool = False
    ) -> None:
        codec = Codec()
        self.edges = [
            self._edge(codec, "b", partitioning, transforms, is_observed),
            self._edge(codec, "c", Partitioning.REBALANCE, (), is_observed),
        ]
        logger = logging.LoggerAdapter(logging.getLogger("test"), {})
        self.context = SubtaskContext(
            run="r", incarnation=1, subtask=_SOURCE, parallelism=_WIDTH, inputs=(), edges=tuple(self.edges),
            timers=Timers(), logger=logger, chance=lambda: Random(1), ask_snapshot=lambda: None,
        )  # fmt: skip

    @staticmethod
    def _edge(
        codec: Codec, to: str, partitioning: Partitioning, transforms: tuple[Transform, ...], is_observed: bool
    ) -> OutputEdge:
        ends = {i: ChannelSender(ChannelId(_SOURCE, Subtask(to, i)), codec, BackpressureFlag()) for i in range(_WIDTH)}
        senders = {i: ObservedSender(end, Observer()) for i, end in ends.items()} if is_observed else ends
        return OutputEdge(_SOURCE, to, senders, partitioner(partitioning, _key_of, 1, _WIDTH), transforms, None)

    @property
    def ends(self) -> Iterator[ChannelSender]:
        """All that leave the subtask."""
        senders = (sender for edge in self.edges for sender in edge.ends.values())
        return (sender.end if isinstance(sender, ObservedSender) else sender for sender in senders)

    def cut(self, snapshot_id: int) -> list[tuple[int, str]]:
        """What a snapshot saves of each channel: how many were sent, and those of them that wait."""
        cuts = []
        for end in self.ends:
            end.put_marker(snapshot_id, snapshot_id, aligned=False)
            end.validate()
            cut = end.buffer.settled(snapshot_id)
            assert isinstance(cut, SentCut)
            cuts.append((cut.sent, repr(values(cut.frames))))
        return cuts

    def taken(self) -> list[str]:
        """What can be taken of each channel, of which every marker is left out."""
        found = []
        for end in self.ends:
            end.seal()
            end.validate()
            items = iter(end.buffer.take, None)
            found.append(repr(values(tuple(item for item in items if isinstance(item, Frame)))))
        return found


class _NotEncodable:
    def __reduce__(self) -> Any:
        raise TypeError("never leaves its process")


class _Row(tuple[Any, ...]):
    """A kind of tuple, which is not a tuple."""


_SCALARS = st.one_of(
    st.integers(-2, 300), st.text(max_size=2), st.booleans(), st.none(), st.sampled_from([2**63, -(2**63), 2**64, 1.5])
)
_FLAT = st.builds(lambda key, rest: (key, *rest), st.integers(0, 5), st.lists(_SCALARS, max_size=3))
_NESTED = st.tuples(st.text(max_size=1), st.sampled_from([[1, [2]], (1, [2]), {"x": (1,)}, _Row((1, 2)), b"y" * 400]))
_DICTS = st.builds(lambda key, value: {"key": key, "v": value}, st.integers(0, 5), _SCALARS)
_BATCH = pa.record_batch({"key": [1, 2, 3]})
_ODD = st.sampled_from([7, "x", _BATCH, [1, 2], (1.0,), ("a", _NotEncodable()), {"key": {}}])
#: Lists as nodes have them: mostly of one kind, few or many.
_LISTS = st.builds(
    lambda some, times: some * times,
    st.one_of(
        st.lists(_FLAT, max_size=4), st.lists(_NESTED, max_size=3), st.lists(_DICTS, max_size=3),
        st.lists(st.one_of(_FLAT, _NESTED, _DICTS), max_size=4), st.lists(_ODD, max_size=2),
    ),
    st.sampled_from([1, 20, 60, 300]),
)  # fmt: skip
_STEPS = st.one_of(
    st.builds(lambda messages, to: ("all", messages, to), _LISTS, st.sampled_from([None, None, "b", Subtask("c", 2)])),
    st.builds(lambda message: ("one", message), st.one_of(_FLAT, _NESTED, _DICTS)),
    st.sampled_from([("seal",), ("cut",), ("take",), ("silence",)]),
)
_TRANSFORMS = st.sampled_from([(), (), (Transform(TransformKind.MAP, lambda message: ("mapped", message)),)])


def _do(peer: _Peer, number: int, step: Any, *, together: bool) -> Any:
    """Take a step; what can be seen of it."""
    context = peer.context
    match step:
        case "all", messages, to if together:
            context.sendAll(messages, to)
        case "all", messages, to:
            for message in messages:
                context.send(message, to)
        case "one", message:
            context.send(message)
        case ("seal",):
            for end in peer.ends:
                end.seal()
        case ("cut",):
            return peer.cut(number)
        case ("take",):
            return peer.taken()
        case ("silence",):
            context.silence("snapshotState")
            with pytest.raises(NodeError, match="snapshotState must not send"):
                context.sendAll([1], "b")
            context.unsilence()
    return [end.sent for end in peer.ends]


@given(
    st.sampled_from([s for s in Partitioning if s is not Partitioning.DIRECTED]),
    _TRANSFORMS,
    st.lists(_STEPS, max_size=8),
)
@example(Partitioning.FORWARD, (), [("one", {"key": 1}), ("all", [(1, 2)] * 50, None)])
@example(Partitioning.FORWARD, (), [("all", [_BATCH] * 50, "b")])
@example(Partitioning.HASH, (), [("one", (1,)), ("all", [(1.0,)] * 50, "b")])
def test_all_together_is_one_by_one(
    partitioning: Partitioning, transforms: tuple[Transform, ...], steps: list[Any]
) -> None:
    """The same messages, cuts and numbers, whatever is sent; what one way refuses, the other refuses too."""
    peers = [(_Peer(partitioning, transforms), True), (_Peer(partitioning, transforms), False)]
    for number, step in enumerate(steps, 1):
        seen = []
        for peer, together in peers:
            try:
                seen.append(_do(peer, number, step, together=together))
            except CutlineError as error:
                seen.append(type(error))
            for end in peer.ends:
                end.validate()
        assert seen[0] == seen[1], step
        if isinstance(seen[0], type):
            return
    assert peers[0][0].taken() == peers[1][0].taken()


def test_who_hears_messages_hears_each() -> None:
    """An end whose `send` was replaced gets every message through it."""
    peer = _Peer(Partitioning.FORWARD, is_observed=True)
    received: list[Any] = []
    for end in peer.ends:
        vars(end)["send"] = received.append
    messages = [("a", number) for number in range(100)]
    peer.context.sendAll(messages, "b")
    assert received == messages


def test_a_generator_may_yield_one_object_again_and_again() -> None:
    """What is no list is sent one by one: each message as it was when its turn came."""

    def rows() -> Iterable[dict[str, int]]:
        row = {"key": 0}
        for row["key"] in range(3):
            yield row

    peer = _Peer(Partitioning.FORWARD)
    peer.context.sendAll(rows(), "b")
    assert peer.taken()[1] == "[{'key': 0}, {'key': 1}, {'key': 2}]"


def test_what_is_wrong_is_named_as_if_sent_alone() -> None:
    """The message that cannot be encoded, or has no key, says so itself; those before it on its channel are sent."""
    peer = _Peer(Partitioning.HASH)
    with pytest.raises(NodeError, match=r"_NotEncodable cannot be pickled: .*never leaves its process"):
        peer.context.sendAll([("a", 1)] * 60 + [("a", _NotEncodable()), ("a", 2)], "b")
    assert sum(end.sent for end in list(peer.ends)[:_WIDTH]) == 60
    with pytest.raises(NodeError, match="a tuple cannot be spread: TypeError: float cannot be a key"):
        peer.context.sendAll([("b", 1)] * 60 + [(1.0, 1)], "b")
    with pytest.raises(NodeError, match="no edge to 'd'"):
        peer.context.sendAll([1], "d")
