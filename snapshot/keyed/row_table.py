"""The table of a state with one row for each key: VALUE and REDUCING.

The hot calls are closures, because a variable of an enclosing function is read faster than an attribute. The dict of
changed rows is such a variable. A capture replaces the dict, and every closure sees the new one, also a method that a
node has kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any, Final

from cutline.snapshot.keyed.decoding import DecodedRows, unexpired
from cutline.snapshot.keyed.rows import DirtyTable, StateSpec
from cutline.snapshot.keyed.rows_codec import ROW_ATOMS
from cutline.snapshot.keyed.state_rules import TEXT_LENGTH_MAX, KeyedStateSettings
from cutline.snapshot.keyed.table import NEVER, StateTable

#: types of values that a row holds as they are, whatever the value
_NUMBERS: Final = ROW_ATOMS - {str}

#: types of numbers whose sum, least and greatest have one of these types
_REDUCED: Final = frozenset({int, float})

#: rows of a bulk call that are written together, so that their places in the dicts stay in the processor's cache
_TOGETHER: Final = 256

#: returns the changed rows; returns the changed rows and begins to gather anew
DirtyRows = tuple[Callable[[], dict[Any, Any]], Callable[[], dict[Any, Any]]]


class RowTable(StateTable):
    """One row for each key.

    Parameters
    ----------
    spec : StateSpec
    owner : KeyedStateSettings
    is_timed : bool
        Whether rows may expire: those that the state writes, or those that were restored.
    """

    def __init__(self, spec: StateSpec, owner: KeyedStateSettings, *, is_timed: bool) -> None:
        super().__init__(spec, owner)
        self.is_timed = is_timed
        #: {key: seconds at which the row expires}, in the sequence of the writes, or None if no row expires
        self.ends: OrderedDict[Any, float] | None = OrderedDict() if is_timed else None
        #: {key: seconds at which the changed row expires}
        self._dirty_ends: dict[Any, float] = {}
        self._dirty, self._take = no_dirty_rows()

    def gather(self, dirty_rows: DirtyRows) -> None:
        """Gather changed rows in the variable of a closure."""
        self._dirty, self._take = dirty_rows

    @property
    def expiries(self) -> Any:
        """See `StateTable`."""
        return self.ends

    def dirty_keys(self) -> dict[Any, Any]:
        """See `StateTable`."""
        return self._dirty()

    def contents(self) -> Iterator[tuple[Any, Any]]:
        """See `StateTable`."""
        for key, stored in self.live_items():
            if stored is not None and not self._has_expired(key):
                yield key, self.value_of(stored, key)

    def read(self, key: Any) -> Any:
        """Return what the row of a key holds, or None for an absent row."""
        stored = self.live.get(key)
        if stored is None:
            stored = self.missed(key)
        return None if stored is None or self._has_expired(key) else stored

    def read_all(self, keys: list[Any]) -> list[Any]:
        """Return the values of many keys, and None for each absent value."""
        self.fetch(keys)
        values = list(map(self.live.get, keys))
        if self.ends is not None:
            values = [None if self._has_expired(key) else each for key, each in zip(keys, values, strict=True)]
        if bytes in set(map(type, values)):
            return [self.value_of(stored, key) for key, stored in zip(keys, values, strict=True)]
        return values

    def fetch(self, keys: list[Any]) -> None:
        """Load rows that are not in memory together, because one by one takes twice as long."""
        if self.cold is not None:
            self.cold.load_all([key for key in keys if key not in self.live])

    def write(self, key: Any, stored: Any) -> None:
        """Write the row of a key."""
        if key not in self.live:
            self.admit(key)
        self.changed()
        self.live[key] = self._dirty()[key] = stored
        if self.ends is None:
            return
        if self.spec.ttl is None:
            self._forget_end(key)
        else:
            self.ends[key] = self._dirty_ends[key] = self.context.now + self.spec.ttl
            self.ends.move_to_end(key)

    def write_all(self, keys: list[Any], stored: list[Any]) -> None:
        """Write the rows of many keys. Of equal keys the last row stays."""
        if self.ends is not None:
            for key, each in zip(keys, stored, strict=True):
                self.write(key, each)
            return
        self.changed()
        live = self.live
        for start in range(0, len(keys), _TOGETHER):
            some = keys[start : start + _TOGETHER]
            for key in [key for key in some if key not in live]:
                self.admit(key)  # may replace the dict of changed rows
            rows = dict(zip(some, stored[start : start + _TOGETHER], strict=True))
            live.update(rows)
            self._dirty().update(rows)

    def remove(self, key: Any) -> None:
        """See `StateTable`."""
        self.changed()
        if self.fresh is None:
            if key not in self.live:
                self.admit(key)  # may replace the dict of changed rows
            self.live[key] = self._dirty()[key] = None
        elif self.live.pop(key, None) is None:
            return
        elif key in self.fresh:
            self.fresh.remove(key)
            del self._dirty()[key]
        else:
            self._dirty()[key] = None
        self._forget_end(key)

    def take_dirty(self) -> DirtyTable | None:
        """See `StateTable`."""
        if not self._dirty():
            return None
        rows, ends = self._take(), self._dirty_ends
        self._dirty_ends = {}
        self.take_fresh()
        return DirtyTable(self.spec, rows, ends if self.ends is not None else None)

    def dirty_table(self) -> DirtyTable:
        """See `StateTable`."""
        return DirtyTable(self.spec, self._dirty(), self._dirty_ends if self.ends is not None else None)

    def restore(self, rows: DecodedRows, now: float) -> None:
        """See `StateTable`."""
        keys, _, values, expires = rows
        live = self.live
        if self.ends is None and None not in values:
            live.update(zip(keys, values, strict=True))
            return
        ends = {} if self.ends is None else self.ends
        for key, stored, end in unexpired(keys, values, expires, now):
            if stored is None:
                live.pop(key, None)
            else:
                live[key] = stored
            if stored is None or end is None:
                ends.pop(key, None)
            else:
                ends[key] = end

    def restored(self) -> None:
        """See `StateTable`."""
        if self.ends:
            ends = sorted(self.ends.items(), key=lambda row: row[1])
            self.ends.clear()
            self.ends.update(ends)

    def keep_end(self, key: Any, sub: Any, end: float) -> None:
        """See `StateTable`."""
        assert self.ends is not None, "a row that expires makes the table timed"
        self.ends[key] = end

    def drop_cache(self) -> None:
        """See `StateTable`."""
        super().drop_cache()
        if self.ends is not None:
            self.ends.clear()

    def sweep(self, limit: int) -> int:
        """See `StateTable`."""
        ends, swept = self.ends, 0
        while ends and swept < limit:
            key = next(iter(ends))
            if ends[key] > self.context.now:
                break
            del ends[key]
            self.live.pop(key, None)
            if self.fresh is not None and key in self.fresh:
                self.fresh.remove(key)
                del self._dirty()[key], self._dirty_ends[key]
            swept += 1
        return swept

    def _forget_end(self, key: Any) -> None:
        if self.ends is not None:
            self.ends.pop(key, None)
            self._dirty_ends.pop(key, None)

    def _has_expired(self, key: Any) -> bool:
        return self.ends is not None and self.ends.get(key, NEVER) <= self.context.now


def no_dirty_rows() -> DirtyRows:
    """Return the changed rows of a table without hot calls."""
    dirty: dict[Any, Any] = {}

    def take() -> dict[Any, Any]:
        nonlocal dirty
        taken, dirty = dirty, {}
        return taken

    return lambda: dirty, take


def get_of(table: RowTable) -> Callable[[Any], Any]:
    """Return the method `get` for rows that never expire."""
    context, live, missed = table.context, table.live, table.missed
    require_key, value_of = table.require_key, table.value_of

    def get(_: Any) -> Any:
        key = context.key
        if key is None:
            require_key()
        stored = live.get(key)
        if stored is None:
            stored = missed(key)
        if type(stored) is bytes:
            return value_of(stored, key)
        return stored

    return get


def update_of(table: RowTable) -> tuple[Callable[[Any, Any], None], DirtyRows]:
    """Return the method `update` for rows that never expire, and the changed rows that it gathers."""
    context, live, iterations = table.context, table.live, table.iterations
    require_key, admit, row_value = table.require_key, table.admit, table.stored
    dirty: dict[Any, Any] = {}

    def update(_: Any, value: Any) -> None:
        key = context.key
        if key is None:
            require_key()
        kind = type(value)
        if kind is str:
            if len(value) > TEXT_LENGTH_MAX:
                value = row_value(value, key)
        elif kind not in _NUMBERS:
            value = row_value(value, key)
        if key not in live:
            admit(key)
        if iterations:
            iterations.clear()
        live[key] = dirty[key] = value

    def take() -> dict[Any, Any]:
        nonlocal dirty
        taken, dirty = dirty, {}
        return taken

    return update, (lambda: dirty, take)


def add_of(
    table: RowTable, plus: Callable[[Any, Any], Any] | None, reduced: Callable[[Any, Any, Any], Any]
) -> tuple[Callable[[Any, Any], None], DirtyRows]:
    """Return the method `add` for rows that never expire, and the changed rows that it gathers.

    Parameters
    ----------
    table : RowTable
    plus : callable or None
        Reduces two numbers of exact types int or float to such a number, or None where there is no such function.
    reduced : callable
        Returns what the row holds afterwards, given what it holds or None, the added value, and the key.
    """
    context, live, iterations = table.context, table.live, table.iterations
    require_key, admit, missed = table.require_key, table.admit, table.missed
    numbers = frozenset() if plus is None else _REDUCED
    dirty: dict[Any, Any] = {}

    def add(_: Any, value: Any) -> None:
        key = context.key
        if key is None:
            require_key()
        total = live.get(key)
        if type(total) in numbers and type(value) in numbers:
            total = plus(total, value)  # type: ignore[misc]  # there are numbers
        else:
            total = reduced(missed(key) if total is None else total, value, key)
        if key not in live:
            admit(key)
        if iterations:
            iterations.clear()
        live[key] = dirty[key] = total

    def take() -> dict[Any, Any]:
        nonlocal dirty
        taken, dirty = dirty, {}
        return taken

    return add, (lambda: dirty, take)
