"""Restore: restored messages are recorded again by the ordinary rule (PROTOCOL 6.2, restored channels)."""

from __future__ import annotations

from random import Random

import pytest

from cutline.snapshot.coordinator.run_state import Outcome
from cutline.snapshot.ids import ChannelId
from cutline.snapshot.testing.simulator import Simulator
from cutline.snapshot.testing.steps import FailStage, Quiesce
from tests.snapshot.testing.outside import OUTSIDES, Outside
from tests.snapshot.testing.programs import PROGRAMS
from tests.snapshot.testing.unprocessed import take_snapshot

#: Steps before the first snapshot.
_STEPS = 60

_SEEDS = range(8)

_BANK = next(program for program in PROGRAMS if program.name == "bank")


def moved(seed: int) -> Simulator:
    """A run of a bank with a cycle that has moved for a while."""
    graph, chance = _BANK.graph(), Random(seed)
    OUTSIDES[graph.name] = Outside()
    simulator = Simulator(graph, (), seed=seed)
    simulator.take(Quiesce())
    for _ in range(_STEPS):
        possible = simulator.possible()
        simulator.take(possible[chance.randrange(len(possible))])
    return simulator


def snapshot(simulator: Simulator, number: int) -> None:
    """Take a snapshot at all subtasks at once, without anybody processing a message."""
    subtasks = map(str, simulator.history.topology.subtasks)
    assert take_snapshot(simulator, number, *subtasks)


def processed(simulator: Simulator) -> dict[ChannelId, int]:
    """Messages of each channel that were processed at the newest snapshot."""
    manifest = simulator.history.snapshots[-1].manifest
    return {entry.channel: entry.processed for record in manifest.records for entry in record.received}


def held(simulator: Simulator) -> int:
    """Messages in the channels of the newest snapshot."""
    handles = [h for record in simulator.history.snapshots[-1].manifest.records for h in record.handles]
    return sum(handle.last - handle.first + 1 for handle in handles if handle.channel is not None)


@pytest.mark.parametrize("seed", _SEEDS)
def test_a_snapshot_of_what_was_just_restored_is_the_same(seed: int) -> None:
    """Restored messages that still wait are recorded again and again."""
    simulator = moved(seed)
    snapshot(simulator, 1)
    first = processed(simulator), held(simulator)
    for _ in range(3):
        simulator.take(FailStage())
        snapshot(simulator, 1)
    assert (processed(simulator), held(simulator)) == first
    assert simulator.finish().outcome is Outcome.FINISHED


def test_some_of_them_hold_messages() -> None:
    """The test above restores channels that are not empty."""
    counts = []
    for seed in _SEEDS:
        simulator = moved(seed)
        snapshot(simulator, 1)
        counts.append(held(simulator))
    assert sum(count > 0 for count in counts) >= 4, counts
