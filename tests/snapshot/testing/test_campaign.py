"""The whole protocol under faults, seed by seed: real machines and coordinators, and all checkers on every history."""

from __future__ import annotations

import json
import sys
from collections import Counter
from contextlib import ExitStack
from itertools import pairwise

import pytest

from cutline.snapshot.testing import steps
from cutline.snapshot.testing.simulator import Mutation
from tests.programs import Program
from tests.run_size import FACTOR, scaled
from tests.snapshot.testing.campaign import case, checker_of, fails, report
from tests.snapshot.testing.mutants_of_runs import DropsPrepared
from tests.source_files import ROOT

#: Histories of a run of this test. Six hundred see every situation that a campaign has to see.
SEEDS = scaled(600)
_PROCESSES = 2
#: A seed takes some 60 ms on one core; the two share a machine that may be slow, and busy with other tests.
_DEADLINE_S = 30 + 0.3 * SEEDS

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
    "a frame was spilled",
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

#: Every kind of fault there is, without that of aggregates, which is seen in `test_totals_campaign`.
FAULTS = tuple(
    name
    for name, found in vars(steps).items()
    if isinstance(found, type) and issubclass(found, steps.Fault) and name[0] != "_"
    if found not in (steps.Fault, steps.LoseTotals)
)


@pytest.mark.slow
@pytest.mark.timeout(30 + _DEADLINE_S)
def test_whatever_fails_the_result_is_that_of_the_run_without_faults() -> None:
    """Rings, meshes, stars, any graphs; overlaps, crashes, zombies: all checkers hold, and everything was seen."""
    done, seen = Counter[str](), Counter[str]()
    with ExitStack() as stack:
        command = [sys.executable, "-u", "-m", "tests.snapshot.testing.campaign"]
        programs = [
            stack.enter_context(
                Program(
                    [*command, str(first), str(last), "1"], timeout_s=_DEADLINE_S, environment={"PYTHONPATH": str(ROOT)}
                )
            )
            for first, last in pairwise(SEEDS * part // _PROCESSES for part in range(_PROCESSES + 1))
        ]
        for program in programs:
            assert program.wait() == 0, program.output
            counts = json.loads(program.output.splitlines()[-1])
            seen.update(counts.pop("seen"))
            done.update(counts)
    print(f"{SEEDS:,} histories: {dict(done)}")
    print("\n".join(f"{times:8,} {what}" for what, times in sorted(seen.items())))
    missing = [what for what in (*CONDITIONS, *SOMETIMES, *FAULTS) if not seen[what] and FACTOR >= 1]
    assert not missing, f"never seen in {SEEDS:,} histories: {missing}"


def test_a_failure_is_told_with_a_short_schedule() -> None:
    """The seed, the line that repeats it, and a schedule that the same checker finds wrong, much shorter."""
    mutation = Mutation(machine=DropsPrepared)
    broken, error = next((found, error) for found in map(case, range(100)) if (error := fails(found, None, mutation)))
    text = report(broken, error, mutation)
    assert f"repeat with: python -m tests.snapshot.testing.campaign {broken.seed}" in text
    schedule = eval(text[text.index(", [") + 2 : -1], vars(steps))
    again = fails(broken, schedule, mutation)
    assert again is not None
    assert checker_of(again) == checker_of(error) == "output"
    assert len(schedule) < len(broken.simulator(None, mutation).run().schedule) / 4
