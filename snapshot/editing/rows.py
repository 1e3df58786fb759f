"""Set and clear values of keyed state, as rows that one more generation of a subtask's list holds.

Owns the rows of an edit. Must not know where parts are stored. The rows take the way of a capture: `CapturedRows` are
encoded and stored as those of a running subtask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from cutline.snapshot.channel.partitioning import key_group
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.errors import GraphError
from cutline.snapshot.keyed.decoding import rows_of
from cutline.snapshot.keyed.kinds import StateKind
from cutline.snapshot.keyed.merging import merged
from cutline.snapshot.keyed.rows import TIMERS_STATE, CapturedRows, DirtyTable, StateSpec
from cutline.snapshot.keyed.segment import Segment, decode_piece
from cutline.snapshot.keyed.state_rules import KeyedStateSettings, StateRules
from cutline.snapshot.operators.aggregate import GROUPS_STATE
from cutline.snapshot.stored.certificate import ListEntry, SubtaskRecord
from cutline.snapshot.stored.keyed_state import read_segments, stored_rows
from cutline.snapshot.stored.node_state import NodeState
from cutline.snapshot.stored.part import Handle

#: Returns the checked body of a part.
Read = Callable[[Handle], memoryview]


class _NoHook:
    """Stands for the context of a hook, because an edit has neither a current key nor a clock."""

    key: Any = None
    has_key = False
    now = 0.0

    def moment(self) -> tuple[int, int]:
        """See `HookContext`."""
        return (0, 0)


class RowEdits:
    """The edited rows of one subtask.

    Parameters
    ----------
    record : SubtaskRecord
    read : callable
        Returns the checked body of a part.
    codec : Codec
    """

    def __init__(self, record: SubtaskRecord, read: Read, codec: Codec) -> None:
        self._record = record
        self._read = read
        self._owner = KeyedStateSettings(record.subtask, _NoHook(), codec)
        #: {state: edited rows}; tombstones are None
        self._tables: dict[str, DirtyTable] = {}

    def captured(self) -> CapturedRows:
        """Return the edited rows, as those of a capture. The dicts are copies, because encoding empties them."""
        assert self._record.groups is not None
        tables = tuple(
            DirtyTable(table.spec, _copied(table.rows), None if table.expiries is None else _copied(table.expiries))
            for table in self._tables.values()
        )
        return CapturedRows(self._newest(), range(*self._record.groups), tables)

    def set(self, spec: StateSpec, key: Any, value: Any) -> None:
        """Set the value of a key. A list replaces all items, and a dict all entries.

        Raises
        ------
        NodeError
            if the key or the value cannot be stored.
        GraphError
            if the value of a list state is no list, or that of a map state no dict.
        """
        key = self._rules(spec).plain_key(key)
        rows = self._rows(spec, key, value)
        before = self._live(spec, key)
        table = self._table(spec)
        if not spec.form.has_sub_keys:
            table.rows[key] = rows[None]
        else:
            table.rows.setdefault(key, {}).update({**dict.fromkeys(before), **rows})
        if spec.ttl and table.expiries is not None:
            at = self._now() + spec.ttl
            table.expiries[key] = dict.fromkeys(rows, at) if spec.form.has_sub_keys else at

    def clear(self, spec: StateSpec, key: Any) -> None:
        """Remove all rows of a key.

        Raises
        ------
        GraphError
            if the key has no value.
        """
        key = self._rules(spec).plain_key(key)
        before = self._live(spec, key)
        if not before:
            raise GraphError(f"{self._record.subtask}: state {spec.name!r} has no value of the key {key!r}")
        table = self._table(spec)
        if spec.form.has_sub_keys:
            table.rows.setdefault(key, {}).update(dict.fromkeys(before))
        else:
            table.rows[key] = None

    # ---------------------------------------------------------------- helpers

    def _rules(self, spec: StateSpec) -> StateRules:
        return StateRules(spec, self._owner)

    def _rows(self, spec: StateSpec, key: Any, value: Any) -> dict[Any, Any]:
        """Return {sub-key: what the row holds}; the sub-key of a kind without sub-keys is None."""
        rules = self._rules(spec)
        rules.check_size(key)
        try:
            elements = spec.form.elements_of(value)
        except ValueError as error:
            raise GraphError(f"state {spec.name!r} takes {error}") from None
        elements = {rules.plain_key(sub): each for sub, each in elements.items()}
        for sub in elements:
            rules.check_size(sub)
        rows = {sub: rules.stored(each, key) for sub, each in elements.items()}
        return {**rows, **spec.form.other_rows(len(elements))}

    def _live(self, spec: StateSpec, key: Any) -> list[Any]:
        """Return the sub-keys of all rows that a key has, with the edits so far."""
        stored = self._stored(spec, key)
        edited = self._tables[spec.name].rows if spec.name in self._tables else {}
        if key not in edited:
            return [*stored]
        rows = edited[key] if spec.form.has_sub_keys else {None: edited[key]}
        return [sub for sub in dict.fromkeys((*stored, *rows)) if sub not in rows or rows[sub] is not None]

    def _stored(self, spec: StateSpec, key: Any) -> Iterator[Any]:
        """Yield the sub-keys of the stored rows of a key."""
        group = key_group(key)
        entries = [ListEntry(entry.handle, group, group + 1) for entry in self._entries if entry.lo <= group < entry.hi]
        if not entries:
            return
        segment = merged([*read_segments(entries, self._read)], is_whole=True)
        for keys, subs, _, _ in rows_of(segment, spec.name):
            for stored, sub in zip(keys, subs or [None] * len(keys), strict=True):
                if stored == key:
                    yield sub

    def _table(self, spec: StateSpec) -> DirtyTable:
        if spec.name not in self._tables:
            self._tables[spec.name] = DirtyTable(spec, {}, {} if spec.ttl else None)
        return self._tables[spec.name]

    @property
    def _entries(self) -> Sequence[ListEntry]:
        return stored_rows(self._record)

    def _newest(self) -> float:
        """Return the time of the newest rows, because the time of a newer generation never goes back."""
        newest = next(segments_of(self._entries[-1:], self._read), None)
        return self._now() if newest is None else newest.now

    def _now(self) -> float:
        """Return `Context.now` at the cut."""
        return NodeState.decode(self._read(self._record.state), self._owner.codec).now


def _copied(rows: dict[Any, Any]) -> dict[Any, Any]:
    return {key: dict(each) if isinstance(each, dict) else each for key, each in rows.items()}


def segments_of(entries: Iterable[ListEntry], read: Read) -> Iterator[Segment]:
    """Yield the whole segment of each piece of a list."""
    return (decode_piece(read(entry.handle), entry.handle.name) for entry in entries)


def _is_of_aggregate(segment: Segment, spec: StateSpec) -> bool:
    """Return whether rows are totals by the column, whose bytes only the aggregate encodes."""
    if segment.grouped_by or (spec.kind, spec.name) != (StateKind.REDUCING, GROUPS_STATE):
        return bool(segment.grouped_by)
    return any(type(value) is bytes for _, _, values, _ in rows_of(segment, spec.name) for value in values[:1])


def find_state(records: Sequence[SubtaskRecord], node: str, name: str, read: Read) -> StateSpec:
    """Return the state of a node that an editor may change. The newest segment decides, as it does for a merge.

    Raises
    ------
    GraphError
        if no row of such a state is stored, or the rows are those of an aggregate.
    """
    known: dict[str, None] = {}
    for record in records:
        for segment in segments_of(reversed(record.rows or ()), read):
            found = next((spec for spec in segment.states if spec.name == name), None)
            if found is not None and found.name != TIMERS_STATE:
                if _is_of_aggregate(segment, found):
                    raise GraphError(
                        f"node {node!r}: state {name!r} holds the totals of an aggregate, which an editor does not "
                        "change: change the messages in flight"
                    )
                return found
            known |= {spec.name: None for spec in segment.states if spec.name != TIMERS_STATE}
    there = f"there are {', '.join(sorted(known))}" if known else "there are none"
    raise GraphError(f"node {node!r} has no rows of a state {name!r}; {there}")
