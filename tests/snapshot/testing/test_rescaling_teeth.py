"""Each rule of a restore with another parallelism is needed: a chain of restores without it is caught."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import pytest

from tests.snapshot.testing import mutants_of_rescaling as mutants
from tests.snapshot.testing.campaign import checker_of
from tests.snapshot.testing.rescale_chains import Chain
from tests.snapshot.testing.rescaled import JOBS
from tests.snapshot.testing.rescaled_channels import Channels

#: Chains in which a mutant has to be caught, and channels without a run, which take a hundredth of the time.
_CHAINS_MAX, _CHANNELS_MAX = 40, 1_500


@dataclass(frozen=True)
class Tooth:
    """A rule that is taken away, and who notices.

    Attributes
    ----------
    job : str
        The job of the chains, or "channels".
    first : int
        Seed to begin with, because the mutant is known to die there.
    """

    rule: str
    how: Callable[[pytest.MonkeyPatch], None]
    job: str
    caught_by: tuple[str, ...]
    first: int = 0


TEETH = (
    Tooth("S4 clips ignored", mutants.clips_ignored, "keyed", ("refusal",), 7),
    Tooth("X1 old lineage after the new", mutants.old_lineage_after_the_new, "keyed", ("output",), 5),
    Tooth("X3 prepared output dropped", mutants.prepared_output_dropped, "mixed", ("output",)),
    Tooth("X3 last prepared output wins", mutants.last_prepared_output_wins, "mixed", ("output",), 14),
    Tooth("X2 keyless timers for every taker", mutants.keyless_timers_given_to_every_taker, "copied", ("output",), 6),
    Tooth("X5 offsets of donors only", mutants.offsets_of_donors_only, "keyed", ("output",)),
    Tooth("X5 offsets by position", mutants.offsets_by_position, "keyed", ("output",)),
    Tooth("X7 B without the end", mutants.sent_without_the_end, "keyed", ("AssertionError",)),
    Tooth("X7 processed 0", mutants.processed_begins_with_zero, "channels", ("sequence",)),
    Tooth("X8 sender's part first", mutants.senders_part_first, "channels", ("delivery", "certificate")),
    Tooth("X8 unequal copies taken", mutants.unequal_copies_taken, "copied", ("output",)),
    Tooth("X9 end of a half-ended node", mutants.end_of_a_half_ended_node, "keyed", ("refusal",), 6),
    Tooth("X10 onEnd twice", mutants.on_end_called_twice, "copied", ("output",)),
    Tooth("X11 no gate", mutants.no_gate, "channels", ("delivery",)),
    Tooth("X11 no gate, in a run", mutants.no_gate, "keyed", ("output",), 3),
    Tooth("X12 plain restore", mutants.waves_forgotten_at_a_plain_restore, "channels", ("delivery",)),
    Tooth("X12 further rescale", mutants.waves_forgotten_at_a_further_rescale, "channels", ("delivery",)),
    Tooth("X12 not stored", mutants.waves_not_stored, "channels", ("delivery",)),
)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("tooth", TEETH, ids=lambda tooth: tooth.rule)
def test_every_rule_of_rescaling_has_teeth(tooth: Tooth, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the rule records are lost, doubled or disordered, or a channel is in no legal state."""
    runs: list[tuple[int, Callable[[], object]]]
    if tooth.job == "channels":
        runs = [(seed, Channels(Random(seed)).run) for seed in range(tooth.first, tooth.first + _CHANNELS_MAX)]
    else:
        start = list(JOBS).index(tooth.job)
        seeds = range(start + tooth.first * len(JOBS), start + (tooth.first + _CHAINS_MAX) * len(JOBS), len(JOBS))
        runs = [(seed, Chain(seed).run) for seed in seeds]
    tooth.how(monkeypatch)
    for seed, run in runs:
        try:
            run()
        except Exception as error:  # noqa: BLE001  # whatever it is, it is what the seed found
            caught_by, found = checker_of(error), f"{error!r} (seed {seed})"
            break
    else:
        caught_by, found = "nobody", f"not caught in {len(runs)} runs"
    assert caught_by in tooth.caught_by, f"{tooth.rule}: {found}"
