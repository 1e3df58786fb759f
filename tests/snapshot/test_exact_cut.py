"""Random graphs, schedules, initiators, overtaking, ends, aborts and crashes: every cut is exact and complete.

`tests.snapshot.truth` holds each snapshot that completes against what really happened, `tests.snapshot.network`
brings every run to its end. A seed that fails repeats exactly.
"""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.run_size import scaled
from tests.snapshot.campaign import Options, run_campaign, seeded

#: Quick runs in all, in parts that fit the time limit of one test on a slow machine.
_PARTS, _RUNS_A_PART = 4, scaled(120)

#: What must have been seen among so many runs, or they prove nothing (RELIABILITY: "sometimes").
_SOMETIMES = (
    "receiver's part",
    "sender's part",
    "first marker through several inputs",
    "overlap",
    "alignment timed out",
    "restored messages",
    "snapshot before restored messages drained",
    "late marker dropped",
    "end in flight",
    "spilled",
)


@pytest.mark.parametrize("first", range(0, _PARTS * _RUNS_A_PART, _RUNS_A_PART))
def test_every_cut_is_exact(first: int) -> None:
    """In every run all cuts are exact, complete, causal and conserve money, and the run ends as without faults."""
    seen: Counter[str] = Counter()
    published = 0
    for seed in range(first, first + _RUNS_A_PART):
        try:
            network = run_campaign(seeded(seed))
        except Exception:
            print(f"seed {seed}")
            raise
        seen += network.seen
        published += len(network.published)
    print(f"{published} snapshots published; {dict(seen)}")
    assert [what for what in _SOMETIMES if not seen[what]] == []


def test_larger_graphs() -> None:
    """The same on graphs of up to six nodes with three subtasks each."""
    for seed in range(scaled(20)):
        try:
            run_campaign(seeded(seed), Options(nodes_max=6, parallelism_max=3, steps=400))
        except Exception:
            print(f"seed {seed}")
            raise


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example])
@given(st.data())
def test_every_cut_is_exact_by_search(data: st.DataObject) -> None:
    """The same with choices that Hypothesis makes, so that a failure is shrunk to a short schedule."""

    def choose(below: int) -> int:
        return data.draw(st.integers(0, below - 1)) if below > 1 else 0

    run_campaign(choose, Options(steps=40, restarts=1, nodes_max=3))


def test_a_seed_repeats_a_run() -> None:
    """Two runs of one seed see and publish the same."""
    first, second = run_campaign(seeded(7)), run_campaign(seeded(7))
    assert first.seen == second.seen
    assert [manifest.records for manifest in first.published] == [manifest.records for manifest in second.published]
