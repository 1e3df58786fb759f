"""Kinds of keyed state, and the form of their rows: what a row is, and how the rows of a key are the value of the key.

Owns all that differs by kind in rows that are stored. Must not know tables and tiers. `snapshot.keyed.states` makes
what differs by kind while a subtask runs: the table, and the state that a node calls.

A row is (key group, state, key, sub-key, value). The kind of the state decides the sub-key::

    VALUE, REDUCING   none
    LIST              the index of an item, or none in the row with the length of the list
    MAP               the user's key inside the map
    TIMERS            the time of the timer; the value is True

An *element* is a row that users see: each row but the length of a list.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from cutline.snapshot.keyed.rows_codec import encode_key, encode_keys, encode_times

Row = TypeVar("Row")


class RowForm:
    """The form of the rows of a kind. Base of all forms: several elements for each key, with any sub-keys."""

    #: whether a key has several rows, each with a sub-key
    has_sub_keys = True
    #: whether rows hold values of the user, which `Node.migrateKeyedState` brings to another version
    has_values = True
    #: whether rows are timers, which are no state of a node, and which a store keeps by time
    holds_timers = False
    #: whether an element that expires leaves a gap between the others, which a reader must keep
    leaves_gaps = False

    def is_element(self, sub: Any) -> bool:
        """Return whether the row with this sub-key is an element."""
        return True

    def elements(self, rows: dict[Any, Row]) -> dict[Any, Row]:
        """Return the elements among {sub-key: row}, in the sequence in which users see them. May change `rows`."""
        return rows

    def element_rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the elements among rows of a segment, all of which are of one state."""
        return rows

    def encode_subs(self, subs: list[Any]) -> list[bytes]:
        """Encode sub-keys."""
        return encode_keys(subs)

    def shown(self, elements: dict[Any, Any]) -> Any:
        """Return the value of a key as users see it, of {sub-key: value} in the sequence of `elements`."""
        return elements

    def elements_of(self, value: Any) -> Mapping[Any, Any]:
        """Return {sub-key: value} of the value of a key, which is not empty: the opposite of `shown`.

        Raises
        ------
        ValueError
            if `shown` returns no such value. The text says what is expected.
        """
        raise NotImplementedError

    def other_rows(self, element_count: int) -> Mapping[Any, Any]:
        """Return {sub-key: what the row holds} of the rows that stand beside the elements of a key."""
        return {}


class _OneRow(RowForm):
    """One row for each key, without a sub-key."""

    has_sub_keys = False

    def shown(self, elements: dict[Any, Any]) -> Any:
        return elements[None]

    def elements_of(self, value: Any) -> Mapping[Any, Any]:
        return {None: value}


class _Items(RowForm):
    """The items of a list by index, and the length of the list, whose sub-key is None."""

    leaves_gaps = True

    def is_element(self, sub: Any) -> bool:
        return sub is not None

    def elements(self, rows: dict[Any, Row]) -> dict[Any, Row]:
        rows.pop(None, None)
        return dict(sorted(rows.items()))

    def element_rows(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        length = pa.scalar(encode_key(None), pa.large_binary())  # made here, because the first scalar imports pandas
        return rows.filter(pc.not_equal(rows.column("sub"), length)) if rows.num_rows else rows

    def shown(self, elements: dict[Any, Any]) -> Any:
        return list(elements.values())

    def elements_of(self, value: Any) -> Mapping[Any, Any]:
        if type(value) is not list or not value:
            raise ValueError(f"a list with items, not {value!r}: clear removes a list")
        return dict(enumerate(value))

    def other_rows(self, element_count: int) -> Mapping[Any, Any]:
        return {None: element_count}


class _Pairs(RowForm):
    """The values of a dict by the user's keys."""

    def elements_of(self, value: Any) -> Mapping[Any, Any]:
        if type(value) is not dict or not value:
            raise ValueError(f"a dict with entries, not {value!r}: clear removes a dict")
        return value


class _Times(RowForm):
    """Timers by time. Times are floats, which no key of a user may be."""

    has_values = False
    holds_timers = True

    def encode_subs(self, subs: list[Any]) -> list[bytes]:
        return encode_times(subs)


class StateKind(IntEnum):
    """Kind of a state. Stored: never renumber."""

    VALUE = 0
    LIST = 1
    MAP = 2
    REDUCING = 3
    TIMERS = 4

    @property
    def form(self) -> RowForm:
        """The form of the rows."""
        return _FORMS[self]


_FORMS: Final[dict[StateKind, RowForm]] = {
    StateKind.VALUE: _OneRow(),
    StateKind.LIST: _Items(),
    StateKind.MAP: _Pairs(),
    StateKind.REDUCING: _OneRow(),
    StateKind.TIMERS: _Times(),
}
