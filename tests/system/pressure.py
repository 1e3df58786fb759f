"""A job whose sink is slower than its source, and how long one snapshot of it takes."""

from __future__ import annotations

import time
from typing import Any, Literal, NamedTuple

from benchmarks.live import DEADLINE_S, Live, wait_for
from cutline import Context, Graph, Node, Run, Sink, Source

#: What the sink takes for a message.
MESSAGE_SECONDS = 0.001
#: Payload of a message: a window of credits (1 MiB) holds about 500 of them, half a second of the sink's work.
MESSAGE_BYTES = 2048


class _Flood(Source):
    """Sends as fast as the channels take it, without an end."""

    def poll(self, context: Context) -> float | None:
        context.send(bytes(MESSAGE_BYTES))
        return None


class _Pass(Node):
    """Passes on."""

    def onMessage(self, message: Any, context: Context) -> None:
        context.send(message)


class _Slow(Sink):
    """Takes `MESSAGE_SECONDS` for a message."""

    def onMessage(self, message: Any, context: Context) -> None:
        time.sleep(MESSAGE_SECONDS)


class Pressure(NamedTuple):
    """One snapshot under back-pressure."""

    seconds: float
    messages_in_flight: int
    snapshot_bytes: int
    #: as the run reports it
    align_seconds: float
    #: back-pressure of the two edges before the snapshot
    held_up: tuple[float, ...]


def measure(live: Live, alignment: Literal["unaligned", "aligned"]) -> Pressure:
    """Fill all channels, take one snapshot, and stop."""
    graph = Graph(f"pressure-{alignment}").add("flood", _Flood()).add("middle", _Pass()).add("slow", _Slow())
    graph.connect("flood", "middle").connect("middle", "slow")
    run = live.run(graph, workers=3, snapshotInterval=None, alignment=alignment)
    wait_for("full channels", lambda: _is_stalled(run))
    held_up = tuple(edge["backPressure"] for edge in run.status["edges"])
    started = time.perf_counter()
    snapshot = run.takeSnapshot(timeout=DEADLINE_S)
    seconds = time.perf_counter() - started
    channels = [snapshot.channel(channel.source, channel.target) for channel in snapshot.channels]
    report = run.status["snapshotReports"][-1]
    run.stop()
    in_flight = sum(each.sent - each.processed for each in channels)
    assert (report["channelMessages"], report["bytes"]) == (in_flight, snapshot.size)
    return Pressure(seconds, in_flight, snapshot.size, report["alignMs"] / 1e3, held_up)


def _is_stalled(run: Run) -> bool:
    """The middle has been held up by the sink for a while: it sends no more than the sink takes."""
    recent = [report["progress"] for report in run.recentProgress[-8:]]
    if len(recent) < 8:
        return False
    sent = recent[-1]["sent"].get("flood", 0) - recent[0]["sent"].get("flood", 0)
    done = recent[-1]["processed"].get("slow", 0) - recent[0]["processed"].get("slow", 0)
    return bool(done > 0 and sent <= 1.5 * done)
