"""Differences between two states of a subtask: its own state, whole or in deltas, keyed rows and timers.

Runs no code of the user. Dicts are compared by key, lists and tuples by index, and all other values as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any, NamedTuple

from cutline.barrier_runtime.cli.stored import CODEC
from cutline.snapshot.channel.pickles import NotSerialisable
from cutline.snapshot.drawing.labels import brief, size_text
from cutline.snapshot.errors import GraphError, RestoreRefused
from cutline.snapshot.keyed.rows import TIMERS_STATE
from cutline.snapshot.stored.certificate import SubtaskRecord
from cutline.snapshot.stored.keyed_state import keyed_states, stored_rows
from cutline.snapshot.stored.node_state import NodeState
from cutline.snapshot.stored.own_changes import decode_changes
from cutline.snapshot.stored.part import Handle

#: nested levels that are compared piece by piece; deeper values are compared as a whole
_DEPTH_MAX = 20

#: stands for a key or an index that only one side has
_ABSENT = object()


class Change(NamedTuple):
    """A place where two values differ, in short texts."""

    path: str  #: subscripts as in Python, such as ``['balance']`` or ``[3]``; "" for the value itself
    before: str | None  #: text of the earlier value, or None when only the later side has the place
    after: str | None  #: text of the later value, or None when only the earlier side has the place


def changes(before: Any, after: Any, path: str = "", depth: int = 0) -> Iterator[Change]:
    """Yield all places that differ, in order. Callers stop early when more places than they show would follow."""
    if depth < _DEPTH_MAX and type(before) is type(after):
        if isinstance(before, dict):
            for key in dict.fromkeys([*before, *after]):
                below = f"{path}[{brief(key)}]"
                yield from changes(before.get(key, _ABSENT), after.get(key, _ABSENT), below, depth + 1)
            return
        if isinstance(before, list | tuple):
            for index in range(max(len(before), len(after))):
                old, new = (each[index] if index < len(each) else _ABSENT for each in (before, after))
                yield from changes(old, new, f"{path}[{index}]", depth + 1)
            return
    if not _is_same(before, after):
        yield Change(path, _text(before), _text(after))


def _is_same(before: Any, after: Any) -> bool:
    if type(before) is not type(after):
        return False
    return bool(before == after) or (before != before and after != after)  # because NaN does not equal itself


def _text(value: Any) -> str | None:
    return None if value is _ABSENT else brief(value)


#: bytes of the largest state that is decoded to list its changes; a larger state is only compared byte by byte
DECODED_BYTES_MAX = 256 * 1024

#: bytes of the largest state that is read without ``--full``, because a slow store sends so much within seconds
READ_BYTES_MAX = 16 * 1024 * 1024

#: changes of one state that are listed at most
CHANGES_MAX = 20

#: fields of a state part that are not compared, because the clock always advances, and nobody reads random states
_NOT_COMPARED = ("now", "random")

_PICKLED = "holds pickled objects, which are not opened here"


@dataclass(frozen=True, slots=True)
class Verdict:
    """How two states differ."""

    #: equal, changed, added, removed or unknown
    comparison: str
    changes: tuple[Change, ...] = ()
    has_more_changes: bool = False
    #: why no more is known, or ""
    why: str = ""

    def as_record(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "comparison": self.comparison,
            "changes": [change._asdict() for change in self.changes],
            "has_more_changes": self.has_more_changes,
            "why": self.why,
        }


@dataclass(frozen=True, slots=True, repr=False)
class _Pickled:
    """A value that is not opened. Equal bytes are equal values."""

    data: bytes

    def __repr__(self) -> str:
        return f"<pickled, {size_text(len(self.data))}>"


class StateComparison:
    """Compares states of subtasks.

    Parameters
    ----------
    read : callable
        Returns the checked body of a part of either state.
    reads_all : bool
        Whether to read states of more than `READ_BYTES_MAX` bytes too.
    """

    def __init__(self, read: Callable[[Handle], memoryview], *, reads_all: bool) -> None:
        self._read = read
        self._reads_all = reads_all

    def of(self, before: SubtaskRecord | None, after: SubtaskRecord | None) -> Verdict:
        """Compare the states of a subtask in two snapshots. Raise SnapshotCorrupt if a part is damaged."""
        if before is None or after is None:
            return Verdict("added" if before is None else "removed")
        return _joined([self._own(before, after), self._deltas(before, after), self._rows(before, after)])

    def _own(self, before: SubtaskRecord, after: SubtaskRecord) -> Verdict:
        if before.state == after.state:
            return Verdict("equal")  # because both snapshots list the same part
        if refusal := self._is_too_large((before.state,), (after.state,)):
            return refusal
        bodies = [self._read(record.state) for record in (before, after)]
        if bodies[0] == bodies[1]:
            return Verdict("equal")
        if max(before.state.size, after.state.size) > DECODED_BYTES_MAX:
            return Verdict("changed", why=f"more than {size_text(DECODED_BYTES_MAX)}: not decoded")
        try:
            old, new = (NodeState.decode(body, CODEC) for body in bodies)
        except RestoreRefused:
            # Unknown, because the bytes of a state contain its clock. Different bytes do not prove a different state.
            return Verdict("unknown", why=_PICKLED)
        return _of_changes(_state_changes(old, new))

    def _deltas(self, before: SubtaskRecord, after: SubtaskRecord) -> Verdict:
        """Compare own state in deltas. Only the node applies deltas, so states with other deltas differ if one goes on
        from the other.
        """
        old, new = before.own or (), after.own or ()
        if old == new:
            return Verdict("equal")
        if refusal := self._is_too_large(old, new):
            return refusal
        try:
            earlier, later = (self._changes_of(own) for own in (old, new))
        except NotSerialisable:
            return Verdict("unknown", why=_PICKLED)
        shared = min(len(earlier), len(later))
        if earlier[:shared] != later[:shared] and (len(earlier) > 1 or len(later) > 1):
            return Verdict("unknown", why="has other deltas, which only the node applies")
        if len(earlier) == len(later) == 1:
            return _of_changes(changes(earlier[0], later[0], "state"))
        return _of_changes(changes(earlier, later, "deltas"))

    def _changes_of(self, own: tuple[Handle, ...]) -> list[Any]:
        """Return the newest whole state and the deltas behind it."""
        found = [each for handle in own for each in decode_changes(self._read(handle), handle.name)]
        newest_whole = max((number for number, (is_whole, _) in enumerate(found) if is_whole), default=0)
        return [CODEC.decode_state(body)["state"] for _, body in found[newest_whole:]]

    def _rows(self, before: SubtaskRecord, after: SubtaskRecord) -> Verdict:
        if (before.rows or (), before.version) == (after.rows or (), after.version):
            return Verdict("equal")
        try:
            lists = [stored_rows(record) for record in (before, after)]
        except GraphError as error:
            return Verdict("unknown", why=str(error))
        if lists[0] == lists[1]:
            return Verdict("equal")
        handles = [tuple(dict.fromkeys(entry.handle for entry in entries)) for entries in lists]
        if refusal := self._is_too_large(*handles):
            return refusal
        old, new = (keyed_states(entries, self._read, _opened) for entries in lists)
        return _of_changes(
            change
            for state in dict.fromkeys([*old, *new])
            for change in changes(old.get(state, {}), new.get(state, {}), "timers" if state == TIMERS_STATE else state)
        )

    def _is_too_large(self, before: tuple[Handle, ...], after: tuple[Handle, ...]) -> Verdict | None:
        size = max(sum(handle.size for handle in handles) for handles in (before, after))
        if size <= READ_BYTES_MAX or self._reads_all:
            return None
        return Verdict("unknown", why=f"more than {size_text(READ_BYTES_MAX)}: --full reads it")


def _opened(data: bytes) -> Any:
    try:
        return CODEC.decode(data)
    except NotSerialisable:
        return _Pickled(data)


def _of_changes(found: Iterator[Change]) -> Verdict:
    some = tuple(islice(found, CHANGES_MAX + 1))
    return Verdict("changed" if some else "equal", some[:CHANGES_MAX], len(some) > CHANGES_MAX)


def _joined(verdicts: list[Verdict]) -> Verdict:
    """Return the verdict on a state, of those on its pieces: changed if a piece is, and else unknown if a piece is."""
    found = {each.comparison for each in verdicts}
    all_changes = tuple(change for each in verdicts for change in each.changes)
    return Verdict(
        next(each for each in ("changed", "unknown", "equal") if each in found),
        all_changes[:CHANGES_MAX],
        len(all_changes) > CHANGES_MAX or any(each.has_more_changes for each in verdicts),
        "; ".join(dict.fromkeys(each.why for each in verdicts if each.why)),
    )


def _state_changes(before: NodeState, after: NodeState) -> Iterator[Change]:
    for field in fields(NodeState):
        if field.name not in _NOT_COMPARED:
            yield from changes(getattr(before, field.name), getattr(after, field.name), field.name)
