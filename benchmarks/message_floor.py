"""Measure each step of a message alone, in one process: the least that a message costs in Python.

Messages are sent in lists and processed one by one. No frame, socket, snapshot or worker loop is around the steps. So
their sum is a lower limit for `keyed-messages`. The baseline loop of `keyed-messages` can be faster, because the loop
does not split by key and processes messages without a call. Spark and Ray are not needed.

A measurement, in an hour in which an empty call took 53 ns (26 ns in another hour). A message took 107 ns to split by
key, and 72 to check that its tuple is flat. A message took 24 ns to encode, 71 to decode, and 140 to process. A message
sent alone took 520 ns up to its decoding.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any

from benchmarks.keyed_nodes import RunningSum
from benchmarks.keyed_rows import BURST_MESSAGES, bursts, require_equal, sums_of_bursts
from benchmarks.result import Result, metric
from benchmarks.run_size import Cases, RunSize
from benchmarks.session import Place
from cutline.snapshot.channel.channel_sender import ChannelSender
from cutline.snapshot.channel.frame import Frame, PayloadKind
from cutline.snapshot.channel.frame_codec import encoded_together, messages_of
from cutline.snapshot.channel.output_buffer import BackpressureFlag
from cutline.snapshot.channel.partitioning import HashPartitioner
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.ids import ChannelId, Subtask

_TARGETS = 2


def configurations(size: RunSize) -> Cases:
    """Return the only case."""
    return {"messages": {"payload": "messages", **size.configuration()}}


def measure(cases: Cases, size: RunSize, place: Place) -> Iterator[Result]:
    """Yield one result: nanoseconds of each step, and the rate of a core that does nothing else."""
    table = bursts()
    steps = _steps(table)
    share = size.seconds / len(steps)
    samples = [{name: _nanoseconds(step, share) for name, step in steps.items()} for _ in range(size.repeats)]
    sums = [sum(sample.values()) for sample in samples]
    metrics = {f"{name}_ns": metric("ns", [sample[name] for sample in samples]) for name in steps}
    metrics["sum_ns"] = metric("ns", sums)
    metrics["messages_per_s"] = metric("messages/s", [1e9 / each for each in sums])
    yield Result("message-floor", cases["messages"], metrics)


def _steps(table: list[list[Any]]) -> dict[str, Callable[[], int]]:
    """Return the steps. Each runs once over the whole table, and returns the number of messages."""
    codec, hashed = Codec(), HashPartitioner(itemgetter(0), _TARGETS)
    count = len(table) * BURST_MESSAGES
    shares = [share for burst in table for _, share, _ in hashed.share(burst)]
    frames = _frames(shares, codec)
    decoded = [messages_of(frame, codec) for frame in frames]

    def share() -> int:
        for burst in table:
            hashed.share(burst)
        return count

    def encode() -> int:
        for share in shares:
            _encoded(share, codec)
        return count

    def decode() -> int:
        for frame in frames:
            messages_of(frame, codec)
        return count

    node = RunningSum()

    def handle() -> int:
        on_message: Callable[[Any, Any], None] = node.onMessage
        for messages in decoded:
            for message in messages:
                on_message(message, None)
        return count

    handle()
    require_equal("message-floor", node.sums, sums_of_bursts([len(table)]))
    return {"share": share, "encode": encode, "decode": decode, "handle": handle}


def _frames(shares: list[list[Any]], codec: Codec) -> list[Frame]:
    """Return frames as a channel sender fills them."""
    end = ChannelSender(ChannelId(Subtask("records"), Subtask("sums")), codec, BackpressureFlag())
    for share in shares:
        end.send_all(share, are_tuples=True)
    end.seal()
    return [item for item in iter(end.buffer.take, None) if isinstance(item, Frame)]


def _encoded(messages: list[Any], codec: Codec) -> tuple[PayloadKind, bytes]:
    encoded = encoded_together(messages, codec, are_tuples=True)
    assert encoded is not None
    return encoded


def _nanoseconds(step: Callable[[], int], seconds: float) -> float:
    """Measure processor time of one message. The best of many rounds counts, because the figure is a floor."""
    until, best = time.monotonic() + seconds, float("inf")
    gc.disable()  # because the collector of a worker rarely runs
    try:
        while True:
            began_at = time.process_time_ns()
            count = step()
            best = min(best, (time.process_time_ns() - began_at) / count)
            if time.monotonic() >= until:
                return best
    finally:
        gc.enable()
