"""Each rule of PROTOCOL is needed: a run without it is caught, by a checker that has a name.

Rules have the numbers of their sections. "Directory not fsynced" needs a disk that forgets, so it is with the tests of
the file system. Spilling itself (9.2) is with the tests of flow control, because simulated links grant credit at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from cutline.snapshot.testing.simulator import Mutation, Odds
from cutline.snapshot.testing.steps import (
    Arrive,
    Deliver,
    Fail,
    FailHook,
    Initiate,
    Poll,
    Quiesce,
    Step,
    Tick,
    Transmit,
)
from tests.snapshot.testing import mutants_of_cuts as cuts
from tests.snapshot.testing import mutants_of_order as order
from tests.snapshot.testing import mutants_of_restore as restore
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
    #: seed to begin with, because the mutant is known to die there
    first: int = 0

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
#: Many snapshots at a time, with small frames and buffers.
_CROWDED = {"odds": Odds(30, requests=6), "interval": 0.05, "is_small": True}
_CROWDED_ALIGNMENTS = {**_CROWDED, "program": replace(PROGRAMS[0], alignment=0.3)}
_STOPS = {"odds": Odds(30, stops=True)}

TEETH = (
    Tooth("1.1 marker sent after data", cuts.marker_behind_data, ("certificate",)),
    Tooth("1.1 waiting marker says that it overtook", cuts.marker_waits_but_says_head, ("sequence",)),
    Tooth("1.1 sender's part omitted", cuts.senders_part_omitted, ("certificate",)),
    Tooth("1.2 messages before the cut not recorded", cuts.only_after_the_cut, ("certificate",)),
    Tooth("1.2 messages after the marker recorded", cuts.after_the_marker_recorded, ("certificate",)),
    Tooth("1.2 overtaken messages recorded again", cuts.overtaken_recorded_again, ("certificate",)),
    Tooth("1.3 last in-flight message dropped", cuts.last_message_dropped, ("certificate",)),
    Tooth("1.3 parts swapped", runs.parts_swapped, ("sequence",), _PIPELINE, _BOTH_PARTS),
    Tooth("1.4 first channel taken as empty", cuts.first_channel_empty, ("certificate",)),
    Tooth("1.4 closing a recording skipped", cuts.closing_skipped, ("liveness",)),
    Tooth("1.5 later marker before an earlier one", cuts.later_marker_first, ("order",)),
    Tooth("1.6 recorded message aliased", cuts.recorded_message_aliased, ("exact cut",)),
    Tooth("3.2 snapshot id reused", Mutation(coordinator=runs.IdReused), ("ids",)),
    Tooth("3.3 cuts in any order", order.order_rule_removed, ("order",)),
    Tooth("3.3 cuts pass what aligns", order.order_rule_removed_while_aligning, ("order",), _CROWDED_ALIGNMENTS),
    Tooth("3.4 min_snapshot_id ignored", order.min_snapshot_id_ignored, ("no leak",)),
    Tooth("3.4 late marker obeyed", order.late_marker_obeyed, ("order",)),
    Tooth(
        "3.4 min_snapshot_id not sent",
        Mutation(coordinator=runs.MinSnapshotIdNotSent),
        ("no leak",),
        _PIPELINE,
        _DECLINED,
    ),
    Tooth("4.1 aligned channel not held", order.aligned_channel_not_held, ("certificate",)),
    Tooth("4.1 channel held after an abort", order.held_channel_not_released_by_an_abort, ("liveness",)),
    Tooth("4.3 sender's part beyond S", cuts.senders_part_beyond_its_cut, ("certificate",), _TIMED),
    Tooth("5.1 end of stream not numbered", order.end_not_numbered, ("exact cut",)),
    Tooth("5.1 end of stream not recorded", order.end_not_recorded, ("certificate",)),
    Tooth("5.1 channel closed when its end arrives", order.closed_on_arrival, ("liveness",)),
    Tooth("5.2 finished subtask is gone", order.finished_subtask_is_gone, ("liveness",)),
    Tooth("5.4 onStart after a marker", order.on_start_after_a_marker, ("output",)),
    Tooth(
        "6.1 incarnation of a message ignored", Mutation(coordinator=runs.IncarnationIgnored), ("fencing", "rollback")
    ),
    Tooth("6.1 incarnation of a frame ignored", Mutation(worker=runs.TakesAnyFrame), ("sequence", "fencing"), first=69),
    Tooth("6.2 counters restarted on restore", runs.counters_restarted, ("exact cut", "sequence", "delivery")),
    Tooth("6.2 restored messages not recorded", restore.restored_messages_not_recorded, ("certificate",)),
    Tooth("6.2 restored messages dropped", restore.restored_messages_dropped, ("exact cut",)),
    Tooth("7.2 claim not checked after publishing", Mutation(fence=runs.NeverChecks), ("output", "fencing")),
    Tooth("8 prepared output dropped on abort", Mutation(machine=runs.DropsPrepared), ("output",)),
    Tooth("8 output prepared after the state", restore.prepared_after_the_state, ("output",)),
    Tooth("8 all committed at any publication", restore.all_committed_at_once, ("output",), _CROWDED, first=17),
    Tooth("8 not committed again after a restore", restore.not_committed_again, ("output",)),
    Tooth("8 discarded before the commit", restore.discarded_before_the_commit, ("output",)),
    Tooth("9.2 spilled frames not saved", restore.spilled_frames_not_saved, ("certificate",), _CROWDED, first=15),
    Tooth("acknowledged before upload", Mutation(worker=runs.EagerWorker), ("integrity",), first=39),
    Tooth("stop forgotten over a rollback", Mutation(coordinator=runs.ForgetsTheStop), ("stop",), _STOPS),
)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("tooth", TEETH, ids=lambda tooth: tooth.name)
def test_every_rule_has_teeth(tooth: Tooth, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run without this rule is caught, by the checker that is meant to catch it."""
    mutation = tooth.how if isinstance(tooth.how, Mutation) else None
    for seed in range(tooth.first, tooth.first + _SEEDS_MAX):
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
