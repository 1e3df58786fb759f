"""The table of a state with several rows for each key, each row with a sub-key: MAP, and LIST with a time-to-live.

::

    live    {key: {sub-key: value}}
    dirty   {key: {sub-key: value}}, where the value None is a tombstone
    ends    {key: {sub-key: seconds at which the row expires}}
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Any

from cutline.snapshot.keyed.decoding import DecodedRows, unexpired
from cutline.snapshot.keyed.rows import DirtyTable, StateSpec
from cutline.snapshot.keyed.rows_codec import encode_key
from cutline.snapshot.keyed.state_rules import KeyedStateSettings
from cutline.snapshot.keyed.table import NEVER, StateTable

Rows = dict[Any, Any]


class NestedTable(StateTable):
    """Rows with sub-keys.

    Parameters
    ----------
    spec : StateSpec
    owner : KeyedStateSettings
    is_timed : bool
        As in `RowTable`.
    """

    def __init__(self, spec: StateSpec, owner: KeyedStateSettings, *, is_timed: bool) -> None:
        super().__init__(spec, owner)
        self.is_timed = is_timed
        #: {key: {sub-key: seconds at which the row expires}}, or None if no row expires
        self.ends: dict[Any, dict[Any, float]] | None = {} if is_timed else None
        #: {(key, sub-key): seconds at which the row expires}, in the sequence of the writes
        self.by_write: OrderedDict[tuple[Any, Any], float] = OrderedDict()
        self._dirty: dict[Any, Rows] = {}
        self._dirty_ends: dict[Any, dict[Any, float]] = {}
        self._shown = spec.form.shown

    @property
    def expiries(self) -> Any:
        """See `StateTable`."""
        return self.ends

    def dirty_keys(self) -> dict[Any, Any]:
        """See `StateTable`."""
        return self._dirty

    def contents(self) -> Iterator[tuple[Any, Any]]:
        """See `StateTable`."""
        for key, rows in self.live_items():
            if rows is not None and (alive := self._unexpired(key, rows)):
                yield key, self.shown_rows(key, alive)

    def shown_rows(self, key: Any, rows: Rows) -> Any:
        """Return the value of a key as users see it."""
        return self._shown({sub: self.value_of(rows[sub], key) for sub in self.subs_of(rows)})

    def subs_of(self, rows: Rows) -> Iterable[Any]:
        """Return the sub-keys of rows in the sequence in which users see them."""
        return sorted(rows, key=encode_key) if self.owner.sorts else rows

    def rows_of(self, key: Any) -> Rows:
        """Return the rows of a key that have not expired. The dict must not be changed."""
        rows = self.live.get(key)
        if rows is None:
            rows = self.missed(key)
        return {} if rows is None else self._unexpired(key, rows)

    def read(self, key: Any, sub: Any) -> Any:
        """Return what one row holds, or None for an absent row."""
        rows = self.live.get(key)
        if rows is None:
            rows = self.missed(key)
            if rows is None:
                return None
        return None if self._has_expired(key, sub) else rows.get(sub)

    def write(self, key: Any, sub: Any, stored: Any) -> None:
        """Write one row. The row stands after the key's other rows if its sub-key is new."""
        rows = self.live.get(key)
        if rows is None:
            rows = self.missed(key)
        if rows is None or sub not in rows:
            self.check_size(sub)
        if rows is None:
            self.admit(key)
            rows = self.live[key] = {}
        self.changed()
        rows[sub] = stored
        if self.ends is None:
            pass
        elif self.spec.ttl is None:
            self._forget_end(key, sub)
        else:
            end = self.context.now + self.spec.ttl
            self.ends.setdefault(key, {})[sub] = self.by_write[key, sub] = end
            self.by_write.move_to_end((key, sub))
        self.note(key, sub, stored)

    def note(self, key: Any, sub: Any, stored: Any) -> None:
        """Note a changed row, which expires with the row that is written now."""
        self.written += 1
        self._dirty.setdefault(key, {})[sub] = stored
        if self.ends is not None and self.spec.ttl is not None:
            self._dirty_ends.setdefault(key, {})[sub] = self.context.now + self.spec.ttl
        elif key in self._dirty_ends:
            self._dirty_ends[key].pop(sub, None)

    def drop(self, key: Any, sub: Any) -> None:
        """Remove one row."""
        rows = self.live.get(key)
        if rows is None:
            rows = self.missed(key)
        if rows is None or sub not in rows:
            return
        if len(rows) == 1:
            self.remove(key)
            return
        self.changed()
        del rows[sub]
        self._forget_end(key, sub)
        if self.fresh is not None and key in self.fresh:
            del self._dirty[key][sub]
            self._dirty_ends.get(key, {}).pop(sub, None)
        else:
            self._bury(key, [sub])

    def remove(self, key: Any) -> None:
        """See `StateTable`."""
        rows = self.live.get(key)
        if rows is None:
            rows = self.missed(key)
        if rows is None:
            return
        self.changed()
        for sub in rows:
            self._forget_end(key, sub)
        if self.fresh is not None and key in self.fresh:
            self.fresh.remove(key)
            del self._dirty[key]
            self._dirty_ends.pop(key, None)
        else:
            self._bury(key, self.removed_subs(rows))
        if self.cold is None:
            del self.live[key]
        else:
            self.live[key] = None

    def removed_subs(self, rows: Rows) -> list[Any]:
        """Return the sub-keys of the tombstones for all rows of a key."""
        return list(rows)

    def take_dirty(self) -> DirtyTable | None:
        """See `StateTable`."""
        if not self._dirty:
            return None
        taken = DirtyTable(self.spec, self._dirty, self._dirty_ends if self.ends is not None else None)
        self._dirty, self._dirty_ends = {}, {}
        self.take_fresh()
        return taken

    def dirty_table(self) -> DirtyTable:
        """See `StateTable`."""
        return DirtyTable(self.spec, self._dirty, self._dirty_ends if self.ends is not None else None)

    def restore(self, rows: DecodedRows, now: float) -> None:
        """See `StateTable`."""
        put_rows(self.live, self.ends, rows, now)

    def restored(self) -> None:
        """See `StateTable`."""
        drop_empty(self.live)
        found = [(end, key, sub) for key, ends in (self.ends or {}).items() for sub, end in ends.items()]
        self.by_write.update(((key, sub), end) for end, key, sub in sorted(found, key=lambda row: row[0]))

    def keep_end(self, key: Any, sub: Any, end: float) -> None:
        """See `StateTable`."""
        assert self.ends is not None, "a row that expires makes the table timed"
        self.ends.setdefault(key, {})[sub] = self.by_write[key, sub] = end

    def drop_cache(self) -> None:
        """See `StateTable`."""
        super().drop_cache()
        self.by_write.clear()
        if self.ends is not None:
            self.ends.clear()

    def sweep(self, limit: int) -> int:
        """See `StateTable`."""
        swept = 0
        while self.by_write and swept < limit:
            key, sub = next(iter(self.by_write))
            if self.by_write[key, sub] > self.context.now:
                break
            self._expire(key, sub)
            swept += 1
        return swept

    def _expire(self, key: Any, sub: Any) -> None:
        self._forget_end(key, sub)
        rows = self.live.get(key)
        if rows is None:
            return  # a cold tier has dropped the key
        rows.pop(sub, None)
        is_fresh = self.fresh is not None and key in self.fresh
        if is_fresh:
            del self._dirty[key][sub], self._dirty_ends[key][sub]
        if not rows:
            del self.live[key]
            if is_fresh:
                assert self.fresh is not None
                self.fresh.remove(key)
                del self._dirty[key], self._dirty_ends[key]

    def _bury(self, key: Any, subs: list[Any]) -> None:
        self.written += len(subs)
        self._dirty.setdefault(key, {}).update(dict.fromkeys(subs))
        if key in self._dirty_ends:
            for sub in subs:
                self._dirty_ends[key].pop(sub, None)

    def _forget_end(self, key: Any, sub: Any) -> None:
        if self.ends is None:
            return
        self.by_write.pop((key, sub), None)
        ends = self.ends.get(key)
        if ends is not None:
            ends.pop(sub, None)
            if not ends:
                del self.ends[key]

    def _has_expired(self, key: Any, sub: Any) -> bool:
        return self.ends is not None and self.ends.get(key, {}).get(sub, NEVER) <= self.context.now

    def _unexpired(self, key: Any, rows: Rows) -> Rows:
        if self.ends is None:
            return rows
        ends, now = self.ends.get(key, {}), self.context.now
        return {sub: stored for sub, stored in rows.items() if ends.get(sub, NEVER) > now}


def put_rows(live: dict[Any, Any], ends: dict[Any, Any] | None, rows: DecodedRows, now: float) -> None:
    """Put restored rows with sub-keys over older ones, as `StateTable.restore` does."""
    keys, subs, values, expires = rows
    assert subs is not None
    for (key, sub), stored, end in unexpired(zip(keys, subs, strict=True), values, expires, now):
        if stored is not None:
            live.setdefault(key, {})[sub] = stored
        elif key in live:
            live[key].pop(sub, None)
        if ends is not None:
            if stored is None or end is None:
                ends.get(key, {}).pop(sub, None)
            else:
                ends.setdefault(key, {})[sub] = end


def arrange_elements(table: StateTable) -> None:
    """Let `live` hold the elements among restored rows, as the table keeps them."""
    live, arranged, elements = table.live, table.arranged, table.spec.form.elements
    for key, rows in live.items():
        live[key] = arranged(elements(rows))


def drop_empty(live: dict[Any, Any]) -> None:
    """Drop the keys of which no restored row is left."""
    for key in [key for key, rows in live.items() if not rows]:
        del live[key]
