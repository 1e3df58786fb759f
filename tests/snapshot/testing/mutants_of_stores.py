"""Mutants of a store of aggregates in memory: each breaks one sentence of the contract."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from cutline.snapshot.errors import Fenced
from cutline.snapshot.operators.aggregate_store import AggregateStore, StoreClaim
from cutline.snapshot.stored.backend import StoreRefused
from cutline.state_backends.aggregate_stores import cell_store, texts
from cutline.state_backends.aggregate_stores.cell_store import Cell, CellStore, CellTable, Holder
from cutline.state_backends.aggregate_stores.memory import MemoryStore, MemoryTable

Patch = pytest.MonkeyPatch


def _holder(store: CellStore) -> Holder:
    return store._call(lambda table: table.holder())


def _with_claim_of(change: Callable[[Holder, StoreClaim], StoreClaim], method: str) -> Callable[[Patch], None]:
    """Call a method by another claim than the caller's."""

    def mutate(patch: Patch) -> None:
        original = getattr(CellStore, method)

        def mutant(self: CellStore, claim: StoreClaim, *arguments: Any) -> Any:
            return original(self, change(_holder(self), claim), *arguments)

        patch.setattr(CellStore, method, mutant)

    return mutate


def _as_if_highest(holder: Holder, claim: StoreClaim) -> StoreClaim:
    return StoreClaim(claim.run, max(holder.number, claim.number))


def _as_if_taken(holder: Holder, claim: StoreClaim) -> StoreClaim:
    return StoreClaim(claim.run, min(holder.number, claim.number))


def _as_if_replaced_last(holder: Holder, claim: StoreClaim) -> StoreClaim:
    """Obey the claim that was replaced last, and fence all claims below it."""
    return StoreClaim(claim.run, claim.number + (claim.number == holder.number - 1))


def _as_if_own(holder: Holder, claim: StoreClaim) -> StoreClaim:
    return StoreClaim(holder.run or claim.run, claim.number)


# ---------------------------------------------------------------- the claim as condition

lower_claims_take = _with_claim_of(_as_if_highest, "take")
lower_claims_write = _with_claim_of(_as_if_highest, "write")
lower_claims_commit = _with_claim_of(_as_if_highest, "commit")
lower_claims_roll_back = _with_claim_of(_as_if_highest, "rollBack")
other_runs_take = _with_claim_of(_as_if_own, "take")
claims_write_untaken = _with_claim_of(_as_if_taken, "write")
replaced_claims_write = _with_claim_of(_as_if_replaced_last, "write")


def claims_are_compared_after_writing(patch: Patch) -> None:
    """The claim is checked, but the cells are there."""
    write = CellStore.write

    def mutant(self: CellStore, claim: StoreClaim, snapshot_id: int, items: Sequence[tuple[Any, Any]]) -> None:
        write(self, _as_if_highest(_holder(self), claim), snapshot_id, items)
        if claim.number < _holder(self).number:
            raise Fenced(f"{self}: too late")

    patch.setattr(CellStore, "write", mutant)


def former_names_are_foreign(patch: Patch) -> None:
    rule = CellStore._refuse_older
    patch.setattr(
        CellStore, "_refuse_older", lambda self, holder, claim: rule(self, holder, replace(claim, formerly=()))
    )


def errors_have_no_name(patch: Patch) -> None:
    def mutant(self: CellStore, holder: Holder, claim: StoreClaim) -> None:
        if holder.number and holder.run != claim.run:
            raise StoreRefused("the store belongs to another run")
        if claim.number < holder.number:
            raise Fenced("a higher claim has taken the store")

    patch.setattr(CellStore, "_refuse_older", mutant)


# ---------------------------------------------------------------- the committed id


def begins_with_one(patch: Patch) -> None:
    patch.setattr(MemoryTable, "holder", lambda self: replace(self._holder, committed=abs(self._holder.committed)))


def take_forgets_the_committed_id(patch: Patch) -> None:
    take = CellStore.take
    patch.setattr(CellStore, "take", lambda self, claim: 0 * take(self, claim))


def commit_does_nothing(patch: Patch) -> None:
    patch.setattr(
        CellStore, "commit", lambda self, claim, snapshot_id: self._deed(lambda table: self._check(table, claim))
    )


def commit_goes_back(patch: Patch) -> None:
    def mutant(self: CellStore, claim: StoreClaim, snapshot_id: int) -> None:
        self._deed(lambda table: table.hold(replace(self._check(table, claim), committed=snapshot_id)))

    patch.setattr(CellStore, "commit", mutant)


def commit_counts_one_id_only(patch: Patch) -> None:
    """Cells of an earlier snapshot that was not committed itself do not count."""

    def mutant(self: MemoryTable, key: str, committed: int) -> str | None:
        cell = self._cells.get(key)
        if cell is None:
            return None
        return cell.value if cell.snapshot_id not in self._written else cell.previous

    def hold(self: MemoryTable, holder: Holder) -> None:
        self._holder = holder
        self._written.pop(holder.committed, None)

    patch.setattr(MemoryTable, "_counting", mutant)
    patch.setattr(MemoryTable, "hold", hold)


def each_connection_commits_its_own(patch: Patch) -> None:
    """There is no one commit for all subtasks."""
    wrote: dict[str, int] = {}
    write = CellStore.write

    def mutant(self: CellStore, claim: StoreClaim, snapshot_id: int, items: Sequence[tuple[Any, Any]]) -> None:
        write(self, claim, snapshot_id, items)
        wrote.update({texts.to_text(key): id(self) for key, _ in items})

    def commit(self: CellStore, claim: StoreClaim, snapshot_id: int) -> None:
        table = self._call(lambda each: each)
        assert isinstance(table, MemoryTable)
        for key, cell in table._cells.items():
            if cell.snapshot_id > _holder(self).committed and wrote[key] != id(self):
                table._cells[key] = cell._replace(snapshot_id=2**60)
        original(self, claim, snapshot_id)

    original = CellStore.commit
    patch.setattr(CellStore, "write", mutant)
    patch.setattr(CellStore, "commit", commit)


def committed_ids_are_written(patch: Patch) -> None:
    def mutant(self: CellStore, claim: StoreClaim, snapshot_id: int, items: Sequence[tuple[Any, Any]]) -> None:
        pairs = [(self._text(key, key), self._value_text(key, value)) for key, value in items]
        self._deed(lambda table: table.write(pairs, snapshot_id, self._check(table, claim).committed))

    patch.setattr(CellStore, "write", mutant)


# ---------------------------------------------------------------- cells


def _cells_are(cell: Callable[[MemoryTable, str, str, int, int], Cell]) -> Callable[[Patch], None]:
    def mutate(patch: Patch) -> None:
        def write(self: MemoryTable, pairs: Sequence[tuple[str, str]], snapshot_id: int, committed: int) -> None:
            self._cells.update((key, cell(self, key, value, snapshot_id, committed)) for key, value in pairs)
            self._written.setdefault(snapshot_id, set()).update(key for key, _ in pairs)

        patch.setattr(MemoryTable, "write", write)

    return mutate


def _newest(table: MemoryTable, key: str) -> str | None:
    cell = table._cells.get(key)
    return None if cell is None else cell.value


no_value_before = _cells_are(lambda table, key, value, id_, committed: Cell(value, id_, None))
value_before_is_the_newest = _cells_are(lambda table, key, value, id_, committed: Cell(value, id_, _newest(table, key)))
value_before_is_the_new_one = _cells_are(lambda table, key, value, id_, committed: Cell(value, id_, value))
first_write_stays = _cells_are(
    lambda table, key, value, id_, committed: (
        table._cells[key]
        if key in table._cells and table._cells[key].snapshot_id == id_
        else Cell(value, id_, table._counting(key, committed))
    )
)
writes_count_at_once = _cells_are(lambda table, key, value, id_, committed: Cell(value, committed, None))


def newest_counts(patch: Patch) -> None:
    """A reader sees what is not committed."""
    patch.setattr(MemoryTable, "read", lambda self, keys: [_newest(self, key) for key in keys])


def half_a_write_stays(patch: Patch) -> None:
    """A call that is refused at its last cell has written the cells ahead of it."""
    write = CellStore.write

    def mutant(self: CellStore, claim: StoreClaim, snapshot_id: int, items: Sequence[tuple[Any, Any]]) -> None:
        for item in items:
            write(self, claim, snapshot_id, [item])

    patch.setattr(CellStore, "write", mutant)


def large_calls_lose_their_end(patch: Patch) -> None:
    write = MemoryTable.write

    def mutant(self: MemoryTable, pairs: Sequence[tuple[str, str]], snapshot_id: int, committed: int) -> None:
        write(self, pairs[:4096], snapshot_id, committed)

    patch.setattr(MemoryTable, "write", mutant)


def answers_are_sorted(patch: Patch) -> None:
    """Values come in the sequence of the keys' texts."""
    read = MemoryTable.read
    patch.setattr(MemoryTable, "read", lambda self, keys: read(self, sorted(keys)))


def missing_keys_are_left_out(patch: Patch) -> None:
    read = MemoryTable.read
    patch.setattr(MemoryTable, "read", lambda self, keys: [each for each in read(self, keys) if each is not None])


def get_returns_zero(patch: Patch) -> None:
    patch.setattr(AggregateStore, "get", lambda self, key: self.current([key])[0] or 0)


# ---------------------------------------------------------------- rollbacks


def _rolls_back(roll_back: Callable[[MemoryTable, int, int], None]) -> Callable[[Patch], None]:
    return lambda patch: patch.setattr(MemoryTable, "roll_back", roll_back)


def _to_previous(table: MemoryTable, least: int, committed: int) -> None:
    for key, cell in list(table._cells.items()):
        if cell.snapshot_id >= least:
            del table._cells[key]
            if cell.previous is not None:
                table._cells[key] = Cell(cell.previous, committed, None)


def _removing(table: MemoryTable, snapshot_id: int, committed: int) -> None:
    table._cells = {key: cell for key, cell in table._cells.items() if cell.snapshot_id <= snapshot_id}


def _keeping_new(table: MemoryTable, snapshot_id: int, committed: int) -> None:
    for key, cell in table._cells.items():
        if cell.snapshot_id > snapshot_id and cell.previous is not None:
            table._cells[key] = Cell(cell.previous, committed, None)


rolls_nothing_back = _rolls_back(lambda table, snapshot_id, committed: None)
rolls_all_back = _rolls_back(lambda table, snapshot_id, committed: _to_previous(table, committed + 1, committed))
rolls_the_snapshot_back = _rolls_back(lambda table, snapshot_id, committed: _to_previous(table, snapshot_id, committed))
rollback_removes_cells = _rolls_back(_removing)
rollback_leaves_new_cells = _rolls_back(_keeping_new)


def rolls_back_below_the_commit(patch: Patch) -> None:
    def mutant(self: CellStore, claim: StoreClaim, snapshot_id: int) -> None:
        self._deed(lambda table: table.roll_back(snapshot_id, self._check(table, claim).committed))

    patch.setattr(CellStore, "rollBack", mutant)


# ---------------------------------------------------------------- kinds of keys and values


def keys_are_compared_by_value(patch: Patch) -> None:
    """1, 1.0 and True are one key, as in a dict."""
    patch.setattr(
        CellStore, "_text", lambda self, key, value: texts.to_text(float(value) if value in (0, 1) else value)
    )


def _read_as(change: Callable[[Any], Any]) -> Callable[[Patch], None]:
    return lambda patch: patch.setattr(cell_store, "from_text", lambda text: change(texts.from_text(text)))


integers_are_floats = _read_as(lambda value: float(value) if type(value) is int and abs(value) < 10**300 else value)
booleans_are_integers = _read_as(lambda value: int(value) if type(value) is bool else value)
zero_has_no_sign = _read_as(lambda value: abs(value) if value == 0 and type(value) is float else value)
tuples_are_lists = _read_as(lambda value: list(value) if type(value) is tuple else value)
bytes_are_text = _read_as(lambda value: value.decode("latin-1") if type(value) is bytes else value)
bytes_are_numbers = _read_as(lambda value: value.lstrip(b"\0") if type(value) is bytes else value)
tagged_tuples_are_bytes = _read_as(lambda value: b"" if value == ("bytes", "") else value)
text_ends_at_a_zero = _read_as(lambda value: value.partition("\0")[0] if type(value) is str else value)
integers_have_64_bits = _read_as(lambda value: value % 2**63 if type(value) is int else value)


def takes_any_float(patch: Patch) -> None:
    to_json = texts._to_json
    patch.setattr(texts, "_to_json", lambda value: value if type(value) is float else to_json(value))


def takes_none(patch: Patch) -> None:
    patch.setattr(CellStore, "_value_text", lambda self, key, value: self._text(key, value))


# ---------------------------------------------------------------- copies and connections


def copies_are_empty(patch: Patch) -> None:
    patch.setattr(CellStore, "__getstate__", lambda self: {**vars(self), "_id": "of copies", "_table": None})


def copies_are_connected(patch: Patch) -> None:
    patch.setattr(CellStore, "__getstate__", lambda self: vars(self))


def connections_have_their_own(patch: Patch) -> None:
    """Two instances that should be one store are two."""
    patch.setattr(MemoryStore, "_connect", lambda self: MemoryTable())


def closed_is_empty(patch: Patch) -> None:
    close = CellStore.close

    def mutant(self: CellStore) -> None:
        close(self)
        if sys.exception() is None:  # because an error ends a connection too
            self._table = _Closed(self._connect())

    patch.setattr(CellStore, "close", mutant)


class _Closed:
    """A table that nobody can read any more."""

    def __init__(self, table: CellTable) -> None:
        self._open = table

    def __getattr__(self, name: str) -> Any:
        return getattr(self._open, name)

    def read(self, keys: Sequence[str]) -> list[str | None]:
        return [None for _ in keys]
