"""One channel between two processes: messages, batches and round trips, beside the bare socket in turn with them."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks.channel_steps import (
    Step,
    Streamed,
    ping,
    ping_bare,
    pong,
    pong_bare,
    send_bytes,
    send_stream,
    take_bytes,
    take_stream,
)
from benchmarks.effort import Effort
from benchmarks.processes import at_one_time
from benchmarks.result import Result, metric, metric_of_samples, paired_ratio
from benchmarks.session import Place
from benchmarks.timed_run import MARGIN_SECONDS

#: None: small messages.
ROWS_PER_BATCH = (None, 1024, 8192, 65_536)

Pair = tuple[Step, Step]


def measure(effort: Effort, place: Place) -> Iterator[Result]:
    """One result for small messages, one for each size of a batch, one for round trips."""
    kinds: list[tuple[bool, int | None]] = [(False, rows) for rows in ROWS_PER_BATCH] + [(True, None)]
    pairs: list[Pair] = [
        (Step(True, is_ping_pong, rows, effort.seconds), Step(False, is_ping_pong, rows, effort.seconds))
        for is_ping_pong, rows in kinds
    ]
    steps = [step for _ in range(effort.repeats) for pair in pairs for step in pair]
    sockets = [socket.socketpair() for _ in steps]
    calls = [(all_steps, ([pair[side] for pair in sockets], steps, side == 0)) for side in (0, 1)]
    sent, taken = at_one_time(calls, effort.seconds * len(steps) + MARGIN_SECONDS)
    for channel, bare in pairs:
        ours = [answers for step, *answers in zip(steps, sent, taken, strict=True) if step == channel]
        theirs = [answers for step, *answers in zip(steps, sent, taken, strict=True) if step == bare]
        yield _round_trips(ours, theirs, effort) if channel.is_ping_pong else _stream(channel, ours, theirs, effort)


def all_steps(sockets: Sequence[socket.socket], steps: Sequence[Step], is_first: bool) -> list[Any]:
    """One of the two processes."""
    return [_act_of(step, is_first)(sock, step) for sock, step in zip(sockets, steps, strict=True)]


def _act_of(step: Step, is_first: bool) -> Any:
    match step.is_channel, step.is_ping_pong:
        case True, False:
            return send_stream if is_first else take_stream
        case False, False:
            return send_bytes if is_first else take_bytes
        case True, True:
            return ping if is_first else pong
        case _:
            return ping_bare if is_first else pong_bare


def _stream(step: Step, ours: list[list[Streamed]], theirs: list[list[Streamed]], effort: Effort) -> Result:
    ours_bytes = [taken.payload_bytes / (taken.at - sent.at) for sent, taken in ours]
    bare_bytes = [taken.payload_bytes / (taken.at - sent.at) for sent, taken in theirs]
    counts = [taken.messages / (taken.at - sent.at) for sent, taken in ours]
    is_messages = step.rows_per_batch is None
    name, unit = ("messages_per_s", "messages/s") if is_messages else ("rows_per_s", "rows/s")
    return Result(
        "channel",
        {
            "payload": "messages" if is_messages else "arrow",
            "rows_per_batch": step.rows_per_batch,
            "pattern": "stream",
            **effort.configuration(),
        },
        {
            name: metric(unit, counts),
            "bytes_per_s": metric("bytes/s", ours_bytes),
            "bare_socket_bytes_per_s": metric("bytes/s", bare_bytes),
        },
        {"bare_socket": paired_ratio(ours_bytes, bare_bytes)},
    )


def _round_trips(ours: list[list[Any]], theirs: list[list[Any]], effort: Effort) -> Result:
    channel = metric_of_samples("us", [[seconds * 1e6 for seconds in sent] for sent, _ in ours])
    bare = metric_of_samples("us", [[seconds * 1e6 for seconds in sent] for sent, _ in theirs])
    return Result(
        "channel",
        {"payload": "messages", "rows_per_batch": None, "pattern": "ping_pong", **effort.configuration()},
        {"round_trip_us": channel, "bare_socket_round_trip_us": bare},
        {"bare_socket": channel.p50 / bare.p50},
    )
