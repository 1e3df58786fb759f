"""Stored names: the key of each field, and the order of fields in arrays.

Owns the stored name of every field of a stored class. A field may be renamed freely, because its key here stays. The
module of a class with a new field cannot be imported before the field has a key here. Must not know the classes.

::

    MANIFEST            snapshots/….manifest
    ABORTED             in a manifest's place
    SUBTASK_RECORD      in a manifest's "records"
    RECOVERY_REPORT     in a manifest; SUBTASK_RECOVERY in it, with REPLAYED_LOG
    HANDLE, SUBTASK_STATUS  in a subtask's record
    SENT, RECEIVED, ENTRY, WAVES, STEP_BASE, VERSION  in a subtask's record, as arrays
    INDEPENDENT_RECORD  records/…
    TOPOLOGY            in a manifest; NODE, EDGE with ALIGNMENT, and COMPONENT in it
    NODE_STATE          the body of a STATE part
    CLAIM, BASE         claims/…, bases/…; arrays
    PIN                 pins/…; an array
    CHECKPOINT          checkpoints/…; an array with arrays of CLAIM and BASE
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from operator import attrgetter, itemgetter
from typing import Any, Final, Generic, TypeVar

T = TypeVar("T")

#: Function from the value of a field to its stored form, or back.
Convert = Callable[[Any], Any]

# ---------------------------------------------------------------- {field: key}, in the order of the stored keys

MANIFEST: Final = {
    "run": "run",
    "snapshot_id": "snapshot_id",
    "incarnation": "incarnation",
    "claim": "claim",
    "timestamp": "timestamp",
    "duration": "duration",
    "final": "final",
    "pinned": "pinned",
    "topology": "topology",
    "records": "records",
    "written_by": "written_by",
    "edited_from": "edited_from",
    "recovery": "recovery",
}

RECOVERY_REPORT: Final = {"subtasks": "subtasks"}

SUBTASK_RECOVERY: Final = {"subtask": "subtask", "record": "record", "checkpoint": "checkpoint", "logs": "logs"}

REPLAYED_LOG: Final = {"sender": "sender", "relation": "relation", "first": "first", "last": "last"}

ABORTED: Final = {"run": "run", "snapshot_id": "snapshot_id"}

SUBTASK_RECORD: Final = {
    "subtask": "subtask",
    "incarnation": "incarnation",
    "handles": "handles",
    "sent": "sent",
    "received": "received",
    "status": "standing",
    "groups": "groups",
    "rows": "rows",
    "own": "own",
    "waves": "waves",
    "steps": "steps",
    "base": "base",
    "version": "version",
}

INDEPENDENT_RECORD: Final = {
    "run": "run",
    "number": "number",
    "record": "record",
    "log": "log",
    "checkpoint": "checkpoint",
    "requested": "requested",
}

HANDLE: Final = {
    "kind": "kind",
    "run": "run",
    "incarnation": "incarnation",
    "snapshot_id": "snapshot_id",
    "subtask": "subtask",
    "channel": "channel",
    "first": "first",
    "last": "last",
    "size": "size",
    "checksum": "checksum",
    "path": "path",
    "offset": "offset",
    "inline": "inline",
    "groups": "groups",
    "rows": "rows",
}

SUBTASK_STATUS: Final = {
    "ended": "ended",
    "passive": "passive",
    "has_timers": "has_timers",
    "outer_inputs_ended": "outer_inputs_ended",
    "uncommitted": "uncommitted",
    "partitions": "partitions",
    "own_state": "own_state",
}

TOPOLOGY: Final = {
    "name": "name",
    "nodes": "nodes",
    "edges": "edges",
    "components": "components",
    "key_groups": "key_groups",
    "mode": "mode",
}

NODE: Final = {
    "name": "name",
    "parallelism": "parallelism",
    "component": "component",
    "is_source": "is_source",
    "is_sink": "is_sink",
    "guarantee": "guarantee",
    "class_name": "class_name",
    "acts_on_end": "acts_on_end",
    "formerly": "formerly",
    "raised_version": "state_version",
    "migrations": "migrations",
    "raised_message_version": "message_version",
    "is_aggregate": "is_aggregate",
}

EDGE: Final = {
    "source": "source",
    "target": "target",
    "partitioning": "partitioning",
    "alignment": "alignment",
    "in_cycle": "in_cycle",
    "reason": "reason",
    "key": "key",
    "on_error": "on_error",
}

ALIGNMENT: Final = {"aligned": "aligned", "timeout": "timeout"}

COMPONENT: Final = {"nodes": "nodes", "cyclic": "cyclic"}

NODE_STATE: Final = {
    "state": "state",
    "random": "random",
    "timers": "timers",
    "now": "now",
    "ended_inputs": "ended_inputs",
    "exhausted": "exhausted",
    "ended": "ended",
    "uncommitted": "uncommitted",
    "partitioners": "partitioners",
    "log_run": "log_run",
}

# ---------------------------------------------------------------- fields of arrays, in the stored order

SUBTASK: Final = ("node", "index")
CHANNEL: Final = ("source", "target")
SENT: Final = ("channel", "sent", "written", "first", "last")
RECEIVED: Final = ("channel", "processed", "written", "first", "last")
ENTRY: Final = ("handle", "lo", "hi")
WAVES: Final = ("channel", "waves")
STEP_BASE: Final = ("snapshot_id", "incarnation", "generation", "sent", "processed")
VERSION: Final = ("disk", "run", "subtask", "snapshot_id", "size")
ORIGIN: Final = ("kind", "run", "incarnation", "snapshot_id", "subtask", "channel")  #: in a part's header
ORIGIN_OF_LISTED: Final = (*ORIGIN, "groups", "first", "last")  #: in the header of a part of a list
CLAIM: Final = ("number", "owner", "instance")
BASE: Final = ("claim", "snapshot_id")
PIN: Final = ("snapshot_id", "number", "kind", "holder")
CHECKPOINT: Final = ("claim", "claims", "bases", "aborted")


class StoredMap(Generic[T]):
    """Write records of one class as maps, and read them.

    Parameters
    ----------
    record : type
        A data class.
    keys : mapping of str to str
        The stored key of each field. A field that is None by default is not stored while it is None.
    write, read : mapping of str to callable
        Converters of the fields whose stored form differs from their value.
    """

    def __init__(
        self,
        record: type[T],
        keys: Mapping[str, str],
        *,
        write: Mapping[str, Convert] = {},
        read: Mapping[str, Convert] = {},
    ) -> None:
        declared = fields(record)  # type: ignore[arg-type]  # mypy has no word for data classes
        _check(record, [field.name for field in declared], list(keys))
        assert len(dict.fromkeys(keys.values())) == len(keys), f"two fields of {record.__name__} have one key"
        assert {*write, *read} <= {*keys}
        self._record = record
        self._write = [(field, key, write.get(field)) for field, key in keys.items()]
        self._read = {key: (field, read.get(field)) for field, key in keys.items()}
        self._optional = frozenset(field.name for field in declared if field.default is None)
        self._needed = [key for field, key in keys.items() if field not in self._optional]

    def write(self, record: T) -> dict[str, Any]:
        """Return the record as plain data, in the order of the keys."""
        return {
            key: getattr(record, field) if convert is None else convert(getattr(record, field))
            for field, key, convert in self._write
            if field not in self._optional or getattr(record, field) is not None
        }

    def read(self, stored: Any) -> T:
        """Return the record of plain data from `write`. The key of a field that is None by default may be missing.

        Raises
        ------
        KeyError, TypeError, ValueError
            if `stored` is no such record.
        """
        if not isinstance(stored, Mapping):
            raise TypeError(f"a {self._record.__name__} is stored as a map, not as {type(stored).__name__}")
        values: dict[str, Any] = {}
        for key, value in stored.items():
            if key not in self._read:
                raise TypeError(f"a stored {self._record.__name__} has a key {key!r}, which this Cutline does not know")
            field, convert = self._read[key]
            values[field] = value if convert is None else convert(value)
        if missing := [key for key in self._needed if key not in stored]:
            raise TypeError(f"a stored {self._record.__name__} has no {', '.join(missing)}")
        return self._record(**values)


class StoredArray(Generic[T]):
    """Write records of one class as arrays, and read them.

    Parameters
    ----------
    record : type
        A data class or a named tuple.
    order : sequence of str
        All fields of the class, in the stored order.
    write, read : mapping of str to callable
        Converters of the fields whose stored form differs from their value.
    """

    def __init__(
        self,
        record: type[T],
        order: Sequence[str],
        *,
        write: Mapping[str, Convert] = {},
        read: Mapping[str, Convert] = {},
    ) -> None:
        declared = list(record.__annotations__)
        _check(record, declared, order)
        assert {*write, *read} <= {*order}
        self._record = record
        self._count = len(order)
        self._fields = attrgetter(*order)  # fast, because a manifest has an array for each end of each channel
        self._write = [(order.index(field), convert) for field, convert in write.items()]
        self._read = [(order.index(field), convert) for field, convert in read.items()]
        #: puts the stored values into the constructor's order, or None if the orders are equal
        self._arrange = None if declared == [*order] else itemgetter(*map(order.index, declared))

    def write(self, record: T) -> list[Any]:
        """Return the record as plain data, in the stored order."""
        values = list(self._fields(record))
        for place, convert in self._write:
            values[place] = convert(values[place])
        return values

    def read(self, stored: Any) -> T:
        """Return the record of plain data from `write`.

        Raises
        ------
        TypeError, ValueError
            if `stored` is no such record.
        """
        values = list(stored)
        if len(values) != self._count:
            raise ValueError(f"a stored {self._record.__name__} has {self._count} values, not {len(values)}")
        for place, convert in self._read:
            values[place] = convert(values[place])
        return self._record(*values if self._arrange is None else self._arrange(values))


def _check(record: type, declared: Sequence[str], stored: Sequence[str]) -> None:
    """Refuse a record whose fields differ from its table. A new field needs a key, a renamed field its old key."""
    assert sorted(declared) == sorted(stored), f"{record.__name__} has {declared}, but its stored names are {stored}"
