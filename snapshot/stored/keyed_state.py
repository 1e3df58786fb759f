"""Read the keyed state of a stored snapshot: as segments for a restore, as values for people.

Owns the way from lists of parts to Python values. Must not know where parts are stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, overload

from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.errors import GraphError
from cutline.snapshot.keyed.decoding import rows_of
from cutline.snapshot.keyed.merging import merged
from cutline.snapshot.keyed.segment import Segment, clipped, decode_piece
from cutline.snapshot.stored.certificate import SubtaskRecord
from cutline.snapshot.stored.list_rules import ListEntry
from cutline.snapshot.stored.part import Handle


def read_segments(entries: Sequence[ListEntry], read: Callable[[Handle], memoryview]) -> Iterator[Segment]:
    """Read the rows of a list, in the order of application, of each piece the rows of its clip only.

    Parameters
    ----------
    entries : sequence of ListEntry
    read : callable
        Returns the checked body of a part. Errors of `read` pass through.

    Raises
    ------
    SnapshotCorrupt
        if a body holds no rows.
    """
    return (_segment(entry, read) for entry in entries)


def _segment(entry: ListEntry, read: Callable[[Handle], memoryview]) -> Segment:
    return clipped(decode_piece(read(entry.handle), entry.handle.name), entry.lo, entry.hi)


def stored_rows(record: SubtaskRecord) -> tuple[ListEntry, ...]:
    """Return the list of a subtask's rows that the store has.

    Raises
    ------
    GraphError
        if the rows are in a local database only.
    """
    if record.version is not None and not record.rows:
        raise GraphError(
            f"the keyed state of {record.subtask} is in a local database on disk {record.version.disk}, and not in the "
            "store: run it with PersistentState(copy=True), which stores the rows too"
        )
    return record.rows or ()


class StoredSegments(Sequence[Segment]):
    """The rows of a list, read when they are taken, so that they need not be in memory together.

    Parameters
    ----------
    entries : sequence of ListEntry
    read : callable
        As for `read_segments`. Errors of `read` pass through when a segment is taken.
    """

    def __init__(self, entries: Sequence[ListEntry], read: Callable[[Handle], memoryview]) -> None:
        self._entries = entries
        self._read = read

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, place: int) -> Segment: ...

    @overload
    def __getitem__(self, place: slice) -> StoredSegments: ...

    def __getitem__(self, place: int | slice) -> Segment | StoredSegments:
        if isinstance(place, slice):
            return StoredSegments(self._entries[place], self._read)
        return _segment(self._entries[place], self._read)


def keyed_state(
    lists: Iterable[Sequence[ListEntry]], name: str, read: Callable[[Handle], memoryview], codec: Codec
) -> dict[Any, Any]:
    """Return one state of a node, over all of its subtasks.

    Parameters
    ----------
    lists : iterable of sequence of ListEntry
        The list of each subtask.
    name : str
        Name of the state.
    read : callable
        Returns the checked body of a part.
    codec : Codec

    Returns
    -------
    dict
        ``{key: value}``, ``{key: list}`` or ``{key: {sub-key: value}}`` by the kind of the state.

    Raises
    ------
    KeyError
        if no subtask has a row of such a state. The argument is the list of the names that there are.
    SnapshotCorrupt
        if a part is damaged.
    """
    found: dict[Any, Any] = {}
    names: dict[str, None] = {}
    for entries in lists:
        if entries:
            segment = merged(list(read_segments(entries, read)), is_whole=True)
            names |= {spec.name: None for spec in segment.states}
            found |= _values_of(segment, name, codec.decode)
    if name not in names:
        raise KeyError(list(names))
    return found


def keyed_states(
    entries: Sequence[ListEntry], read: Callable[[Handle], memoryview], decode: Callable[[bytes], Any]
) -> dict[str, dict[Any, Any]]:
    """Return all keyed states of a subtask and its timers, each as `keyed_state` does.

    Parameters
    ----------
    entries : sequence of ListEntry
        The list of the subtask.
    read : callable
        Returns the checked body of a part.
    decode : callable
        Returns the value that is encoded in bytes.
    """
    if not entries:
        return {}
    segment = merged(list(read_segments(entries, read)), is_whole=True)
    return {spec.name: _values_of(segment, spec.name, decode) for spec in segment.states}


def _values_of(segment: Segment, name: str, decode: Callable[[bytes], Any]) -> dict[Any, Any]:
    """Return {key: value as users see it} of one state of a segment."""
    found: dict[Any, Any] = {}
    for keys, subs, values, _ in rows_of(segment, name):
        decoded = [decode(value) if type(value) is bytes else value for value in values]
        if subs is None:
            found.update(zip(keys, decoded, strict=True))
            continue
        for key, sub, value in zip(keys, subs, decoded, strict=True):
            found.setdefault(key, {})[sub] = value
    form = next((spec.form for spec in segment.states if spec.name == name), None)
    if form is None or not form.has_sub_keys:
        return found
    return {key: form.shown(form.elements(rows)) for key, rows in found.items()}
