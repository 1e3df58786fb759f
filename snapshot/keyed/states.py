"""Make the states that nodes hold, over the tables of their rows. `snapshot.state` has the contracts.

The class of a state is made for that state alone, because a method of a class is called faster than an attribute.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from cutline.snapshot.channel.plain_keys import PLAIN_KEYS
from cutline.snapshot.columns.reductions import PLUS
from cutline.snapshot.error_text import headline, shown
from cutline.snapshot.keyed.bulk import key_list, value_list
from cutline.snapshot.keyed.column_table import ColumnTable
from cutline.snapshot.keyed.kinds import StateKind
from cutline.snapshot.keyed.list_table import ListTable, TimedListTable
from cutline.snapshot.keyed.nested_table import NestedTable
from cutline.snapshot.keyed.row_table import RowTable, add_of, get_of, update_of
from cutline.snapshot.keyed.rows import StateSpec
from cutline.snapshot.keyed.state_rules import KeyedStateSettings
from cutline.snapshot.keyed.table import StateTable
from cutline.snapshot.state import (
    NAMED_REDUCTIONS,
    KeyedState,
    ListState,
    MapState,
    NamedReduction,
    ReducingState,
    ValueState,
)

#: A named function of `ReducingState`, or a function of two values.
Plus = NamedReduction | Callable[[Any, Any], Any]

#: The table of a state, and the state that the node calls.
Made = tuple[StateTable, KeyedState]


class _Bulk:
    """What all states do without a current key."""

    def __init__(self, table: Any) -> None:
        self._table = table

    def clearAll(self, keys: Any) -> None:
        table = self._table
        for key in _keys(table, keys):
            table.remove(key)

    def items(self) -> Iterator[tuple[Any, Any]]:
        found: Iterator[tuple[Any, Any]] = self._table.items()
        return found

    def clear(self) -> None:
        self._table.remove(self._table.current_key())


class _Value(_Bulk, ValueState):
    _table: RowTable

    def get(self) -> Any:
        table = self._table
        key = table.current_key()
        return table.value_of(table.read(key), key)

    def update(self, value: Any) -> None:
        table = self._table
        key = table.current_key()
        table.write(key, table.stored(value, key))

    def exists(self) -> bool:
        return self._table.read(self._table.current_key()) is not None

    def getAll(self, keys: Any) -> list[Any]:
        return self._table.read_all(_keys(self._table, keys))

    def updateAll(self, keys: Any, values: Any) -> None:
        table = self._table
        listed, stored = _pairs(table, keys, values)
        table.write_all(listed, table.stored_all(stored, listed))


class _Reducing(_Bulk, ReducingState):
    _table: RowTable

    def __init__(self, table: RowTable, plus: Plus) -> None:
        super().__init__(table)
        self._plus = plus

    def get(self) -> Any:
        table = self._table
        key = table.current_key()
        return table.value_of(table.read(key), key)

    def add(self, value: Any) -> None:
        table = self._table
        key = table.current_key()
        table.write(key, self.reduced(table.read(key), value, key))

    def getAll(self, keys: Any) -> list[Any]:
        return self._table.read_all(_keys(self._table, keys))

    def addAll(self, keys: Any, values: Any) -> None:
        table, reduced = self._table, self.reduced
        listed, added = _pairs(table, keys, values)
        table.fetch(listed)
        for key, value in zip(listed, added, strict=True):
            if value is not None:
                table.write(key, reduced(table.read(key), value, key))

    def reduced(self, total: Any, value: Any, key: Any) -> Any:
        """Return what a row holds after `value` is added to what it holds, or to None for an absent row."""
        table, plus = self._table, self._plus
        if value is None:
            raise table.error("None is no value that can be added", key)
        if isinstance(plus, str):
            value = 1 if plus == "count" else _number(table, plus, value, key)
            return value if total is None else PLUS[plus](table.value_of(total, key), value)  # may be beyond 64 bits
        if total is None:
            return table.stored(value, key)
        try:
            result = plus(table.value_of(total, key), value)
        except Exception as error:
            raise table.error(f"the function of the state raised {headline(error)}", key) from error
        return table.stored(result, key)


class _Columns(_Bulk, ReducingState):
    _table: ColumnTable

    def get(self) -> Any:
        return self._table.read_all([self._table.current_key()])[0]

    def add(self, value: Any) -> None:
        table = self._table
        key = table.current_key()
        if value is None:
            raise table.error("None is no value that can be added", key)
        table.add_all([key], [value])

    def getAll(self, keys: Any) -> list[Any]:
        return self._table.read_all(keys)

    def addAll(self, keys: Any, values: Any) -> None:
        self._table.add_all(keys, values)

    def clearAll(self, keys: Any) -> None:
        self._table.remove_all(keys)


class _List(_Bulk, ListState):
    _table: ListTable | TimedListTable

    def get(self) -> list[Any]:
        table = self._table
        key = table.current_key()
        return [table.value_of(stored, key) for stored in table.items_of(key)]

    def appendValue(self, value: Any) -> None:
        table = self._table
        key = table.current_key()
        table.append(key, [table.stored(value, key)])

    def appendList(self, values: Iterable[Any]) -> None:
        table = self._table
        key = table.current_key()
        table.append(key, [table.stored(value, key) for value in values])

    def put(self, values: Iterable[Any]) -> None:
        table = self._table
        key = table.current_key()
        stored = [table.stored(value, key) for value in values]
        table.remove(key)
        table.append(key, stored)

    def exists(self) -> bool:
        return bool(self._table.items_of(self._table.current_key()))


class _Map(_Bulk, MapState):
    _table: NestedTable

    def getValue(self, key: Any) -> Any:
        table, sub = self._table, self._sub(key)
        current = table.current_key()
        return table.value_of(table.read(current, sub), current)

    def updateValue(self, key: Any, value: Any) -> None:
        table, sub = self._table, self._sub(key)
        current = table.current_key()
        table.write(current, sub, table.stored(value, current))

    def containsKey(self, key: Any) -> bool:
        table, sub = self._table, self._sub(key)
        return table.read(table.current_key(), sub) is not None

    def removeKey(self, key: Any) -> None:
        table, sub = self._table, self._sub(key)
        table.drop(table.current_key(), sub)

    def keys(self) -> list[Any]:
        return list(self._table.subs_of(self._table.rows_of(self._table.current_key())))

    def values(self) -> list[Any]:
        return [value for _, value in self.iterator()]

    def iterator(self) -> Iterator[tuple[Any, Any]]:
        table = self._table
        key = table.current_key()
        rows = table.rows_of(key)
        return iter([(sub, table.value_of(rows[sub], key)) for sub in table.subs_of(rows)])

    def exists(self) -> bool:
        return bool(self._table.rows_of(self._table.current_key()))

    def _sub(self, key: Any) -> Any:
        return key if type(key) in PLAIN_KEYS else self._table.plain_key(key)


@dataclass(frozen=True, slots=True)
class Setup:
    """What a node asks for, and how the rows are kept."""

    spec: StateSpec
    owner: KeyedStateSettings
    #: how a reducing state adds, else None
    plus: Plus | None
    #: whether rows may expire: those that the state writes, or those that were restored
    is_timed: bool
    #: whether a reducing state with a named function keeps its totals by the column
    has_columns: bool


def _value_state(setup: Setup) -> Made:
    table = RowTable(setup.spec, setup.owner, is_timed=setup.is_timed)
    if setup.is_timed:
        return table, _Value(table)
    update, dirty_rows = update_of(table)
    table.gather(dirty_rows)
    return table, _of_own_class(_Value, get=get_of(table), update=update)(table)


def _reducing_state(setup: Setup) -> Made:
    plus, is_timed = setup.plus, setup.is_timed
    if plus in NAMED_REDUCTIONS and setup.has_columns:
        columns = ColumnTable(setup.spec, setup.owner, plus, is_timed=is_timed)
        return columns, _Columns(columns)
    table = RowTable(setup.spec, setup.owner, is_timed=is_timed)
    if plus is None or not (plus in NAMED_REDUCTIONS or callable(plus)):
        raise table.error(f"plus is a function or one of {', '.join(NAMED_REDUCTIONS)}, not {shown(plus)}")
    if is_timed:
        return table, _Reducing(table, plus)
    # None for a count, which adds ones whatever the numbers are
    numeric = PLUS[plus] if isinstance(plus, str) and plus != "count" else None
    add, dirty_rows = add_of(table, numeric, _Reducing(table, plus).reduced)
    table.gather(dirty_rows)
    return table, _of_own_class(_Reducing, get=get_of(table), add=add)(table, plus)


def _list_state(setup: Setup) -> Made:
    if setup.is_timed:
        timed = TimedListTable(setup.spec, setup.owner, is_timed=True)
        return timed, _List(timed)
    table = ListTable(setup.spec, setup.owner)
    return table, _List(table)


def _map_state(setup: Setup) -> Made:
    table = NestedTable(setup.spec, setup.owner, is_timed=setup.is_timed)
    return table, _Map(table)


#: makes the table and the state of each kind that a node may ask for
_MAKERS: Final[dict[StateKind, Callable[[Setup], Made]]] = {
    StateKind.VALUE: _value_state,
    StateKind.LIST: _list_state,
    StateKind.MAP: _map_state,
    StateKind.REDUCING: _reducing_state,
}


def make_state(setup: Setup) -> Made:
    """Return the table of a state, and the state that the node calls.

    Raises
    ------
    NodeError
        if `plus` is no function.
    """
    return _MAKERS[setup.spec.kind](setup)


def _of_own_class(base: type[KeyedState], **methods: Callable[..., Any]) -> Any:
    return type(base.__name__.strip("_") + "State", (base,), methods)


def _keys(table: StateTable, keys: Any) -> list[Any]:
    try:
        return table.plain_keys(key_list(keys))
    except (TypeError, ValueError) as error:
        raise table.error(f"keys of a bulk call: {error}") from error


def _pairs(table: StateTable, keys: Any, values: Any) -> tuple[list[Any], list[Any]]:
    listed = _keys(table, keys)
    try:
        found = value_list(values)
    except TypeError as error:
        raise table.error(f"values of a bulk call: {error}") from error
    if len(listed) != len(found):
        raise table.error(f"{len(listed):,} keys and {len(found):,} values; each key needs one value")
    return listed, found


def _number(table: StateTable, plus: str, value: Any, key: Any) -> int | float:
    """Return a number as an exact int or float, because rows hold no other numbers."""
    kind = type(value)
    if kind is int or kind is float:
        return value  # type: ignore[no-any-return]
    if isinstance(value, float):
        return float(value)
    try:
        return int(operator.index(value))
    except TypeError:
        raise table.error(f"{plus!r} adds numbers, not a {kind.__qualname__}; give a function instead", key) from None
