"""One channel between two processes: messages, batches and round trips, beside the bare socket in turn with them.

Of streams the bare socket is measured with checksums too: a channel's frames have them, and a bare socket's bytes not.
Of round trips also with both sides busy for a moment, that time left out: they cost a waking each way, and that may
take longer where a side slept longer. For them each process has a core of its own: where both share one, a bare round
trip takes a third of the time, and how often the system lets them share it changes from minute to minute.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from benchmarks.channel_steps import (
    PING_PONG_WAYS,
    STREAM_WAYS,
    Step,
    Way,
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

#: Of one step: what the first and what the second process answered, each time.
Answers = list[tuple[Any, Any]]

#: None: small messages.
ROWS_PER_BATCH = (None, 1024, 8192, 65_536)


def measure(effort: Effort, place: Place) -> Iterator[Result]:
    """One result for small messages, one for each size of a batch, one for round trips."""
    kinds: list[tuple[bool, int | None]] = [(False, rows) for rows in ROWS_PER_BATCH] + [(True, None)]
    steps_of = {
        kind: [Step(way, *kind, effort.seconds) for way in (PING_PONG_WAYS if kind[0] else STREAM_WAYS)]
        for kind in kinds
    }
    steps = [step for _ in range(effort.repeats) for each in steps_of.values() for step in each]
    sockets = [socket.socketpair() for _ in steps]
    calls = [(all_steps, ([pair[side] for pair in sockets], steps, side == 0)) for side in (0, 1)]
    sent, taken = at_one_time(calls, effort.seconds * len(steps) + MARGIN_SECONDS)
    answers: dict[Step, Answers] = {step: [] for step in steps}
    for step, first, second in zip(steps, sent, taken, strict=True):
        answers[step].append((first, second))
    for (is_ping_pong, rows), each in steps_of.items():
        compared = {step.way: answers[step] for step in each}
        yield _round_trips(compared, effort) if is_ping_pong else _stream(rows, compared, effort)


def all_steps(sockets: Sequence[socket.socket], steps: Sequence[Step], is_first: bool) -> list[Any]:
    """One of the two processes."""
    answers, cores = [], sorted(os.sched_getaffinity(0))
    for sock, step in zip(sockets, steps, strict=True):
        os.sched_setaffinity(0, {cores[0 if is_first else -1]} if step.is_ping_pong else cores)
        answers.append(_act_of(step, is_first)(sock, step))
    return answers


def _act_of(step: Step, is_first: bool) -> Any:
    match step.way, step.is_ping_pong:
        case Way.CHANNEL, False:
            return send_stream if is_first else take_stream
        case _, False:
            return send_bytes if is_first else take_bytes
        case Way.CHANNEL, True:
            return ping if is_first else pong
        case _:
            return ping_bare if is_first else pong_bare


def _stream(rows_per_batch: int | None, answers: Mapping[Way, Answers], effort: Effort) -> Result:
    ours_bytes, bare_bytes, checked_bytes = (
        [taken.payload_bytes / (taken.at - sent.at) for sent, taken in answers[way]] for way in STREAM_WAYS
    )
    counts = [taken.messages / (taken.at - sent.at) for sent, taken in answers[Way.CHANNEL]]
    is_messages = rows_per_batch is None
    name, unit = ("messages_per_s", "messages/s") if is_messages else ("rows_per_s", "rows/s")
    return Result(
        "channel",
        {
            "payload": "messages" if is_messages else "arrow",
            "rows_per_batch": rows_per_batch,
            "pattern": "stream",
            **effort.configuration(),
        },
        {
            name: metric(unit, counts),
            "bytes_per_s": metric("bytes/s", ours_bytes),
            "bare_socket_bytes_per_s": metric("bytes/s", bare_bytes),
            "checked_socket_bytes_per_s": metric("bytes/s", checked_bytes),
        },
        {
            "bare_socket": paired_ratio(ours_bytes, bare_bytes),
            "checked_socket": paired_ratio(ours_bytes, checked_bytes),
        },
    )


def _round_trips(answers: Mapping[Way, Answers], effort: Effort) -> Result:
    channel, bare, busy = (
        metric_of_samples("us", [[seconds * 1e6 for seconds in sent] for sent, _ in answers[way]])
        for way in PING_PONG_WAYS
    )
    return Result(
        "channel",
        {"payload": "messages", "rows_per_batch": None, "pattern": "ping_pong", **effort.configuration()},
        {"round_trip_us": channel, "bare_socket_round_trip_us": bare, "busy_socket_round_trip_us": busy},
        {"bare_socket": channel.p50 / bare.p50, "busy_socket": channel.p50 / busy.p50},
    )
