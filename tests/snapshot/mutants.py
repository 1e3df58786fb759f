"""The core with one rule taken away: what `test_rules` must catch, each by a checker that has a name.

A mutant replaces a method or two of the real classes for the time of one test. The names of its checkers are
those of `tests.snapshot.truth`, "sequence" for the core's own refusal of a gap, a repeat or a marker in the wrong
place, and "liveness" for a run that does not end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.snapshot import mutants_of_cuts as cuts
from tests.snapshot import mutants_of_order as order
from tests.snapshot import mutants_of_restore as restore
from tests.snapshot.campaign import ANY, Options

UNALIGNED = Options(alignments=("unaligned",), crossing=(False,))
ALIGNED = Options(alignments=("aligned",), cycles=(False,))
TIMED = Options(alignments=(2.0,), cycles=(False,))
CROWDED = Options(alignments=("unaligned",), cycles=(True,), crossing=(False,), small=(True,))


@dataclass(frozen=True)
class Mutant:
    """One rule, and how it is taken away."""

    name: str
    rule: str  #: section of PROTOCOL
    apply: Callable[[pytest.MonkeyPatch], None]
    caught_by: tuple[str, ...]
    options: Options = ANY


MUTANTS = (
    Mutant("records only what arrives after the cut", "1.2", cuts.only_after_the_cut, ("certificate",), UNALIGNED),
    Mutant("takes the first channel as empty", "1.4", cuts.first_channel_empty, ("certificate",), UNALIGNED),
    Mutant("records overtaken messages again", "1.2", cuts.overtaken_recorded_again, ("certificate",), UNALIGNED),
    Mutant("records messages after the marker", "1.2", cuts.after_the_marker_recorded, ("certificate",), TIMED),
    Mutant("never closes a recording", "1.4", cuts.closing_skipped, ("liveness",), UNALIGNED),
    Mutant("drops the last message in flight", "1.3", cuts.last_message_dropped, ("certificate",)),
    Mutant(
        "puts the marker behind later data", "1.1", cuts.marker_behind_data, ("certificate", "causality"), UNALIGNED
    ),
    Mutant("lets the marker wait, but says w", "1.1", cuts.marker_waits_but_says_head, ("sequence",), UNALIGNED),
    Mutant("lets a later marker pass an earlier one", "1.5", cuts.later_marker_first, ("order",), UNALIGNED),
    Mutant("omits the sender's part", "1.1", cuts.senders_part_omitted, ("certificate",), UNALIGNED),
    Mutant("saves more than was sent before the cut", "4.3", cuts.senders_part_beyond_its_cut, ("certificate",), TIMED),
    Mutant("shares recorded messages with handlers", "1.6", cuts.recorded_message_aliased, ("exact cut",), UNALIGNED),
    Mutant("uses an id again", "3.2", order.id_reused, ("certificate", "sequence", "liveness"), UNALIGNED),
    Mutant("cuts in any order", "3.3", order.order_rule_removed, ("order",), UNALIGNED),
    Mutant("passes what still aligns", "3.3", order.order_rule_removed_while_aligning, ("order",), TIMED),
    Mutant("ignores min_snapshot_id", "3.4", order.min_snapshot_id_ignored, ("floor",)),
    Mutant("obeys a late marker", "3.4", order.late_marker_obeyed, ("floor", "completeness")),
    Mutant("does not hold an aligned channel", "4.1", order.aligned_channel_not_held, ("certificate",), ALIGNED),
    Mutant("holds on after an abort", "4.1", order.held_channel_not_released_by_an_abort, ("liveness",), ALIGNED),
    Mutant("does not number the end", "5.1", order.end_not_numbered, ("exact cut", "liveness")),
    Mutant("does not record the end", "5.1", order.end_not_recorded, ("certificate",)),
    Mutant("closes a channel when its end arrives", "5.1", order.closed_on_arrival, ("liveness", "equivalence")),
    Mutant("lets a finished subtask go", "5.2", order.finished_subtask_is_gone, ("liveness",)),
    Mutant("starts after a marker", "5.4", order.on_start_after_a_marker, ("equivalence",)),
    Mutant("keeps links over a rollback", "6.1", restore.links_survive_a_rollback, ("sequence",)),
    Mutant("restarts counters", "6.2", restore.counters_restarted, ("sequence",)),
    Mutant("restores parts in the wrong order", "1.3", restore.parts_swapped, ("sequence",), UNALIGNED),
    Mutant("does not record restored messages", "6.2", restore.restored_messages_not_recorded, ("certificate",)),
    Mutant("drops restored messages", "6.2", restore.restored_messages_dropped, ("delivery", "exact cut")),
    Mutant("drops prepared output on abort", "8", restore.prepared_output_dropped_on_abort, ("output",)),
    Mutant("prepares after the state", "8", restore.prepared_after_the_state, ("output",)),
    Mutant("commits all at any publication", "8", restore.all_committed_at_once, ("output",)),
    Mutant("does not commit again after a restore", "8", restore.not_committed_again, ("output",)),
    Mutant("discards before it commits", "8", restore.discarded_before_the_commit, ("output",)),
    Mutant("does not spill in a cycle", "9.2", restore.cycle_does_not_spill, ("liveness",), CROWDED),
    Mutant("does not save what is spilled", "9.2", restore.spilled_frames_not_saved, ("certificate",), CROWDED),
)
