"""Each rule of a cold tier is needed: a test of its rows, its timers or its expiries fails without it."""

from __future__ import annotations

from types import ModuleType

import pytest

from cutline.snapshot.keyed import cold_expiry, encoding
from cutline.snapshot.keyed.cold_expiry import ExpiredRows
from cutline.snapshot.keyed.cold_tier import ColdTier
from cutline.snapshot.keyed.cold_timers import ColdTimers
from cutline.snapshot.keyed.keyed_states import KeyedStates
from cutline.snapshot.keyed.memtable import Memtable, MemtableGate
from cutline.snapshot.keyed.row_table import RowTable
from cutline.snapshot.subtask.machine import SubtaskMachine
from cutline.snapshot.subtask.timers import Timers
from tests.mutation import Mutant, require_all_pass, require_teeth
from tests.snapshot.keyed import test_cold_expiry, test_cold_tier, test_cold_timers

_ENCODED_AGAIN = "encoding_tables(replace(captured, tables=memtable.tables), codec)"

ROWS = (
    Mutant("memtables are read until applied", ColdTier, "collect", "self.memtables[0].is_applied", "True"),
    Mutant("a memtable is encoded once", encoding, "encoding", "memtable.encoding()", _ENCODED_AGAIN),
    Mutant("one thread does a step", Memtable, "_step", "self._turns.pop()", "pass"),
    Mutant("each caller gets the error", Memtable, "_step", "self._error = error", "pass"),
    Mutant("an encoded memtable waits for storage", Memtable, "is_empty", "self.is_taken and", ""),
    Mutant("the writer keeps what storage has", Memtable, "_forget", "self.is_applied and", ""),
    Mutant("storage gets what the writer has", Memtable, "_forget", "and self.is_taken", ""),
    Mutant("nobody keeps encoded rows", Memtable, "_forget", "self._segment = None", "pass"),
    Mutant("a foreign key is refused", encoding, "encoding", "_require_groups(segment, captured.groups)", "pass"),
    Mutant("a busy store gets nothing", ColdTier, "_applying", "self.store.is_busy", "False"),
    Mutant("a memtable is applied last", ColdTier, "_applying", "yield from self._adding", "self._adding"),
    Mutant("a bulk write goes to the cache", RowTable, "write_all", "live.update(rows)", "pass"),
    Mutant("a write goes to the cache", RowTable, "write", "self.live[key] = self._dirty", "self._dirty"),
    Mutant("an iteration keeps memtables", ColdTier, "_is_iterated", "return any", "return not any"),
    Mutant("an applied memtable is due", ColdTier, "is_due", "has_passed or", ""),
    Mutant("memtables in memory are counted", MemtableGate, "update", "or len(self._held) >= HELD_MAX", ""),
    Mutant("an empty memtable makes room", MemtableGate, "can_open", "self._is_closed and", "False and"),
    Mutant("a turn needs no event", SubtaskMachine, "runnable", "self.core.keyed.is_due", "False"),
    Mutant("a turn ends iterations", KeyedStates, "sweep", "table.iterations.clear()", "pass"),
)

_STORED = "self._below.store.get(_row(at, key)) is not None"

TIMERS = (
    Mutant("near timers have a limit", Timers, "register", "> self._cold.near_max", "> 10**9"),
    Mutant("whether a timer is stored is known", ColdTimers, "holds", _STORED, "True"),
    Mutant("a search begins at the horizon", ColdTimers, "_far", "scan(self._horizon", "scan(TIMERS_START"),
    Mutant("changed rows count over stored ones", ColdTimers, "_change", "return rows[at] is not None", "pass"),
    Mutant("a deleted timer is gone", ColdTimers, "load", "if change or", "if change is not None or"),
    Mutant("timers of one time are near or far", ColdTimers, "is_near", "_row(at, key) < self._horizon", "True"),
    Mutant("far timers that wait are found", ColdTimers, "far_of", "self.add(at, key)", "pass"),
    Mutant("sealed far timers are found", ColdTimers, "far_of", "heapq.heappush(heap, (_row(at, key), key))", "pass"),
    Mutant("applied timers leave the heaps", ColdTimers, "_drop_applied", "while self._sealed and", "while False and"),
    Mutant("far timers come before later ones", Timers, "next_at", "at <= self._cold.horizon_at", "True"),
)

EXPIRIES = (
    Mutant("a rewritten row stays", ExpiredRows, "_remove", "and end <= now", ""),
    Mutant("index rows go too", ExpiredRows, "_remove", "removing(store, index)", "removing(store, index[:0])"),
    Mutant("a search begins behind removed rows", ExpiredRows, "_remove", 'self._start = index[-1] + b"\\0"', "pass"),
    Mutant("a late row moves the search back", ExpiredRows, "listed", "self._start = min(self._start, first)", "pass"),
    Mutant("a late row is due", ExpiredRows, "listed", "self._next_at = min", "min"),
    Mutant("a job removes few rows", cold_expiry, "_due", "or len(found) == SWEPT_MAX", ""),
    Mutant("added rows may be due", ColdTier, "_adding", "self._expired.listed(rows.first_index_row)", "pass"),
    Mutant("a restore drops expired rows", ColdTier, "_adding", "in segment.states], now)", "in segment.states], 0.0)"),
)


@pytest.mark.parametrize(("module", "count"), [(test_cold_tier, 12), (test_cold_timers, 7), (test_cold_expiry, 8)])
def test_without_a_mutant_all_pass(module: ModuleType, count: int) -> None:
    """The scenarios are those of the modules, so that a mutant that fails them is found by it."""
    require_all_pass(module, count)


@pytest.mark.parametrize(
    ("mutant", "module"),
    [
        *((mutant, test_cold_tier) for mutant in ROWS),
        *((mutant, test_cold_timers) for mutant in TIMERS),
        *((mutant, test_cold_expiry) for mutant in EXPIRIES),
    ],
    ids=lambda each: each.rule if isinstance(each, Mutant) else "",
)
def test_every_rule_has_teeth(mutant: Mutant, module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some scenario fails without the rule."""
    require_teeth(mutant, module, monkeypatch)
