"""Each rule of RELIABILITY's "Teeth" is needed: a run without it is caught, by a checker that has a name.

One more, "directory not fsynced", needs a disk that forgets: it is with the tests of the file system. The rules of the
core that the list does not name are in `tests.snapshot.test_rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from snapshot.testing.simulator import Mutation, Odds
from snapshot.testing.steps import Arrive, Deliver, Fail, FailHook, Initiate, Poll, Quiesce, Step, Tick, Transmit
from tests.snapshot import mutants_of_cuts as cuts
from tests.snapshot import mutants_of_order as order
from tests.snapshot.testing import mutants_of_runs as runs
from tests.snapshot.testing.campaign import FAULTS_MAX, Case, case, checker_of, fails
from tests.snapshot.testing.programs import PROGRAMS

#: Histories in which a mutant has to be caught; most are in the first ten.
_SEEDS_MAX = 400


@dataclass(frozen=True)
class Tooth:
    """A rule that is taken away, and who notices."""

    name: str
    how: Mutation | Callable[[pytest.MonkeyPatch], None]
    caught_by: tuple[str, ...]
    #: what a history has, so that the rule matters in many of them
    settings: Mapping[str, Any] = field(default_factory=dict)

    #: where chance hardly comes to
    schedule: Sequence[Step] | None = None

    def case(self, seed: int) -> Case:
        """The history of a seed."""
        return replace(case(seed), **{"faults": FAULTS_MAX, **self.settings})


_CHANNELS = [(one, other) for one in ("numbers", "numbers[1]") for other in ("delay", "delay[1]")]
_CHANNELS += [(one, other) for one in ("delay", "delay[1]") for other in ("out", "out[1]")]
_SUBTASKS = ("numbers", "numbers[1]", "delay", "delay[1]", "out", "out[1]")

#: An alignment is over soon, while markers wait behind messages.
_TIMED = {"program": replace(PROGRAMS[0], alignment=0.02), "interval": 0.05, "faults": 0}
_PIPELINE = {"program": PROGRAMS[0], "tolerable": 3, "seed": 1}
#: Of two messages on a channel one has come and waits, the other one is with its sender; then a failure.
_BOTH_PARTS = (
    *(Poll("numbers"), Tick(0.3), Poll("numbers"), Poll("numbers"), Poll("numbers"), Transmit("numbers", "delay")),
    *(Arrive("numbers", "delay"), *(Initiate(1, subtask) for subtask in _SUBTASKS)),
    *(Deliver(*channel, marker=True) for channel in _CHANNELS),
    *(Quiesce(), Fail("delay")),
)
#: A subtask cannot take its part, and its markers are still on their way.
_DECLINED = (Quiesce(), FailHook("numbers", "snapshotState"), Initiate(1, "numbers"))
_STOPS = {"odds": Odds(30, stops=True)}

TEETH = (
    Tooth("marker sent after data", cuts.marker_behind_data, ("certificate",)),
    Tooth("messages after the marker recorded", cuts.after_the_marker_recorded, ("certificate",)),
    Tooth("first channel taken as empty", cuts.first_channel_empty, ("certificate",)),
    Tooth("closing a recording skipped", cuts.closing_skipped, ("liveness",)),
    Tooth("sender's part omitted", cuts.senders_part_omitted, ("certificate",)),
    Tooth("sender's part beyond S", cuts.senders_part_beyond_its_cut, ("certificate",), _TIMED),
    Tooth("parts swapped", runs.parts_swapped, ("sequence",), _PIPELINE, _BOTH_PARTS),
    Tooth("later marker before an earlier one", cuts.later_marker_first, ("order",)),
    Tooth("end of stream not numbered", order.end_not_numbered, ("exact cut",)),
    Tooth("counters restarted on restore", runs.counters_restarted, ("exact cut", "sequence")),
    Tooth("last in-flight message dropped", cuts.last_message_dropped, ("certificate",)),
    Tooth("recorded message aliased", cuts.recorded_message_aliased, ("exact cut",)),
    Tooth("acknowledged before upload", Mutation(worker=runs.EagerWorker), ("integrity",)),
    Tooth("incarnation of a message ignored", Mutation(coordinator=runs.IncarnationIgnored), ("fencing", "rollback")),
    Tooth("incarnation of a frame ignored", Mutation(worker=runs.TakesAnyFrame), ("sequence", "fencing")),
    Tooth("claim not looked at after publishing", Mutation(fence=runs.NeverChecks), ("output", "fencing")),
    Tooth(
        "late marker after an abort obeyed",
        Mutation(coordinator=runs.MinSnapshotIdNotSent),
        ("no leak",),
        _PIPELINE,
        _DECLINED,
    ),
    Tooth("prepared output dropped on abort", Mutation(machine=runs.DropsPrepared), ("output",)),
    Tooth("snapshot id reused", Mutation(coordinator=runs.IdReused), ("ids",)),
    Tooth("stop forgotten over a rollback", Mutation(coordinator=runs.ForgetsTheStop), ("stop",), _STOPS),
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
            error = fails(tooth.case(seed), tooth.schedule, mutation=mutation)
        if error is not None:
            break
    else:
        pytest.fail(f"{tooth.name}: not caught in {_SEEDS_MAX} histories")
    print(f"{tooth.name}: caught by {checker_of(error)} (seed {seed}): {str(error)[:200]}")
    assert checker_of(error) in tooth.caught_by, repr(error)
