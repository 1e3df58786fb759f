"""Alignment: no channel state where it is granted, and a timeout that makes a snapshot independent of processing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cutline import Graph
from cutline.snapshot.channel.output_buffer import OutputBuffer
from cutline.snapshot.coordinator.run_state import Outcome
from cutline.snapshot.plan.compiled_graph import CompiledGraph, build
from cutline.snapshot.plan.declarations import AlignmentWish
from cutline.snapshot.plan.topology import Alignment, Topology
from cutline.snapshot.subtask.events import Event, OvertakeWithMarkers, SendMarker
from cutline.snapshot.subtask.recorder import Recorder
from cutline.snapshot.testing import simulator as module
from cutline.snapshot.testing.history import History
from cutline.snapshot.testing.lists import ListSink, ListSource
from cutline.snapshot.testing.simulator import Simulator
from cutline.snapshot.testing.steps import Arrive, Poll, Quiesce, Transmit
from tests.snapshot.testing.programs import Delay
from tests.snapshot.testing.unprocessed import take_snapshot

#: Messages that wait on each channel out of a source.
_MESSAGES = 4


def diamond() -> Graph:
    """Two sources; both feed the sink, one of them through two middle subtasks, so that the sink aligns."""
    graph = Graph("diamond").add("a", ListSource(*range(1, 9))).add("b", ListSource(*range(11, 19)))
    graph.add("middle", Delay(), parallelism=2).add("out", ListSink())
    graph.connect("a", "middle").connect("b", "middle", partitioning="broadcast")
    return graph.connect("middle", "out").connect("b", "out")


def crowded(alignment: AlignmentWish) -> Simulator:
    """A run whose sources have sent messages, of which one a channel has arrived and none is processed."""
    simulator = Simulator(diamond(), (), alignment=alignment, maxConcurrentSnapshots=3)
    simulator.take(Quiesce())
    for _ in range(_MESSAGES):
        for source in ("a", "b"):
            simulator.take(Poll(source))
    for channel in (("a", "middle[0]"), ("a", "middle[1]"), ("b", "middle[0]"), ("b", "middle[1]"), ("b", "out")):
        simulator.take(Transmit(*channel))
        simulator.take(Arrive(*channel))
    return simulator


def completes_without_processing(alignment: AlignmentWish) -> bool:
    """Whether a snapshot of a crowded run is published though no message is processed; then the run ends as ever."""
    simulator = crowded(alignment)
    is_complete = take_snapshot(simulator, 1, "a", "b", with_data=False)
    assert simulator.finish().outcome is Outcome.FINISHED
    return is_complete


def in_flight(history: History) -> list[int]:
    """The number of parts of channels in each snapshot."""
    return [
        sum(handle.channel is not None for record in snapshot.manifest.records for handle in record.handles)
        for snapshot in history.snapshots
    ]


def test_an_aligned_snapshot_waits_and_holds_no_messages() -> None:
    """PROTOCOL 4.1: it is complete only when all ahead of the markers is processed, and its channels are empty."""
    assert not completes_without_processing("aligned")
    simulator = crowded("aligned")
    take_snapshot(simulator, 1, "a", "b")
    assert set(in_flight(simulator.finish())) == {0}


@pytest.mark.parametrize("alignment", ["unaligned", 1.0])
def test_others_do_not_wait_for_processing(alignment: AlignmentWish) -> None:
    """PROTOCOL 1 and 4.3: unaligned, or once timed out, back-pressure does not hold a snapshot up."""
    assert completes_without_processing(alignment)


def test_a_timeout_needs_the_markers_to_overtake(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL 4.3, taken away: markers that stay behind data which has no credit hold the snapshot up."""

    def overtake_nothing(self: OutputBuffer, snapshot_id: int) -> None:
        pass

    monkeypatch.setattr(OutputBuffer, "overtake", overtake_nothing)
    assert not completes_without_processing(1.0)


def test_a_cut_by_timeout_needs_unaligned_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL 4.3, taken away: a subtask that cut early and sends aligned markers puts them behind its data."""
    step = Recorder.step

    def aligned_outputs(self: Recorder, event: Event) -> list[object]:
        effects = [
            replace(effect, aligned=effect.channel in self.aligned_outputs)
            if isinstance(effect, SendMarker)
            else effect
            for effect in step(self, event)
        ]
        return [effect for effect in effects if not isinstance(effect, OvertakeWithMarkers)]

    monkeypatch.setattr(Recorder, "step", aligned_outputs)
    assert not completes_without_processing(1.0)


def mixed(compiled: CompiledGraph) -> CompiledGraph:
    """The same graph with aligned edges behind unaligned ones, which the builder would never grant."""
    aligned = Alignment(aligned=True, timeout=None)
    edges = tuple(replace(e, alignment=aligned) if e.target == "out" else e for e in compiled.topology.edges)
    topology = compiled.topology
    return replace(compiled, topology=Topology(topology.name, topology.nodes, edges, topology.components))


@pytest.mark.parametrize("seed", range(6))
def test_a_mix_that_is_not_granted_cannot_deadlock_the_core(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """PROTOCOL 4.1: even where an aligned edge is behind an unaligned one, a marker that overtook ends the waiting."""
    monkeypatch.setattr(module, "build", lambda graph, alignment, mode=None: mixed(build(graph, alignment)))
    history = Simulator(diamond(), seed, snapshotInterval=0.1).run()
    assert history.outcome is Outcome.FINISHED
    assert len(history.snapshots) > 1
