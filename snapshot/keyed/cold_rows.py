"""The rows of one state in a cold tier: fill the cache `live` from changed rows, memtables and the store.

Newer rows count: dirty, then memtables from the newest to the oldest, then the store. A row that has expired is absent,
also where an older row of its key would not have expired.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import chain
from typing import Any, Final, Protocol

from cutline.snapshot.keyed.cold_values import EXPIRES, expiry_of, heads_of, value_of
from cutline.snapshot.keyed.row_keys import ROW_HEAD_BYTES, ROWS_END, end_of, split_row
from cutline.snapshot.keyed.row_store import RowStore
from cutline.snapshot.keyed.rows import DirtyTable
from cutline.snapshot.keyed.rows_codec import decode_key, encode_keys
from cutline.snapshot.keyed.table import StateTable, row_name

#: stands for "no row here", because None is a tombstone
_ABSENT: Final = object()

#: {sub-key: (value, or None for a tombstone; expiry or None)}
_Rows = dict[Any, tuple[Any, float | None]]

#: (name of the rows in the store, key, what `live` holds of them)
_Named = tuple[bytes, Any, Any]


class RowsBelow(Protocol):
    """What a cold tier keeps below the changed rows of its states."""

    @property
    def store(self) -> RowStore:
        """The store of the subtask."""

    @property
    def has_memtables(self) -> bool:
        """Whether memtables are in the read path."""

    def changed_tables(self, name: str) -> Iterator[DirtyTable]:
        """Yield the rows of a state in memtables, newest first."""

    def admitted(self) -> None:
        """Note a key that is written and was not cached."""


class CachedRows:
    """The rows of one state.

    Parameters
    ----------
    table : StateTable
    tier : RowsBelow
    number : int
        Number of the state in the store.
    """

    def __init__(self, table: StateTable, tier: RowsBelow, number: int) -> None:
        self._table = table
        self._tier = tier
        self._number = number
        self._elements = table.spec.form.elements
        self._has_sub_keys = table.spec.form.has_sub_keys
        #: rows that were loaded into `live` since the cache was dropped
        self._loaded = 0
        #: `StateTable.written` when rows were sealed last, and when the cache was dropped last
        self._sealed_at = self._dropped_at = 0

    # ---------------------------------------------------------------- sizes

    def changed_rows(self) -> int:
        """Return the number of changed rows that are not sealed, or more where rows were written several times."""
        return self._table.written - self._sealed_at if self._has_sub_keys else len(self._table.dirty_keys())

    def held_rows(self) -> int:
        """Return the number of cached rows, or more."""
        return self._loaded + self._table.written - self._dropped_at if self._has_sub_keys else len(self._table.live)

    def drop(self) -> None:
        """Drop the cache. All rows are in `dirty`, in memtables or in the store."""
        self._table.drop_cache()
        self._loaded, self._dropped_at = 0, self._table.written

    def sealed(self) -> None:
        """Begin to count changed rows anew."""
        self._sealed_at = self._table.written

    # ---------------------------------------------------------------- one key

    def load(self, key: Any) -> None:
        """See `ColdRows`."""
        if self._has_sub_keys:
            self._keep_rows(key, self._rows_of(key))
            return
        if key in self._table.dirty_keys() or self._tier.has_memtables:
            for rows in self._changed():
                value = rows.rows.get(key, _ABSENT)
                if value is not _ABSENT:
                    self._keep(key, value, None if rows.expiries is None else rows.expiries.get(key))
                    return
        self._keep_stored(key, self._tier.store.get(self._row(key)))

    def _row(self, key: Any) -> bytes:
        """Return the key of a row in the store, without its sub-key."""
        return row_name(key, self._number)

    def load_all(self, keys: list[Any]) -> None:
        """See `ColdRows`."""
        if self._has_sub_keys:
            for key in keys:
                self.load(key)
            return
        wanted = list(dict.fromkeys(keys))
        for rows in self._changed():
            found = rows.rows.keys() & wanted if rows.rows else ()
            for key in found:
                self._keep(key, rows.rows[key], None if rows.expiries is None else rows.expiries.get(key))
            if found:
                wanted = [key for key in wanted if key not in found]
        heads = heads_of(wanted, self._number) if wanted else []
        stored = self._tier.store.get_many([head + key for head, key in zip(heads, encode_keys(wanted), strict=True)])
        for key, each in zip(wanted, stored, strict=True):
            self._keep_stored(key, each)

    def admitted(self, key: Any) -> None:
        """See `ColdRows`."""
        self._tier.admitted()

    def _changed(self) -> Iterator[DirtyTable]:
        """Yield the changed rows, newest first."""
        return chain((self._table.dirty_table(),), self._tier.changed_tables(self._table.spec.name))

    def _keep_stored(self, key: Any, stored: bytes | None) -> None:
        if stored is None:
            self._table.live[key] = None
        elif stored[0] == EXPIRES:
            self._keep(key, value_of(stored), expiry_of(stored))
        else:
            self._table.live[key] = value_of(stored)

    def _keep(self, key: Any, value: Any, end: float | None) -> None:
        if end is not None and end <= self._table.context.now:
            value = None
        self._table.live[key] = value
        if end is not None and value is not None:
            self._table.keep_end(key, None, end)

    # ---------------------------------------------------------------- rows with sub-keys

    def _rows_of(self, key: Any) -> _Rows:
        prefix = self._row(key)
        rows: _Rows = {
            decode_key(row[len(prefix) :]): (value_of(stored), expiry_of(stored))
            for row, stored in self._tier.store.scan(prefix, end_of(prefix))
        }
        return self._overlaid(key, rows)

    def _overlaid(self, key: Any, rows: _Rows) -> _Rows:
        """Return stored rows under changed rows."""
        for table in reversed(list(self._changed())):
            changed = table.rows.get(key)
            if changed:
                ends = (table.expiries or {}).get(key, {})
                rows.update({sub: (value, ends.get(sub)) for sub, value in changed.items()})
        return rows

    def _keep_rows(self, key: Any, rows: _Rows) -> None:
        now, table = self._table.context.now, self._table
        alive = {s: row for s, row in rows.items() if row[0] is not None and (row[1] is None or row[1] > now)}
        alive = self._elements(alive)
        self._loaded += len(alive) + 1
        if not alive:
            table.live[key] = None
            return
        table.live[key] = table.arranged({sub: value for sub, (value, _) in alive.items()})
        for sub, (_, end) in alive.items():
            if end is not None:
                table.keep_end(key, sub, end)

    # ---------------------------------------------------------------- all keys

    def items(self) -> Iterator[tuple[Any, Any]]:
        """See `ColdRows`."""
        # The changed rows are taken before the iterator is opened, because a memtable that is applied in between would
        # be seen by neither. The tier keeps the memtables while a hook may iterate.
        changed = list(self._changed())
        stored = self._tier.store.scan(b"", ROWS_END)
        if self._has_sub_keys:
            below, shown_changed = self._stored_with_sub_keys(stored), self._changed_with_sub_keys
        else:
            below, shown_changed = self._stored_rows(stored), self._changed_rows
        names = sorted(
            (row_name(key, self._number), key, table)
            for place, table in enumerate(changed)
            for key in table.rows
            if not any(key in newer.rows for newer in changed[:place])
        )
        above = ((name, key, shown_changed(key, table)) for name, key, table in names)
        unchanged = (row for row in below if not any(row[1] in table.rows for table in changed))
        return ((key, rows) for _, key, rows in heapq.merge(above, unchanged, key=lambda row: row[0]))

    def _changed_rows(self, key: Any, table: DirtyTable) -> Any:
        end = None if table.expiries is None else table.expiries.get(key)
        return table.rows[key] if end is None or end > self._table.context.now else None

    def _stored_rows(self, stored: Iterator[tuple[bytes, bytes]]) -> Iterator[_Named]:
        now, number = self._table.context.now, self._number.to_bytes(2, "big")
        for row, data in stored:
            if row[2:ROW_HEAD_BYTES] == number:
                end = expiry_of(data)
                yield row, decode_key(row[ROW_HEAD_BYTES:]), value_of(data) if end is None or end > now else None

    def _changed_with_sub_keys(self, key: Any, table: DirtyTable) -> Any:
        return self._shown(self._rows_of(key))

    def _stored_with_sub_keys(self, stored: Iterator[tuple[bytes, bytes]]) -> Iterator[_Named]:
        for name, rows in _by_key(stored, self._number.to_bytes(2, "big")):
            yield name, decode_key(name[ROW_HEAD_BYTES:]), self._shown(rows)

    def _shown(self, rows: _Rows) -> Any:
        """Return rows as `live` holds them, without those that have expired."""
        now = self._table.context.now
        alive = {s: row[0] for s, row in rows.items() if row[0] is not None and (row[1] is None or row[1] > now)}
        alive = self._elements(alive)
        return self._table.arranged(alive) if alive else None


def _by_key(stored: Iterator[tuple[bytes, bytes]], number: bytes) -> Iterator[tuple[bytes, _Rows]]:
    """Yield the name and all rows of each key of a state. The rows of a key are neighbours."""
    prefix = b""
    rows: _Rows = {}
    for row, data in stored:
        if row[2:ROW_HEAD_BYTES] != number:
            continue
        if not prefix or not row.startswith(prefix):
            if rows:
                yield prefix, rows
            key, _ = split_row(row)
            prefix, rows = row[:ROW_HEAD_BYTES] + key, {}
        rows[decode_key(row[len(prefix) :])] = (value_of(data), expiry_of(data))
    if rows:
        yield prefix, rows
