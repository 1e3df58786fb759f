"""Measure a channel between two processes: messages, batches and round trips, in turn with a plain socket.

Streams are compared with a plain socket with checksums too, because frames of a channel have checksums. Round trips are
compared with a plain socket at which both sides are busy for a moment before they send. A side that slept longer may
wake more slowly. The busy moment is left out of the figure. Each process of a round trip has its own core. Where both
share one core, a plain round trip takes a third of the time. The system lets them share a core only now and then.

Round trips (Intel Xeon). A hop is a poll, a receive and a write. With everything in the caches of one process a hop
takes 8.5 us. Each side sleeps until its peer wakes it. A plain round trip took 5 to 7 us with both processes on one
core, and 11 to 16 on two. With each side busy for 2 to 10 us before it sent, a plain round trip took 15 to 30. A single
Python function that packs, sums up, sends, receives and checks the same bytes takes 20 to 21 us. A plain socket then
takes 14 to 15, and a channel 39 to 41.

Clocks in both processes split a hop. From the write until the peer is awake take 5 to 6 us, and from there to the
peer's own write 15.6 us. The second part is twice the time of the same steps without a sleep between them. All steps
are slower alike. Receive takes 0.6 and 1.7 us, split the stream 1.6 and 3.2, and decode 0.8 and 1.6. Seal takes 1.2 and
1.8, and make a header 1.9 and 2.6. A single process with a sleep of 1 us before each hop took 16 us instead of 9. A
copy of 1 MiB instead of the sleep had the same effect. A wait of 20 us without sleep changed nothing. So cold caches
after the sleep cost the time, not the waking.

Experiments on a hop in one process (medians of several runs, in turn with the version before):

* Use no enum where a frame passes: ``flags & socket.MSG_CTRUNC`` makes an enum member, which takes 1.7 us instead of
  0.06. Read a header once instead of three times. Make frames msgspec structs, which take a quarter of the time of a
  named tuple. 21 to 12.7 us.
* Make fewer calls: read markers only where there are markers, and take a payload with its header at once. 12.7 to 11.2.
* Announce shared memory with the first bytes of a link. Later reads then need no room for a descriptor, which took 1.1
  us. Write a single frame without a loop. 11.6 to 9.3.
* Split a stream into frames with one call a read, not three a frame. Handle socket errors around the loops. 9.3 to 8.5,
  and 42.4 to 40.6 us for a round trip of two processes (medians of 18, in turn, as all that follow).
* Join a frame up to 4 KiB with its header instead of gathering them: 39.8 us.
* Save a function around the checksum, and compare the incarnation in the reader: 39.2 us.
* Give frames from the reader to the link one by one: no gain (40.2 and 41.0), rejected.
* Write out the properties that links read, and seal a frame in place: 0.5 us, rejected because both would know each
  other's insides.
* Poll for up to 0.1 ms before sleeping: a round trip of 60 us fell to 35 to 50. Rejected because that is busy waiting.
* Write out four more calls in place, each alone: 0 to 0.2 us, rejected.

Batches. Between workers of a host a large payload goes through memory that both map (`channels/shared_memory.py`). The
sender encodes a batch into that memory, and the receiver copies it out. Both compute its checksum. Over the socket
alone a channel had 0.50 to 0.65 of a plain socket. Of the sender's time 35 to 40 % was the copy of the kernel, and 13 %
the copy into the frame. The waking of the receiver took 7 %, the checksum 5 %, and the interpreter 25 %. Batches sent
by reference had 0.68. References were rejected, because a sender that reuses its NumPy memory could change what a
snapshot holds.

On the Xeon a plain socket moves 6 to 7 GB/s, twice as much as on the EPYC. While the sender copied each frame into a
ring, a channel moved 3.3 to 3.6 GB/s. A MiB then took 306 us: 81 to encode, 74 to copy, 28 for the checksum, and 120
for small steps with cold caches. A MiB now takes 160 to 220 us.

Experiments on a stream of 64 Ki rows (in turn with the version before):

* Encode in the memory that the receiver reads: 0.52 to 0.72 of a plain socket. A place is reused when its payload was
  read and nothing refers to it. So a snapshot still holds the output buffer by reference.
* Write all waiting frames in one call. `pump` stopped after a MiB, and two frames waited until they were in no cache.
  The checksum fell from 51 to 31 us.
* Copy received batches into the memory of Arrow. The C library returned freed memory to the system, and had 80 pages
  cleared for each MiB. Copy and checksum fell from 220 to 110 us when that happened.
* Read the schema of an edge once, and compute the size of a stream. Read `nbytes` only of batches that could be too
  large. 23 us less for the receiver, 23 for the sender. All four together: 0.72 to between 0.83 and 0.93.
* Use one function that encodes, sums up, copies out and decodes, without channel ends and credit: 0.9 to 1.3.
* Use rings of 2 to 8 MiB, or copies past the cache, before these changes: no gain, rejected.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from benchmarks.channel_steps import (
    PING_PONG_WAYS,
    STREAM_WAYS,
    Step,
    Way,
    ping,
    ping_baseline,
    pong,
    pong_baseline,
    receive_bytes,
    receive_stream,
    send_bytes,
    send_stream,
)
from benchmarks.processes import at_one_time
from benchmarks.result import Result, metric, metric_of_samples, paired_ratio
from benchmarks.run_size import MARGIN_SECONDS, Cases, Configuration, RunSize, show_progress
from benchmarks.session import Place

#: answers of the first and of the second process to a step, one of each round
Answers = list[tuple[Any, Any]]


class Case(NamedTuple):
    """Parameters of one configuration."""

    #: rows of a batch, or None for small messages
    rows_per_batch: int | None
    is_ping_pong: bool = False


class Turn(NamedTuple):
    """A step of a case in a round."""

    round: int
    case: Case
    step: Step


CASES = (*(Case(rows) for rows in (None, 1024, 8192, 65_536)), Case(None, is_ping_pong=True))


def configurations(size: RunSize) -> Cases:
    """Return one case for small messages, one for each size of a batch, one for round trips."""
    return {
        case: {
            "payload": "messages" if case.rows_per_batch is None else "arrow",
            "rows_per_batch": case.rows_per_batch,
            "pattern": "ping_pong" if case.is_ping_pong else "stream",
            **size.configuration(),
        }
        for case in CASES
    }


def measure(cases: Cases, size: RunSize, place: Place) -> Iterator[Result]:
    """Yield one result for each case."""
    turns = [
        Turn(number, case, Step(way, case.is_ping_pong, case.rows_per_batch, size.seconds))
        for number in range(1, size.repeats + 1)
        for case in cases
        for way in (PING_PONG_WAYS if case.is_ping_pong else STREAM_WAYS)
    ]
    sockets = [socket.socketpair() for _ in turns]
    calls = [(all_steps, ([pair[side] for pair in sockets], turns, side == 0, cases)) for side in (0, 1)]
    sent, received = at_one_time(calls, size.seconds * len(turns) + MARGIN_SECONDS)
    answers: dict[Case, dict[Way, Answers]] = {case: {} for case in cases}
    for turn, first, second in zip(turns, sent, received, strict=True):
        answers[turn.case].setdefault(turn.step.way, []).append((first, second))
    for case, configuration in cases.items():
        yield (_round_trips if case.is_ping_pong else _stream)(configuration, answers[case])


def all_steps(sockets: Sequence[socket.socket], turns: Sequence[Turn], is_first: bool, cases: Cases) -> list[Any]:
    """Run all steps in one of the two processes, and return its answers."""
    answers, cores = [], sorted(os.sched_getaffinity(0))
    for sock, (number, case, step) in zip(sockets, turns, strict=True):
        if is_first and step.way is Way.CHANNEL:
            show_progress("channel", cases[case], number, turns[-1].round)
        os.sched_setaffinity(0, {cores[0 if is_first else -1]} if step.is_ping_pong else cores)
        answers.append(_act_of(step, is_first)(sock, step))
    return answers


def _act_of(step: Step, is_first: bool) -> Any:
    match step.way, step.is_ping_pong:
        case Way.CHANNEL, False:
            return send_stream if is_first else receive_stream
        case _, False:
            return send_bytes if is_first else receive_bytes
        case Way.CHANNEL, True:
            return ping if is_first else pong
        case _:
            return ping_baseline if is_first else pong_baseline


def _stream(configuration: Configuration, answers: Mapping[Way, Answers]) -> Result:
    ours_bytes, baseline_bytes, checked_bytes = (
        [received.payload_bytes / (received.at - sent.at) for sent, received in answers[way]] for way in STREAM_WAYS
    )
    counts = [received.messages / (received.at - sent.at) for sent, received in answers[Way.CHANNEL]]
    is_messages = configuration["payload"] == "messages"
    name, unit = ("messages_per_s", "messages/s") if is_messages else ("rows_per_s", "rows/s")
    metrics = {
        name: metric(unit, counts),
        "bytes_per_s": metric("bytes/s", ours_bytes),
        "bare_socket_bytes_per_s": metric("bytes/s", baseline_bytes),
        "checked_socket_bytes_per_s": metric("bytes/s", checked_bytes),
    }
    ratios = {
        "bare_socket": paired_ratio(ours_bytes, baseline_bytes),
        "checked_socket": paired_ratio(ours_bytes, checked_bytes),
    }
    return Result("channel", configuration, metrics, ratios)


def _round_trips(configuration: Configuration, answers: Mapping[Way, Answers]) -> Result:
    channel, baseline, busy = (
        metric_of_samples("us", [[seconds * 1e6 for seconds in sent] for sent, _ in answers[way]])
        for way in PING_PONG_WAYS
    )
    metrics = {"round_trip_us": channel, "bare_socket_round_trip_us": baseline, "busy_socket_round_trip_us": busy}
    ratios = {"bare_socket": channel.p50 / baseline.p50, "busy_socket": channel.p50 / busy.p50}
    return Result("channel", configuration, metrics, ratios)
