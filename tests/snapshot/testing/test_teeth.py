"""Each rule of RELIABILITY's "Teeth" is needed: a run without it is caught, by a checker that has a name.

One more, "directory not fsynced", needs a disk that forgets: it is with the tests of the file system. The rules of the
core that the list does not name are in `tests.snapshot.test_rules`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from snapshot.testing.simulator import Mutation
from tests.snapshot import mutants_of_cuts as cuts
from tests.snapshot import mutants_of_order as order
from tests.snapshot.testing import mutants_of_runs as runs
from tests.snapshot.testing.campaign import FAULTS_MAX, case, checker_of, fails

#: Histories in which a mutant has to be caught; most are in the first ten.
_SEEDS_MAX = 400

#: What the certificate refuses is never published.
_REFUSED = ("liveness", "AssertionError")


@dataclass(frozen=True)
class Tooth:
    """A rule that is taken away, and who notices."""

    name: str
    how: Mutation | Callable[[pytest.MonkeyPatch], None]
    caught_by: tuple[str, ...]


TEETH = (
    Tooth("marker sent after data", cuts.marker_behind_data, ("exact cut",)),
    Tooth("messages after the marker recorded", cuts.after_the_marker_recorded, ("exact cut",)),
    Tooth("first channel taken as empty", cuts.first_channel_empty, ("exact cut",)),
    Tooth("closing a recording skipped", cuts.closing_skipped, ("liveness",)),
    Tooth("sender's part omitted", cuts.senders_part_omitted, ("exact cut",)),
    Tooth("sender's part beyond S", cuts.senders_part_beyond_its_cut, ("exact cut",)),
    Tooth("parts swapped", runs.parts_swapped, ("sequence",)),
    Tooth("later marker before an earlier one", cuts.later_marker_first, ("exact cut",)),
    Tooth("end of stream not numbered", order.end_not_numbered, ("exact cut",)),
    Tooth("counters restarted on restore", runs.counters_restarted, ("sequence",)),
    Tooth("last in-flight message dropped", cuts.last_message_dropped, ("exact cut",)),
    Tooth("recorded message aliased", cuts.recorded_message_aliased, ("exact cut",)),
    Tooth("acknowledged before upload", Mutation(worker=runs.EagerWorker), ("integrity",)),
    Tooth("incarnation of a message ignored", Mutation(coordinator=runs.IncarnationIgnored), ("fencing", "rollback")),
    Tooth("incarnation of a frame ignored", Mutation(worker=runs.TakesAnyFrame), ("sequence",)),
    Tooth("claim not looked at after publishing", Mutation(fence=runs.NeverLooks), ("output", "fencing")),
    Tooth("late marker after an abort obeyed", Mutation(coordinator=runs.FloorNotSent), ("no leak",)),
    Tooth("prepared output dropped on abort", Mutation(machine=runs.DropsPrepared), ("output",)),
    Tooth("snapshot id reused", Mutation(coordinator=runs.IdReused), ("ids",)),
    Tooth("stop forgotten over a rollback", Mutation(coordinator=runs.ForgetsTheStop), ("stop",)),
)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("tooth", TEETH, ids=lambda tooth: tooth.name)
def test_every_rule_has_teeth(tooth: Tooth, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run without this rule is caught, by the checker that is meant to catch it."""
    mutation = tooth.how if isinstance(tooth.how, Mutation) else None
    for seed in range(_SEEDS_MAX):
        with monkeypatch.context() as patch:
            if not isinstance(tooth.how, Mutation):
                tooth.how(patch)
            error = fails(replace(case(seed), faults=FAULTS_MAX), mutation=mutation)
        if error is not None:
            break
    else:
        pytest.fail(f"{tooth.name}: not caught in {_SEEDS_MAX} histories")
    print(f"{tooth.name}: caught by {checker_of(error)} (seed {seed}): {str(error)[:200]}")
    assert checker_of(error) in tooth.caught_by, repr(error)
