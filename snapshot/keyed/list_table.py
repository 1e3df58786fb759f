"""The tables of LIST states: a list for each key. Their rows are the items by index, and the length.

An append writes the rows of the new items and of the length only, because a list may be long.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

from cutline.snapshot.keyed.decoding import DecodedRows
from cutline.snapshot.keyed.nested_table import NestedTable, Rows, arrange_elements, drop_empty, put_rows
from cutline.snapshot.keyed.rows import DirtyTable, StateSpec
from cutline.snapshot.keyed.state_rules import KeyedStateSettings
from cutline.snapshot.keyed.table import StateTable


class ListRows(Protocol):
    """What both tables of lists do."""

    def items_of(self, key: Any) -> list[Any]:
        """Return what the rows of a key's items hold, in their sequence. The list must not be changed."""

    def append(self, key: Any, stored: list[Any]) -> None:
        """Append items."""


class ListTable(StateTable):
    """Lists that never expire. `live` is {key: list of what the rows hold}."""

    def __init__(self, spec: StateSpec, owner: KeyedStateSettings) -> None:
        super().__init__(spec, owner)
        #: {key: {index, or None for the length: what the row holds}}
        self._dirty: dict[Any, Rows] = {}

    def dirty_keys(self) -> dict[Any, Any]:
        """See `StateTable`."""
        return self._dirty

    def contents(self) -> Iterator[tuple[Any, Any]]:
        """See `StateTable`."""
        for key, items in self.live_items():
            if items:
                yield key, [self.value_of(stored, key) for stored in items]

    def items_of(self, key: Any) -> list[Any]:
        """See `ListRows`."""
        return self._items(key) or []

    def append(self, key: Any, stored: list[Any]) -> None:
        """See `ListRows`."""
        if not stored:
            return
        items = self._items(key)
        if items is None:
            self.admit(key)
            items = self.live[key] = []
        self.changed()
        rows = self._dirty.setdefault(key, {})
        rows.update(enumerate(stored, len(items)))
        items += stored
        self.written += len(stored) + 1
        rows[None] = len(items)

    def remove(self, key: Any) -> None:
        """See `StateTable`."""
        items = self._items(key)
        if items is None:
            return
        self.changed()
        if self.fresh is not None and key in self.fresh:
            self.fresh.remove(key)
            del self._dirty[key]
        else:
            self.written += len(items) + 1
            self._dirty.setdefault(key, {}).update(dict.fromkeys([*range(len(items)), None]))
        if self.cold is None:
            del self.live[key]
        else:
            self.live[key] = None

    def take_dirty(self) -> DirtyTable | None:
        """See `StateTable`."""
        if not self._dirty:
            return None
        taken = DirtyTable(self.spec, self._dirty)
        self._dirty = {}
        self.take_fresh()
        return taken

    def dirty_table(self) -> DirtyTable:
        """See `StateTable`."""
        return DirtyTable(self.spec, self._dirty)

    def arranged(self, rows: dict[Any, Any]) -> Any:
        """See `StateTable`."""
        return list(rows.values())

    def restore(self, rows: DecodedRows, now: float) -> None:
        """See `StateTable`."""
        put_rows(self.live, None, rows, now)

    def restored(self) -> None:
        """See `StateTable`."""
        arrange_elements(self)
        drop_empty(self.live)

    def sweep(self, limit: int) -> int:
        """See `StateTable`."""
        return 0

    def _items(self, key: Any) -> list[Any] | None:
        items = self.live.get(key)
        return self.missed(key) if items is None else items  # type: ignore[no-any-return]


class TimedListTable(NestedTable):
    """Lists whose items may expire. `live` is {key: {index: what the row holds}}."""

    def shown_rows(self, key: Any, rows: Rows) -> Any:
        """Return the items as users see them. Faster than by a dict of them."""
        return [self.value_of(stored, key) for stored in rows.values()]

    def restored(self) -> None:
        """See `StateTable`."""
        arrange_elements(self)
        for ends in (self.ends or {}).values():
            ends.pop(None, None)  # the end of the length
        super().restored()

    def removed_subs(self, rows: Rows) -> list[Any]:
        """Return the indexes of all items, and None for the length."""
        return [*rows, None]

    def items_of(self, key: Any) -> list[Any]:
        """See `ListRows`."""
        return list(self.rows_of(key).values())

    def append(self, key: Any, stored: list[Any]) -> None:
        """See `ListRows`."""
        if not stored:
            return
        rows = self.live.get(key)
        if rows is None:
            rows = self.missed(key)
        start = next(reversed(rows)) + 1 if rows else 0
        for index, each in enumerate(stored, start):
            self.write(key, index, each)
        self.note(key, None, start + len(stored))
