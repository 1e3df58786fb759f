"""Gates of restored messages: lower waves first, edge by edge (PROTOCOL 6.11, waves)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline import Context, Graph, Node, Source
from cutline.snapshot.channel.channel_receiver import ChannelReceiver
from cutline.snapshot.channel.frame import Frame, Marker
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.subtask.events import Started
from cutline.snapshot.subtask.machine import SubtaskMachine
from cutline.snapshot.subtask.restored import FRESH, RestoredChannels
from cutline.snapshot.subtask.wave_gates import WaveGates
from tests.snapshot.hosted import Hosted
from tests.snapshot.sample import flat, values

Waves = tuple[tuple[int, int], ...]


def receiver(source: str, index: int, count: int, waves: Waves) -> ChannelReceiver:
    """The end of a channel with `count` restored messages."""
    restored = (flat(1, *((source, index, n) for n in range(1, count + 1))),) if count else ()
    return ChannelReceiver(ChannelId(Subtask(source, index), Subtask("to")), restored=restored, waves=waves)


def test_lower_waves_pass_first() -> None:
    """A channel waits while another channel of its edge has a lower wave; then both pass."""
    one, other = receiver("a", 0, 3, ((1, 1), (3, 2))), receiver("a", 1, 2, ((2, 1),))
    gates = WaveGates([one, other])
    assert gates.edges
    assert gates.may_take(one) and gates.may_take(other)
    one.advance(1)
    assert not gates.may_take(one) and gates.may_take(other)
    other.advance(2)
    assert gates.may_take(one) and not gates.may_take(other), "what the network brings is behind all waves"
    one.advance(2)
    assert gates.may_take(one) and gates.may_take(other)
    assert not gates.edges, "an edge without waves costs nothing"


def test_an_edge_waits_for_itself_only() -> None:
    """Another edge has another key, or none, so nothing depends on it."""
    one, other, foreign = receiver("a", 0, 1, ((1, 1),)), receiver("a", 1, 0, ()), receiver("b", 0, 1, ((1, 2),))
    gates = WaveGates([one, other, foreign])
    assert gates.may_take(foreign) and not gates.may_take(other)
    assert not WaveGates([receiver("a", 0, 2, ())]).edges


def test_a_wave_is_kept_for_a_recording() -> None:
    """A cut of an earlier point needs the waves from there on, also when they are processed meanwhile."""
    end = receiver("a", 0, 3, ((1, 1), (3, 2)))
    end.start_recording(7)
    end.advance(2)
    assert [end.wave] == [2]
    assert end.stop_recording(7, 3).waves == ((1, 1), (3, 2))
    end.start_recording(8)
    assert end.stop_recording(8, 3).waves == ((3, 2),)
    end.advance(1)
    assert end.wave is None
    end.start_recording(9)
    assert end.stop_recording(9, 3).waves == ()


@given(st.lists(st.lists(st.integers(1, 3), max_size=5).map(sorted), min_size=1, max_size=4), st.data())
def test_messages_pass_in_the_order_of_waves(channels: list[list[int]], data: st.DataObject) -> None:
    """Whatever channel is tried next: waves never go down, and no channel waits for ever."""
    ends = [receiver("a", index, len(of), tuple(enumerate(of, 1))) for index, of in enumerate(channels)]
    gates, passed = WaveGates(ends), list[int]()
    while any(end.head is not None for end in ends):
        free = [end for end in ends if end.head is not None and gates.may_take(end)]
        end = data.draw(st.sampled_from(free))
        assert end.wave is not None
        passed.append(end.wave)
        end.advance(1)
    assert passed == sorted(wave for of in channels for wave in of)


# ---------------------------------------------------------------- in a subtask


class _From(Source):
    """Sends nothing by itself."""

    def poll(self, context: Context) -> float:
        return 60.0


class _To(Node):
    """Keeps what came."""

    def __init__(self) -> None:
        self.came: list[Any] = []

    def onMessage(self, message: Any, context: Context) -> None:
        self.came.append(message)


ONE, OTHER = (ChannelId(Subtask("from", index), Subtask("to")) for index in range(2))


def machine_of(frames: dict[ChannelId, tuple[Frame, ...]], waves: dict[ChannelId, Waves]) -> tuple[SubtaskMachine, Any]:
    """The machine of a subtask with restored messages from two subtasks, and its node."""
    graph = Graph("waves").add("from", _From(), parallelism=2).add("to", _To()).connect("from", "to")
    hosted, to = Hosted(graph), Subtask("to")
    processed = {channel: each[0].first - 1 for channel, each in frames.items()}
    machine = hosted.machine(to, RestoredChannels(processed=processed, frames=frames, waves=waves))
    machine.restore(FRESH, 0.0)
    machine.step(Started(), 0.0)
    return machine, hosted.nodes[to]


def _drain(machine: SubtaskMachine, first: ChannelId) -> None:
    """Handle all that may be handled, `first` wherever that is possible."""
    while ready := [each for each in (first, ONE, OTHER) if machine.may_handle(each)]:
        machine.handle_next(ready[0], 0.0, 1)
    machine.validate()


@pytest.mark.parametrize("first", [ONE, OTHER])
def test_a_subtask_takes_restored_messages_in_the_order_of_waves(first: ChannelId) -> None:
    """Also inside a frame, and before anything that the network brought meanwhile on any channel of the edge."""
    frames: dict[ChannelId, tuple[Frame, ...]]
    frames = {ONE: (values(1, "1 of 1", "2 of 1", "5 of 3"),), OTHER: (values(4, "3 of 2", "4 of 2"),)}
    machine, node = machine_of(frames, {ONE: ((2, 1), (3, 3)), OTHER: ((5, 2),)})
    machine.deliver(OTHER, values(6, "new"))
    _drain(machine, first)
    assert node.came == ["1 of 1", "2 of 1", "3 of 2", "4 of 2", "5 of 3", "new"]


def test_a_channel_behind_a_gate_is_ready_when_the_gate_opens() -> None:
    """It holds frames that came before, and nothing else will call the machine for it."""
    machine, node = machine_of({ONE: (values(1, "restored"),)}, {ONE: ((1, 1),)})
    machine.deliver(OTHER, values(1, "new"))
    assert [machine.may_handle(each) for each in (ONE, OTHER)] == [True, False]
    machine.run(0.0, 10)
    assert node.came == ["restored", "new"]


def test_aligned_markers_pass_a_gate() -> None:
    """A marker in its turn among the frames is no message: a gate must not stop a snapshot."""
    end = receiver("a", 0, 1, ((1, 1),))
    other = receiver("a", 1, 0, ())
    other.deliver_marker(Marker(1, 1, 0, aligned=True))
    assert isinstance(other.head, Marker) and not WaveGates([end, other]).may_take(other)
    machine, _ = machine_of({ONE: (values(1, "restored"),)}, {ONE: ((1, 1),)})
    machine.inputs[OTHER].deliver_marker(Marker(1, 1, 0, aligned=True))
    assert machine.may_handle(OTHER)
