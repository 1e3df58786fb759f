"""Each rule of keyed rows is needed: code without it breaks a property of `tests.snapshot.keyed.properties`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.snapshot.keyed import mutants_of_rows as mutants
from tests.snapshot.keyed import properties
from tests.snapshot.keyed.properties import QUICK, Property


@dataclass(frozen=True)
class Tooth:
    """A rule that is taken away, and the property that breaks."""

    name: str
    how: Callable[[pytest.MonkeyPatch], None]
    breaks: Property


_MODEL, _GROUPING = properties.a_list_is_the_model, properties.compactions_change_nothing
_PIECES, _DONORS = properties.merging_pieces_is_merging_segments, properties.donors_give_each_row_to_one_heir
_FOREIGN, _KEYS = properties.a_key_of_another_subtask_is_refused, properties.keys_are_canonical
_EXPIRED, _RANGES = properties.expired_rows_hide_older_rows, properties.ranges_are_those_of_subtasks

TEETH = (
    Tooth("an older row comes back behind a tombstone", mutants.tombstones_always_dropped, _GROUPING),
    Tooth("an older row comes back behind an expired row", mutants.expired_always_dropped, _EXPIRED),
    Tooth("tombstones and expired rows stay for ever", mutants.nothing_dropped, _MODEL),
    Tooth("expiry is judged by the oldest time", mutants.expiry_by_the_oldest_now, _MODEL),
    Tooth("a row expired at its capture is left out", mutants.expired_row_left_out, _MODEL),
    Tooth("the oldest row is kept", mutants.oldest_row_kept, _MODEL),
    Tooth("an earlier table of a capture wins", mutants.earlier_table_wins, _MODEL),
    Tooth("indexes of states are not mapped", mutants.state_indexes_not_mapped, _MODEL),
    Tooth("rows of one key are one row", mutants.sub_keys_ignored, _MODEL),
    Tooth("rows of two states are one row", mutants.states_ignored, _MODEL),
    Tooth("expiries of rows with sub-keys are forgotten", mutants.expiry_forgotten, _MODEL),
    Tooth("only the first chunk is encoded", mutants.only_one_chunk, _MODEL),
    Tooth("all rows are read as one state's", mutants.wrong_state_read, _MODEL),
    Tooth("clips are ignored", mutants.clips_ignored, _DONORS),
    Tooth("a clip begins a group late", mutants.clip_one_short, _PIECES),
    Tooth("a piece ends a group early", mutants.piece_one_short, _PIECES),
    Tooth("a range ends a group early", mutants.range_one_short, _RANGES),
    Tooth("a range is rounded down", mutants.range_rounded_down, _RANGES),
    Tooth("keys of other subtasks are taken", mutants.foreign_keys_taken, _FOREIGN),
    Tooth("keys behind the range are taken", mutants.end_of_the_range_taken, _FOREIGN),
    Tooth("a column of text is hashed as bytes", mutants.text_is_hashed_as_bytes, _FOREIGN),
    Tooth("True and 1 are two keys", mutants.bool_is_its_own_key, _KEYS),
    Tooth("a column writes long ints", mutants.long_ints_everywhere, _KEYS),
    Tooth("a tuple comes back as a list", mutants.tuple_comes_back_as_list, _KEYS),
)


@pytest.mark.parametrize("tooth", TEETH, ids=lambda tooth: tooth.name)
def test_every_rule_has_teeth(tooth: Tooth, monkeypatch: pytest.MonkeyPatch) -> None:
    """A history breaks the property once the rule is taken away."""
    tooth.how(monkeypatch)
    with pytest.raises(AssertionError):
        tooth.breaks.holds(QUICK)
