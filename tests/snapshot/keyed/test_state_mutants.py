"""Each rule of states is needed: a test of states or captures fails without it."""

from __future__ import annotations

from types import ModuleType

import pytest

from cutline.snapshot.keyed import row_table, states
from cutline.snapshot.keyed.keyed_states import KeyedStates
from cutline.snapshot.keyed.list_table import ListTable, TimedListTable
from cutline.snapshot.keyed.nested_table import NestedTable
from cutline.snapshot.keyed.restored_rows import RestoredRows
from cutline.snapshot.keyed.row_table import RowTable
from cutline.snapshot.keyed.state_rules import StateRules
from cutline.snapshot.keyed.table import StateTable
from cutline.snapshot.subtask.timers import Timers
from tests.mutation import Mutant, require_all_pass, require_teeth
from tests.snapshot.keyed import test_captures, test_states

_UPDATE = "def update(_: Any, value: Any) -> None:"
_KEEPS = "def update(_: Any, value: Any, dirty: Any = dirty) -> None:"

STATES = (
    Mutant("a value is stored by value", StateRules, "stored", "self.owner.codec.encode(value)", "value"),
    Mutant("a value is read by value", StateRules, "value_of", "self.owner.codec.decode(stored)", "stored"),
    Mutant("None is no value", StateRules, "stored", "elif value is None:", "elif False:"),
    Mutant("a float is no key", StateRules, "plain_key", "return plain_key(key)", "return key"),
    Mutant("keys of bulk calls are checked", StateRules, "plain_keys", "list(map(self.plain_key, keys))", "keys"),
    Mutant("None needs to be the current key", StateRules, "require_key", "not self.context.has_key", "False"),
    Mutant("a null adds nothing", states._Reducing, "addAll", "value is not None", "True"),
    Mutant(
        "a state has one meaning", KeyedStates, "ask", "elif (asked.spec, asked.plus) != (spec, plus)", "elif False"
    ),
    Mutant("open ends the asking", KeyedStates, "opened", "self._restored = None", "pass"),
    Mutant("a key decides the subtask", KeyedStates, "_make", "self._parallelism > 1", "False"),
    Mutant("a change ends iterators", StateTable, "changed", "self.iterations.clear()", "pass"),
    Mutant("a hook ends iterators", StateTable, "_iterate", "iteration.moment != self.context.moment()", "False"),
    Mutant("kinds differ", RestoredRows, "check_kind", "stored_kind is not kind", "False"),
)

CAPTURES = (
    Mutant("a kept method writes to the new dict", row_table, "update_of", _UPDATE, _KEEPS),
    Mutant("a capture is of each change once", RowTable, "take_dirty", "self._take()", "self._dirty()"),
    Mutant("a captured key is old", StateTable, "take_fresh", "self.fresh = set()", "pass"),
    Mutant("a key set anew is old", StateTable, "admit", "elif key not in self.dirty_keys():", "else:"),
    Mutant("a fresh row leaves no tombstone", RowTable, "remove", "elif key in self.fresh", "elif False"),
    Mutant("a fresh list leaves no tombstone", ListTable, "remove", "key in self.fresh", "False"),
    Mutant("a fresh dict leaves no tombstone", NestedTable, "remove", "key in self.fresh", "False"),
    Mutant("an old row is buried", RowTable, "remove", "self._dirty()[key] = None\n    self._f", "pass\n    self._f"),
    Mutant("a removed list leaves no length", TimedListTable, "removed_subs", "[*rows, None]", "[*rows]"),
    Mutant("an expired row is absent", RowTable, "_has_expired", "<= self.context.now", "< 0"),
    Mutant("an expired sub-row is absent", NestedTable, "_has_expired", "<= self.context.now", "< 0"),
    Mutant("a sweep is bounded", RowTable, "sweep", "swept < limit", "True"),
    Mutant("a sweep leaves no fresh row", RowTable, "sweep", "key in self.fresh", "False"),
    Mutant("the end of the time is stored", RowTable, "take_dirty", "ends if self.ends is not None else None", "None"),
    Mutant("a write without time lasts", RowTable, "write", "self._forget_end(key)", "pass"),
    Mutant("the newest segment counts", RestoredRows, "__init__", "= segments", "= segments[::-1]"),
    Mutant("stored ends are found", RestoredRows, "has_expiries", "return name in", "return name not in"),
    Mutant("a keyed timer is a row", Timers, "_note", "if key is NO_KEY:", "if True:"),
    Mutant("a timer without a key is no row", Timers, "_note", "if key is NO_KEY:", "if key is None:"),
    Mutant("the second change undoes the first", Timers, "_note", "elif at not in rows:", "elif True:"),
    Mutant("a fired timer is gone", Timers, "pop_due", "self._note(at, key, None)", "pass"),
    Mutant("an old timer is a changed row", Timers, "restore", "self.register", "self._add"),
    Mutant("a restored timer is no changed row", Timers, "restore_rows", "self._add", "self.register"),
)  # fmt: skip


@pytest.mark.parametrize(("module", "count"), [(test_states, 40), (test_captures, 12)])
def test_without_a_mutant_all_pass(module: ModuleType, count: int) -> None:
    """The scenarios are those of the modules, so that a mutant that fails them is found by it."""
    require_all_pass(module, count)


@pytest.mark.parametrize("mutant", STATES, ids=lambda mutant: mutant.rule)
def test_every_rule_of_states_has_teeth(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some scenario fails without the rule."""
    require_teeth(mutant, test_states, monkeypatch)


@pytest.mark.parametrize("mutant", CAPTURES, ids=lambda mutant: mutant.rule)
def test_every_rule_of_captures_has_teeth(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some scenario fails without the rule."""
    if mutant.owner is row_table:
        with monkeypatch.context() as patched:
            mutant.apply(patched)
            changed = row_table.update_of
        monkeypatch.setattr(states, mutant.function, changed)
        mutant = mutant._replace(rule=mutant.rule, old=_UPDATE, new=_UPDATE)
    require_teeth(mutant, test_captures, monkeypatch)
