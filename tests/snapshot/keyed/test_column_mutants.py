"""Each rule of totals by the column is needed: a test of columns fails without it."""

from __future__ import annotations

import pytest

from cutline.snapshot.columns import reductions
from cutline.snapshot.columns.key_slots import KeySlots
from cutline.snapshot.columns.slot_blocks import CapturedSlots, SlotBlocks
from cutline.snapshot.keyed import column_table, dirty_columns, key_columns
from cutline.snapshot.keyed.column_table import ColumnTable
from tests.mutation import Mutant, require_all_pass, require_teeth
from tests.snapshot.keyed import test_columns

_KEPT, _UNKEPT = "found = copies.setdefault(block, copy)", "found = copies[block] = copy"
_FORGET = "blocks.forget(slots[blocks.is_fresh(slots)])"
_EXPIRED = "alive & (ends > now)"
_TWO_KEYS = """if columns[0].type == pa.int8():
        return [Part(OtherKeys(columns[0].to_pylist()), None)]
    if has_form.all():"""

MUTANTS = (
    Mutant("a capture begins an interval", SlotBlocks, "capture", "self._interval += 1", "pass"),
    Mutant("a block is frozen", SlotBlocks, "capture", "self._frozen.fill(True)", "pass"),
    Mutant("marks begin anew", SlotBlocks, "capture", "self._interval > _INTERVAL_MAX", "False"),
    Mutant("a write copies frozen blocks", SlotBlocks, "copy_frozen", "captured.copy(block)", "pass"),
    Mutant("the first copy counts", CapturedSlots, "copy", _KEPT, _UNKEPT),
    Mutant("a stored capture is over", CapturedSlots, "end", "self._copies = None", "pass"),
    Mutant("a due tombstone keeps its slot", ColumnTable, "_rebuild", " | blocks.is_dirty(slice(None))", ""),
    Mutant("a half dead table is built anew", ColumnTable, "_rebuild", "2 * len(kept) > blocks.capacity", "True"),
    Mutant("a cleared total leaves a tombstone", ColumnTable, "_bury", "if leaves_tombstones:", "if False:"),
    Mutant(
        "a fresh total leaves no tombstone",
        ColumnTable,
        "_bury",
        "blocks.forget(slots[blocks.is_fresh(slots)])",
        "pass",
    ),
    Mutant("a total with a tombstone due is not fresh", ColumnTable, "_write", "dead[~blocks.is_dirty(dead)]", "dead"),
    Mutant("an expired total begins anew", ColumnTable, "_write", "is_expired.any()", "False"),
    Mutant("a dead total begins anew", ColumnTable, "_kill", "totals[slots] = self._reduction.start", "pass"),
    Mutant("classes do not mix", ColumnTable, "_reduction_of", "in (numbers.dtype, np.object_)", "is not None"),
    Mutant("a dead total is none", ColumnTable, "_become_exact", "totals[~alive] = exact.start", "pass"),
    Mutant("a sum does not wrap", reductions, "_add_halves", "if len(overflown):", "if False:"),
    Mutant("restored totals count for the bound", ColumnTable, "restore", "reduction.replaced()", "pass"),
    Mutant("int8 and int64 are one key", key_columns, "_column_parts", "if has_form.all():", _TWO_KEYS),
    Mutant("forms have slots of their own", KeySlots, "_slots_of", "len(self._listed) == 1", "True"),
    Mutant("an expired row is a tombstone", dirty_columns, "encode_totals", _EXPIRED, "alive"),
)


def test_without_a_mutant_all_pass() -> None:
    """The scenarios are those of the module, so that a mutant that fails them is found by it."""
    require_all_pass(test_columns, 20)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.rule)
def test_every_rule_has_teeth(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some scenario fails without the rule."""
    if mutant.owner is dirty_columns:
        mutant.apply(monkeypatch)
        monkeypatch.setattr(column_table, mutant.function, dirty_columns.encode_totals)
        mutant = Mutant(mutant.rule, ColumnTable, "sweep", "return 0", "return 0")  # nothing else changes
    require_teeth(mutant, test_columns, monkeypatch)
