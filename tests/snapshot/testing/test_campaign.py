"""The whole protocol under faults, seed by seed: real machines and coordinators, and all checkers on every history."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from contextlib import ExitStack

import pytest

from snapshot.testing import steps
from tests.programs import Program

#: Histories of a run of this test; the environment asks for more.
SEEDS = int(os.environ.get("CUTLINE_SEEDS", "2000"))
_PROCESSES = 2
#: A seed takes some 60 ms on one core; a machine may be five times as slow, and be busy with other tests.
_SECONDS_A_SEED = 0.6

#: RELIABILITY: a campaign that never saw these is void.
CONDITIONS = (
    "a snapshot with messages in flight",
    "a sender's part",
    "two snapshots at a time",
    "a first marker through each of several inputs",
    "an alignment timed out",
    "a cut inside a partly handled frame",
    "a fault between state capture and upload",
    "a fault between last part and manifest",
    "a fault after the manifest before its acknowledgement",
    "a failure during restore",
    "two claims raced",
    "an acknowledgement of another incarnation",
    "a snapshot before restored messages were drained",
)

#: What else must have happened, or all histories together prove little.
SOMETIMES = (
    "a snapshot overtook another",
    "a snapshot was aborted by its deadline",
    "a cycle ended",
    "a manifest was undecided",
    "a failure while finishing",
    "a stage was given up",
    "a run was adopted",
    "two lives of a coordinator",
    "two drivers",
    "refused",
    "a request of a lost coordinator reached the store",
    "a coordinator ended finished",
    "a coordinator ended stopped",
    "a coordinator ended fenced",
    "a coordinator ended superseded",
)

#: Every kind of fault there is.
FAULTS = tuple(
    name
    for name, found in vars(steps).items()
    if isinstance(found, type) and issubclass(found, steps.Fault) and found is not steps.Fault and name[0] != "_"
)


@pytest.mark.slow
@pytest.mark.timeout(60 + SEEDS * _SECONDS_A_SEED)
def test_whatever_fails_the_result_is_that_of_the_run_without_faults() -> None:
    """Rings, meshes, stars, any graphs; overlaps, crashes, zombies: all checkers hold, and everything was seen."""
    done, seen = Counter[str](), Counter[str]()
    with ExitStack() as stack:
        command = [sys.executable, "-u", "-m", "tests.snapshot.testing.campaign"]
        programs = [
            stack.enter_context(
                Program([*command, str(first), str(SEEDS), str(_PROCESSES)], timeout_s=30 + SEEDS * _SECONDS_A_SEED)
            )
            for first in range(_PROCESSES)
        ]
        for program in programs:
            assert program.wait() == 0, program.output
            counts = json.loads(program.output.splitlines()[-1])
            seen.update(counts.pop("seen"))
            done.update(counts)
    print(f"{SEEDS:,} histories: {dict(done)}")
    print("\n".join(f"{times:8,} {what}" for what, times in sorted(seen.items())))
    missing = [what for what in (*CONDITIONS, *SOMETIMES, *FAULTS) if not seen[what]]
    assert not missing, f"never seen in {SEEDS:,} histories: {missing}"
