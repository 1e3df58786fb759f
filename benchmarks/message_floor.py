"""What one message cannot cost less than, in Python, where it is taken by value when it is sent and handled alone.

Each step of its way by itself, in one process, with nothing around it: no frame, no socket, no snapshot, no loop of a
worker. Their sum is the floor of `keyed-messages`; the bare loop beside that one has none of the per-message calls. No
Spark and no Ray.
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
from snapshot.channel.frame import PayloadKind
from snapshot.channel.frame_codec import frame_of_pieces, messages_of
from snapshot.channel.serialization import Codec

#: Bursts in a frame, about what a sending end seals.
_FRAME_BURSTS = 16


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
    codec, key_of = Codec(), itemgetter(0)
    pack, count = codec.pack, len(table) * BURST_MESSAGES
    places = {key_of(message): 0 for burst in table for message in burst}
    frames = [
        frame_of_pieces(1, PayloadKind.TUPLES, [pack([*m]) for burst in table[at : at + _FRAME_BURSTS] for m in burst])
        for at in range(0, len(table), _FRAME_BURSTS)
    ]
    decoded = [messages_of(frame, codec) for frame in frames]

    def send(message: Any) -> None:
        """What the node calls; all it does is be called."""

    def call() -> int:
        for burst in table:
            for message in burst:
                send(message)
        return count

    def choose() -> int:
        for burst in table:
            for message in burst:
                places.get(key_of(message))
        return count

    def encode() -> int:
        for burst in table:
            pieces: list[bytes] = []
            for message in burst:
                pieces.append(pack([*message]))
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
    return {"call": call, "choose": choose, "encode": encode, "decode": decode, "handle": handle}


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
