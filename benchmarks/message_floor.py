"""What one message cannot cost less than, in Python, where it is sent in lists and handled alone.

Each step of its way by itself, in one process, with nothing around it: no frame, no socket, no snapshot, no loop of a
worker. Their sum is the floor of `keyed-messages`; the bare loop beside that one does not share out by key and handles
messages without a call. No Spark and no Ray.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any

from benchmarks.effort import Effort
from benchmarks.keyed_nodes import RunningSum
from benchmarks.keyed_rows import BURST_MESSAGES, bursts, require_equal, sums_of_bursts
from benchmarks.result import Result, metric
from benchmarks.session import Place
from snapshot.channel.frame import Frame, PayloadKind
from snapshot.channel.frame_codec import encoded_together, messages_of
from snapshot.channel.gate import Gate
from snapshot.channel.sending_end import SendingEnd
from snapshot.channel.serialization import Codec
from snapshot.channel.spread import HashPartitioner
from snapshot.ids import ChannelId, Subtask

_TARGETS = 2


def measure(effort: Effort, place: Place) -> Iterator[Result]:
    """One result: nanoseconds of each step, and the rate of a core that does nothing else."""
    table = bursts()
    steps = _steps(table)
    share = effort.seconds / len(steps)
    samples = [{name: _nanoseconds(step, share) for name, step in steps.items()} for _ in range(effort.repeats)]
    sums = [sum(sample.values()) for sample in samples]
    metrics = {f"{name}_ns": metric("ns", [sample[name] for sample in samples]) for name in steps}
    metrics["sum_ns"] = metric("ns", sums)
    metrics["messages_per_s"] = metric("messages/s", [1e9 / each for each in sums])
    yield Result("message-floor", {"payload": "messages", **effort.configuration()}, metrics, {})


def _steps(table: list[list[Any]]) -> dict[str, Callable[[], int]]:
    """Each goes over the whole table once and returns how many messages that were."""
    codec, hashed = Codec(), HashPartitioner(itemgetter(0), _TARGETS)
    count = len(table) * BURST_MESSAGES
    shares = [share for burst in table for _, share in hashed.share(burst)]
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
    """As a sending end fills them."""
    end = SendingEnd(ChannelId(Subtask("records"), Subtask("sums")), codec, Gate())
    for share in shares:
        end.send_all(share, are_tuples=True)
    end.seal()
    return [item for item in iter(end.take, None) if isinstance(item, Frame)]


def _encoded(messages: list[Any], codec: Codec) -> tuple[PayloadKind, bytes]:
    encoded = encoded_together(messages, codec, are_tuples=True)
    assert encoded is not None
    return encoded


def _nanoseconds(step: Callable[[], int], seconds: float) -> float:
    """Processor time of one message, the best of many rounds: a floor, so what others took does not count."""
    until, best = time.monotonic() + seconds, float("inf")
    gc.disable()  # in a worker it is calm
    try:
        while True:
            began_at = time.process_time_ns()
            count = step()
            best = min(best, (time.process_time_ns() - began_at) / count)
            if time.monotonic() >= until:
                return best
    finally:
        gc.enable()
