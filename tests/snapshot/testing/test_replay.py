"""One seed is one history, in every process; and what it did is a script that does it again."""

from __future__ import annotations

import sys

import pytest

from cutline.snapshot.testing import steps
from tests.programs import Program
from tests.snapshot.testing.campaign import case
from tests.source_files import ROOT

#: Written programs and generated graphs, with and without faults.
_SEEDS = range(40)

_PRINTS_HISTORIES = """
from hashlib import sha256
from tests.snapshot.testing.campaign import case

for seed in range(16):
    print(seed, sha256(case(seed).simulator().run().to_bytes()).hexdigest())
"""


def _histories(hash_seed: int) -> str:
    """What a process of its own makes of some seeds; `hash_seed` decides in which order its sets are iterated."""
    environment = {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": str(hash_seed)}
    with Program([sys.executable, "-c", _PRINTS_HISTORIES], timeout_s=100, environment=environment) as program:
        assert program.wait() == 0
    return program.output


def test_the_same_seed_is_the_same_bytes_in_two_processes() -> None:
    """Nothing but the seed decides: not the order of a set, not an address, not a clock."""
    first, second = _histories(1), _histories(2)
    assert first == second
    assert len(first.splitlines()) == 16


@pytest.mark.parametrize("seed", _SEEDS)
def test_a_recorded_schedule_repeats_its_history(seed: int) -> None:
    """Every step can be named, zombies' too, and taken again: the same events follow."""
    first = case(seed).simulator().run()
    again = case(seed).simulator(first.schedule, skips=False).run()
    assert again.events == first.events
    assert again.to_bytes() == first.to_bytes()
    assert eval(repr(first.schedule), vars(steps)) == first.schedule
