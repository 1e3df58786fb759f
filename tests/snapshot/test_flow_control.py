"""Full buffers: a subtask waits for them, and a cycle spills instead, but lets nobody drown it (PROTOCOL 9)."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from cutline.snapshot.channel.channel_receiver import ChannelReceiver
from cutline.snapshot.channel.channel_sender import ChannelSender
from cutline.snapshot.channel.output_buffer import OutputBuffer
from cutline.snapshot.graph import Graph
from cutline.snapshot.node import Context, End, Node, Source
from cutline.snapshot.subtask.events import SnapshotRequested
from cutline.snapshot.subtask.turns import LiveTurns
from cutline.snapshot.testing.simulation.host import MemorySpill
from tests.snapshot.hosted import Hosted, values

_MESSAGES = 50


@pytest.fixture(autouse=True)
def _small_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[OutputBuffer.__module__], "BUFFER_BYTES_MAX", 100)
    monkeypatch.setattr(sys.modules[OutputBuffer.__module__], "BUFFER_FRAMES_MIN", 1)
    monkeypatch.setattr(sys.modules[ChannelSender.__module__], "FRAME_BYTES_TARGET", 50)


class Pump(Source):
    """Sends for ever."""

    def poll(self, context: Context) -> float | End | None:
        context.send("x" * 60)
        return None


class Relay(Node):
    """Passes on what comes."""

    def onMessage(self, message: Any, context: Context) -> None:
        context.send(message)


class Take(Node):
    """Takes anything."""

    def onMessage(self, message: Any, context: Context) -> None:
        pass


def test_a_full_buffer_stops_its_subtask() -> None:
    """PROTOCOL 9.1: no next event and no poll, until something is taken; a snapshot is not held up."""
    hosted = Hosted(Graph("g").add("a", Pump()).add("b", Relay()).add("c", Take()).connect("a", "b").connect("b", "c"))
    for _ in range(_MESSAGES):
        hosted["a"].run(0.0, 10)
    (out,) = hosted["a"].outputs.values()
    assert out.sent == 2
    hosted["a"].step(SnapshotRequested(1, (), 1), 0.0)
    hosted.carry("a", "b", 2)
    hosted["a"].run(0.0, 10)
    assert out.sent == 3
    assert not hosted["a"].runnable


def pumped(*, spills: bool = True) -> Hosted:
    """A source that has pumped for a while into a cycle b -> c -> b in which c stands still."""
    graph = Graph("g").add("a", Pump()).add("b", Relay()).add("c", Relay())
    graph.connect("a", "b").connect("b", "c").connect("c", "b")
    hosted = Hosted(graph, spill_of=lambda channel: MemorySpill() if spills else None)
    for _ in range(_MESSAGES):
        hosted["a"].run(0.0, 10)
        hosted.carry("a", "b")
        hosted["b"].run(0.0, 10)
    return hosted


def spilled_frames(hosted: Hosted) -> int:
    """Frames on disk."""
    ends = [end for machine in hosted.machines.values() for end in machine.outputs.values()]
    return sum(len(end.buffer._spill) for end in ends if end.buffer._spill is not None)


def test_a_cycle_that_spills_takes_nothing_from_outside() -> None:
    """PROTOCOL 9.2: what is on disk stays small, however much the source would give."""
    assert 1 <= spilled_frames(pumped()) <= 2


@pytest.mark.parametrize("spills", [True, False])
def test_only_a_cycle_that_spills_goes_on(spills: bool) -> None:
    """PROTOCOL 9.2: with all buffers of a cycle full, each subtask would wait for the next one for ever."""
    hosted = pumped(spills=spills)
    for _ in range(5):
        hosted.seal_and_carry("b", "c")
        hosted["b"].run(0.0, 10)
    (from_b,) = hosted["c"].inputs.values()
    for _ in range(_MESSAGES):  # b grants no credit, because it has not processed what it has
        hosted["c"].run(0.0, 10)
        hosted["c"].seal()
    assert (from_b.head is None) is spills


def test_what_is_spilled_is_saved() -> None:
    """PROTOCOL 9.2: a marker overtakes the frames on disk too, so they are the sender's part."""
    hosted = pumped()
    assert spilled_frames(hosted)
    hosted["b"].step(SnapshotRequested(1, (), 1), 0.0)
    (end,) = hosted["b"].outputs.values()
    cut = end.buffer.settled(1)
    assert cut is not None
    assert len(values(cut)) == cut.sent - cut.written > len(end.buffer._queue)


def test_without_the_rule_a_source_drowns_the_cycle(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL 9.2, taken away: everything that the source has goes to disk."""

    def take_anything(self: LiveTurns, end: ChannelReceiver) -> bool:
        return True

    monkeypatch.setattr(LiveTurns, "_may_take", take_anything)
    assert spilled_frames(pumped()) >= _MESSAGES


class PumpInCycle(Source):
    """A source that is on a cycle itself."""

    def poll(self, context: Context) -> float | End | None:
        context.send("x" * 60)
        return None

    def onMessage(self, message: Any, context: Context) -> None:
        pass


def test_a_source_in_a_spilling_cycle_is_not_polled() -> None:
    """PROTOCOL 9.2: a poll brings in what was outside."""
    spill = MemorySpill()
    graph = Graph("g").add("a", PumpInCycle()).add("b", Relay()).connect("a", "b").connect("b", "a")
    hosted = Hosted(graph, spill_of=lambda channel: spill)
    for _ in range(_MESSAGES):
        hosted["a"].run(0.0, 10)
    assert len(spill) == 1 and hosted["a"].next_wake() is None, "its host need not come back before there is room"
