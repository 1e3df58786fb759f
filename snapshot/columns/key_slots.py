"""Give each distinct key a slot 0, 1, 2, ...: keys of all types, alone and in tuples, by the column.

Owns which forms of a key are one key. Must not know what is kept at a slot. Keys come in parts of one form each::

    integers             IntegerTable          64 bits; a bool, and an integer of any Arrow type, is such an integer
    texts, bytes         a dict
    tuples of these      GroupKeys             one column for each element
    all other keys       a dict                None, integers beyond 64 bits, tuples that hold them or tuples

The form of a key depends on the key alone, never on the column that it comes in. So a key has one slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from cutline.snapshot.columns.group_keys import GroupKeys
from cutline.snapshot.columns.integer_table import Integers, grown

#: Form of an element of a key.
Form = Literal["integer", "text", "bytes"]

#: Arrow type of the elements of each form. A part may have any type of the same form.
_KINDS: Final[dict[Form, pa.DataType]] = {
    "integer": pa.int64(),
    "text": pa.large_string(),
    "bytes": pa.large_binary(),
}


class KeyForm(NamedTuple):
    """Form of keys that have columns."""

    elements: tuple[Form, ...]
    is_tuple: bool


class ColumnKeys(NamedTuple):
    """Keys by the column. No element is null or beyond 64 bits."""

    form: KeyForm
    columns: Sequence[pa.Array]


class OtherKeys(NamedTuple):
    """Keys without columns."""

    keys: list[Any]


Keys = ColumnKeys | OtherKeys


class Part(NamedTuple):
    """Keys of one form in a bulk call."""

    keys: Keys
    #: places of the keys in the call, or None for all
    places: Integers | None


class _Numbered(Protocol):
    """Keys of one form, by numbers of their own."""

    def numbers(self, keys: Keys) -> Integers:
        """Return the number of each key. Add new keys."""

    def keys_at(self, numbers: Integers) -> list[Any]:
        """Return the keys with the given numbers."""

    def part_at(self, numbers: Integers) -> Keys:
        """Return the keys with the given numbers, for `numbers` of another object."""

    def __len__(self) -> int: ...


class _Columns:
    """Keys by the column."""

    def __init__(self, form: KeyForm) -> None:
        self._form = form
        self._keys = GroupKeys([_KINDS[element] for element in form.elements])

    def __len__(self) -> int:
        return len(self._keys)

    def numbers(self, keys: Keys) -> Integers:
        assert isinstance(keys, ColumnKeys)
        return self._keys.numbers(keys.columns)

    def keys_at(self, numbers: Integers) -> list[Any]:
        columns = self._keys.columns_at(numbers)
        return list(zip(*columns, strict=True)) if self._form.is_tuple else columns[0]

    def part_at(self, numbers: Integers) -> Keys:
        columns = zip(self._keys.columns_at(numbers), self._form.elements, strict=True)
        return ColumnKeys(self._form, [pa.array(column, _KINDS[element]) for column, element in columns])


class _Others:
    """Keys without columns."""

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._keys: list[Any] = []

    def __len__(self) -> int:
        return len(self._keys)

    def numbers(self, keys: Keys) -> Integers:
        assert isinstance(keys, OtherKeys)
        for key in keys.keys:
            if key not in self._numbers:
                self._numbers[key] = len(self._keys)
                self._keys.append(key)
        return np.array([self._numbers[key] for key in keys.keys], np.int64)

    def keys_at(self, numbers: Integers) -> list[Any]:
        return list(map(self._keys.__getitem__, numbers.tolist()))

    def part_at(self, numbers: Integers) -> Keys:
        return OtherKeys(self.keys_at(numbers))


@dataclass(slots=True)
class _Source:
    """Keys of one form, and their slots."""

    index: int
    numbered: _Numbered
    #: slot of each number below `known`
    slots: Integers = field(default_factory=lambda: np.zeros(0, np.int64))
    known: int = 0


class KeySlots:
    """Slots of distinct keys. Another thread may read the keys of known slots meanwhile."""

    def __init__(self) -> None:
        self._sources: dict[KeyForm | None, _Source] = {}
        self._listed: list[_Source] = []
        self._count = 0
        #: form of the key at each slot, and its number there
        self._source_of = np.zeros(0, np.uint16)
        self._number_of: Integers = np.zeros(0, np.int64)

    def __len__(self) -> int:
        return self._count

    def slots(self, parts: Sequence[Part], key_count: int) -> Integers:
        """Return the slot of each key of a bulk call. Add new keys.

        Parameters
        ----------
        parts : sequence of Part
            Together all keys of the call.
        key_count : int
        """
        if len(parts) == 1 and parts[0].places is None:
            return self._slots_of(parts[0].keys)
        slots = np.zeros(key_count, np.int64)
        for keys, places in parts:
            slots[slice(None) if places is None else places] = self._slots_of(keys)
        return slots

    def keys_at(self, slots: Integers) -> list[Any]:
        """Return the keys at slots. A bool comes back as an int, and a subclass as its base."""
        sources, numbers = self._source_of[slots], self._number_of[slots]
        if len(self._listed) == 1:
            return self._listed[0].numbered.keys_at(numbers)
        keys: list[Any] = [None] * len(slots)
        for index in np.flatnonzero(np.bincount(sources)).tolist():
            places = np.flatnonzero(sources == index)
            found = self._listed[index].numbered.keys_at(numbers[places])
            for place, key in zip(places.tolist(), found, strict=True):
                keys[place] = key
        return keys

    def only(self, kept: Integers) -> tuple[KeySlots, Integers]:
        """Return the slots of the keys at slots `kept` alone, and the new slot of each of these keys."""
        made, to = KeySlots(), np.zeros(len(kept), np.int64)
        sources, numbers = self._source_of[kept], self._number_of[kept]
        for source in self._listed:
            places = np.flatnonzero(sources == source.index)
            if len(places):
                to[places] = made._slots_of(source.numbered.part_at(numbers[places]))
        return made, to

    def _slots_of(self, keys: Keys) -> Integers:
        source = self._source(keys.form if isinstance(keys, ColumnKeys) else None)
        numbers = source.numbered.numbers(keys)
        if len(source.numbered) > source.known:
            self._add(source)
        return numbers if len(self._listed) == 1 else source.slots[numbers]

    def _source(self, form: KeyForm | None) -> _Source:
        source = self._sources.get(form)
        if source is None:
            numbered = _Others() if form is None else _Columns(form)
            source = self._sources[form] = _Source(len(self._listed), numbered)
            self._listed.append(source)
        return source

    def _add(self, source: _Source) -> None:
        """Give slots to the keys of a form that have none."""
        known, count = source.known, len(source.numbered)
        first, end = self._count, self._count + count - known
        source.slots = grown(source.slots, count, 0)
        source.slots[known:count] = np.arange(first, end)
        self._source_of, self._number_of = grown(self._source_of, end, 0), grown(self._number_of, end, 0)
        self._source_of[first:end] = source.index
        self._number_of[first:end] = np.arange(known, count)
        source.known, self._count = count, end
