"""Restore: channel state before anything newer, counters that go on, and a run that ends as if nothing had been."""

from __future__ import annotations

import pytest

from snapshot.plan.compiled_graph import build
from snapshot.plan.topology import Partitioning
from tests.snapshot.campaign import seeded
from tests.snapshot.network import Network
from tests.snapshot.shapes import Shape, make_graph, make_plans

#: A source, a cycle of two, a two-phase sink.
SHAPE = Shape(
    (1, 2, 2, 1),
    (
        (0, 1, Partitioning.HASH),
        (1, 2, Partitioning.REBALANCE),
        (2, 1, Partitioning.BROADCAST),
        (2, 3, Partitioning.HASH),
    ),
    walks=(6, 1, 0, 0),
)


def network(seed: int) -> Network:
    """Machines that have run for a while."""
    plans = make_plans(SHAPE)
    made = Network(build(make_graph(plans), "unaligned"), plans, seeded(seed))
    for _ in range(150):
        made.step()
    return made


def held(made: Network) -> int:
    """Messages in the channels of the newest snapshot."""
    handles = [handle for record in made.published[-1].records for handle in record.handles]
    return sum(handle.last - handle.first + 1 for handle in handles if handle.channel is not None)


def snapshot(made: Network) -> None:
    """Take one snapshot, without anybody processing a message."""
    made.initiate()
    for _ in range(4):
        for subtask in made.topology.subtasks:
            while made.controls[subtask]:
                made.act_control(subtask)
            made.settle(subtask)
            made.flush(subtask)
    assert not made.running


@pytest.mark.parametrize("seed", range(8))
def test_a_snapshot_of_what_was_just_restored_is_the_same(seed: int) -> None:
    """PROTOCOL 6.2: restored messages that still wait are recorded by the ordinary rule, again and again."""
    made = network(seed)
    snapshot(made)
    first = made.published[-1]
    for _ in range(3):
        made.restart()
        snapshot(made)
    again = made.published[-1]
    entries = [
        [(r.subtask, r.received[n].processed) for r in m.records for n in range(len(r.received))]
        for m in (first, again)
    ]
    assert sorted(entries[0]) == sorted(entries[1])
    made.finish()


def test_some_of_them_hold_messages() -> None:
    """The test above restores channels that are not empty."""
    counts = []
    for seed in range(8):
        made = network(seed)
        snapshot(made)
        counts.append(held(made))
    assert sum(count > 0 for count in counts) >= 4, counts


def test_without_a_published_snapshot_all_start_afresh() -> None:
    """PROTOCOL 6.3: fresh instances of the submitted graph; onStart runs again."""
    plans = make_plans(SHAPE)
    made = Network(build(make_graph(plans), "unaligned"), plans, lambda below: 0)
    for _ in range(2):
        for _ in range(3):
            made.round()
        assert any(made.truth.sent.values())
        made.restart()
        assert not any(made.truth.sent.values())
    made.finish()


def test_a_finished_run_restores_as_finished() -> None:
    """PROTOCOL 5.3: from the final snapshot nothing happens but commits that are repeated."""
    made = network(1)
    made.finish()
    made.restart()
    made.finish()
    assert [manifest.final for manifest in made.published[-1:]] == [True]
