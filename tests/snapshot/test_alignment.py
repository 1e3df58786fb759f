"""Alignment: no channel state where it is granted, and a timeout that makes a snapshot independent of processing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from snapshot.channel.output_buffer import OutputBuffer
from snapshot.ids import Subtask
from snapshot.plan.compiled_graph import CompiledGraph, build
from snapshot.plan.declarations import AlignmentWish
from snapshot.plan.topology import Alignment, Partitioning, Topology
from snapshot.subtask.events import Event, OvertakeWithMarkers, SendMarker
from snapshot.subtask.recorder import Recorder
from tests.snapshot.network import Network
from tests.snapshot.shapes import Shape, make_graph, make_plans

#: Two sources, a middle, a sink; the sink is fed by both, so that it aligns.
DIAMOND = Shape(
    (2, 1, 2, 1),
    (
        (0, 2, Partitioning.REBALANCE),
        (1, 2, Partitioning.BROADCAST),
        (2, 3, Partitioning.HASH),
        (1, 3, Partitioning.REBALANCE),
    ),
    walks=(6, 6, 2, 0),
)


def crowded(alignment: AlignmentWish) -> Network:
    """A network whose sources have sent all, of which one frame a channel has arrived and nothing is processed."""
    plans = make_plans(DIAMOND)
    network = Network(build(make_graph(plans), alignment), plans, lambda below: 0, window=1)
    for subtask, machine in network.machines.items():
        network.act_control(subtask)
        for at in range(8 if subtask.node in ("n0", "n1") else 0):
            machine.run(float(at), 100)
            machine.seal()
    for subtask in network.topology.subtasks:
        network.flush(subtask)
    assert any(end.buffer.has_data for machine in network.machines.values() for end in machine.outputs.values())
    return network


def move_markers(network: Network) -> None:
    """Let links move all there is, and time run out, without anybody processing a message."""
    for _ in range(6):
        for subtask in network.topology.subtasks:
            while network.controls[subtask]:
                network.act_control(subtask)
            network.settle(subtask)
            network.act_time_out(subtask)
            network.settle(subtask)
            network.flush(subtask)


def completes_without_processing(alignment: AlignmentWish) -> bool:
    """Whether a snapshot of a crowded network is published though no message is processed; then it ends as ever."""
    network = crowded(alignment)
    network.initiate()
    move_markers(network)
    completed = bool(network.published)
    network.finish()
    return completed


def test_an_aligned_snapshot_waits_and_holds_no_messages() -> None:
    """PROTOCOL 4.1: it is complete only when all ahead of the markers is processed, and its channels are empty."""
    assert not completes_without_processing("aligned")
    network = crowded("aligned")
    network.initiate()
    network.finish()
    handles = [handle for record in network.published[0].records for handle in record.handles]
    assert all(handle.channel is None for handle in handles)


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
    """The same graph with one aligned edge behind an unaligned one, which the builder would never grant."""
    aligned = Alignment(aligned=True, timeout=None)
    edges = tuple(replace(e, alignment=aligned) if e.target == "n3" else e for e in compiled.topology.edges)
    topology = compiled.topology
    return replace(compiled, topology=Topology(topology.name, topology.nodes, edges, topology.components))


def test_a_mix_that_is_not_granted_cannot_deadlock_the_core() -> None:
    """PROTOCOL 4.1: even where an aligned edge is behind an unaligned one, a marker that overtook ends the waiting."""
    plans = make_plans(DIAMOND)
    network = Network(mixed(build(make_graph(plans), "unaligned")), plans, lambda below: 0, window=50)
    for _ in range(3):
        network.initiate([Subtask("n0", 0)])
        network.round()
    network.finish()
