"""Each rule of the rows of keyed aggregates is needed: a test of the rows fails without it."""

from __future__ import annotations

import pytest

from cutline import KeyedAggregate
from cutline.snapshot.columns.slot_blocks import SlotBlocks
from cutline.snapshot.keyed import encoding
from cutline.snapshot.keyed.cold_tier import ColdTier
from cutline.snapshot.keyed.row_grouping import RowGrouping
from cutline.snapshot.operators import groups
from cutline.snapshot.operators.groups import Groups
from tests.mutation import Mutant, require_all_pass, require_teeth
from tests.snapshot.operators import test_aggregate_rows

_SHORT_OF_COLUMNS = "self._interval += [table for table in taken if not isinstance(table, DirtyTable)]"

MUTANTS = (
    Mutant("groups so far count as changed", Groups, "track", "self._blocks.written(np.arange(len(self)))", "pass"),
    Mutant("a batch changes its groups", SlotBlocks, "write", "self.written(slots)", "pass"),
    Mutant("a batch copies frozen groups", SlotBlocks, "write", "self.copy_frozen(slots)", "pass"),
    Mutant("a batch that comes later is a change", SlotBlocks, "write", "slot_count == self._all_written", "True"),
    Mutant("restored sums count for the bound", Groups, "restore", "total.reduction.replaced()", "pass"),
    Mutant("a bool comes back", groups, "_restored_keys", "pa.types.is_boolean(kind)", "False"),
    Mutant("new groups are noted", KeyedAggregate, "_new_groups", "if self._has_rows:", "if False:"),
    Mutant("a tier of cold rows passes columns on", ColdTier, "seal", _SHORT_OF_COLUMNS, "pass"),
    Mutant("the edge decides the group", encoding, "_batch", "if grouping is None:", "if True:"),
    Mutant("the sequence of the edge counts", RowGrouping, "groups", "in places)", "in sorted(places))"),
    Mutant("a key of one column may be a tuple", RowGrouping, "of_edges", "not isinstance(found[0], str)", "False"),
    Mutant("several edges have one key", RowGrouping, "of_edges", "if len(found) == 1 and", "if"),
)


def test_without_a_mutant_all_pass() -> None:
    """The scenarios are those of the module, so that a mutant that fails them is found by it."""
    require_all_pass(test_aggregate_rows, 15)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.rule)
def test_every_rule_has_teeth(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some scenario fails without the rule."""
    require_teeth(mutant, test_aggregate_rows, monkeypatch)
