"""Measure one hop between two subtasks of one worker: send, frame, take, and a hook that does nothing.

Everything runs in one process and is warm. No turn, snapshot or worker loop is around the steps. Spark and Ray are not
needed. A call of the same hook without anything around it is the limit.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Iterator
from functools import partial
from operator import itemgetter
from random import Random
from typing import Any

from benchmarks.result import Result, metric
from benchmarks.run_size import Cases, RunSize
from benchmarks.session import Place
from cutline import Context, Node
from cutline.channels.limits import CREDIT_WINDOW_BYTES
from cutline.snapshot.channel.channel_receiver import ChannelReceiver
from cutline.snapshot.channel.channel_sender import ChannelSender
from cutline.snapshot.channel.frame import Marker
from cutline.snapshot.channel.frame_codec import encoded_frame
from cutline.snapshot.channel.object_frame import AnyFrame
from cutline.snapshot.channel.output_buffer import BUFFER_BYTES_MAX, BackpressureFlag
from cutline.snapshot.channel.partitioning import HashPartitioner, partitioner
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.channel.shapes import Shapes
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.plan.topology import Partitioning
from cutline.snapshot.subtask.context import SubtaskContext
from cutline.snapshot.subtask.input_processor import InputProcessor
from cutline.snapshot.subtask.output_edge import OutputEdge
from cutline.snapshot.subtask.timers import Timers

_SOURCE = Subtask("source")
_MESSAGES = [(f"word {number % 100}", number) for number in range(1_000)]
_key_of: Callable[[Any], Any] = itemgetter(0)


class _Nothing(Node):
    def onMessage(self, message: Any, context: Context) -> None:
        pass


class _Hop:
    """A subtask with `edges` outgoing edges, and a target of each in the same worker."""

    def __init__(self, edges: int, *, keyed: bool = False) -> None:
        shapes, codec = Shapes(), Codec()
        self.senders = [
            ChannelSender(ChannelId(_SOURCE, Subtask(f"target {n}")), codec, BackpressureFlag(), shapes=shapes)
            for n in range(edges)
        ]
        for sender in self.senders:
            sender.take_objects()
        chooser = HashPartitioner(_key_of, 1) if keyed else partitioner(Partitioning.FORWARD, None, 0, 1)
        made = tuple(
            OutputEdge(_SOURCE, sender.channel.target.node, {0: sender}, chooser, (), None) for sender in self.senders
        )
        self._context = _context(_SOURCE, made)
        self._context.send_directly(codec, shapes)
        self._inputs = [
            InputProcessor(
                ChannelReceiver(sender.channel), _Nothing(), _context(sender.channel.target, ()), BackpressureFlag(),
                codec, key_of=_key_of if keyed else None, schema=None, isolation=None,
            )
            for sender in self.senders
        ]  # fmt: skip

    def send(self) -> None:
        """Send all messages along each edge."""
        send = self._context.send
        for message in _MESSAGES:
            send(message)

    def run(self) -> None:
        """Send all messages, and handle them."""
        self.send()
        for sender, taken in zip(self.senders, self._inputs, strict=True):
            for frame in frames_of(sender):
                taken.end.deliver(frame)
                taken.handle(frame, frame.count)


def frames_of(sender: ChannelSender) -> Iterator[AnyFrame]:
    """Seal the open frame, and take all frames."""
    sender.seal()
    while (frame := sender.buffer.take()) is not None:
        assert not isinstance(frame, Marker)
        yield frame


def full_channel() -> list[AnyFrame]:
    """Return the frames of a channel on which the receiver's window and the output buffer are full."""
    hop, frames, size = _Hop(1), list[AnyFrame](), 0
    while size < CREDIT_WINDOW_BYTES + BUFFER_BYTES_MAX:
        hop.send()
        for frame in frames_of(hop.senders[0]):
            frames.append(frame)
            size += frame.size
    return frames


def configurations(size: RunSize) -> Cases:
    """Return the only case."""
    return {"hops": {"payload": "messages", **size.configuration()}}


def measure(cases: Cases, size: RunSize, place: Place) -> Iterator[Result]:
    """Yield one result: nanoseconds of a hop with one and two edges, and milliseconds to encode a full channel."""
    frames = full_channel()
    steps: dict[str, Callable[[], object]] = {
        "call": _call,
        "hop": _Hop(1).run,
        "two_edges": _Hop(2).run,
        "keyed_hop": _Hop(1, keyed=True).run,
        "cut_encoding": lambda: [encoded_frame(frame) for frame in frames],
    }
    samples = [
        {name: _seconds(step, size.seconds / len(steps)) for name, step in steps.items()} for _ in range(size.repeats)
    ]
    metrics = {
        f"{name}_ns": metric("ns", [sample[name] / len(_MESSAGES) * 1e9 for sample in samples])
        for name in ("call", "hop", "two_edges", "keyed_hop")
    }
    metrics["cut_encoding_ms"] = metric("ms", [sample["cut_encoding"] * 1e3 for sample in samples])
    metrics["cut_messages"] = metric("messages", [sum(frame.count for frame in frames)])
    yield Result("hops", cases["hops"], metrics)


def _call() -> None:
    """Call the hook for each message."""
    call, context = _Nothing().onMessage, _context(_SOURCE, ())
    for message in _MESSAGES:
        call(message, context)


def _seconds(step: Callable[[], object], share: float) -> float:
    """Return the least seconds of one run of a step, because whatever else runs only adds to it."""
    step()
    gc.collect()
    gc.disable()
    try:
        least, end = float("inf"), time.perf_counter() + share
        while (began := time.perf_counter()) < end:
            step()
            least = min(least, time.perf_counter() - began)
    finally:
        gc.enable()
    return least


def _context(subtask: Subtask, edges: tuple[OutputEdge, ...]) -> SubtaskContext:
    return SubtaskContext(
        run="hops", incarnation=1, subtask=subtask, parallelism=1, inputs=(), edges=edges, timers=Timers(),
        logger=logging.LoggerAdapter(logging.getLogger("benchmarks.hops"), {}), chance=partial(Random, 1),
        ask_snapshot=lambda: None,
    )  # fmt: skip
