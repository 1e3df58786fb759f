"""Manifest: the one record that makes a snapshot exist. Written last, written once, lists every part.

Owns the fields of a manifest and their bytes: plain MessagePack in a sealed envelope. Never pickle, so that a manifest
can be read where no user module can be imported. Must not know where manifests are stored. An `Aborted` record in a
manifest's place says that the snapshot will never exist (PROTOCOL 7.6, undecided manifest).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from cutline.snapshot.channel.frame import Buffer
from cutline.snapshot.errors import SnapshotCorrupt
from cutline.snapshot.stored import keys
from cutline.snapshot.stored.certificate import (
    ChannelWaves,
    ListEntry,
    LocalVersion,
    OwnStateKind,
    ReceivedEntry,
    SentEntry,
    StepBase,
    SubtaskRecord,
    SubtaskStatus,
)
from cutline.snapshot.stored.envelope import MANIFEST_MAGIC, magic_of, pack_plain, seal, unpack_plain, unseal
from cutline.snapshot.stored.keys import Convert, StoredArray, StoredMap
from cutline.snapshot.stored.part import CHANNEL, HANDLE, SUBTASK, read_groups
from cutline.snapshot.stored.recovery_report import RECOVERY_REPORT, RecoveryReport

ABORTED_MAGIC = b"CLAB"


@dataclass(frozen=True, slots=True)
class Manifest:
    """A published snapshot. `snapshot.stored.keys` has the stored names of its fields."""

    run: str
    snapshot_id: int
    incarnation: int
    claim: int  #: claim of the coordinator that published the snapshot
    timestamp: float  #: seconds since the epoch at the trigger; information only
    duration: float  #: seconds from the trigger to the last acknowledgement
    final: bool  #: the snapshot shows that all subtasks have ended, so it is the run's result
    pinned: bool  #: retention never removes the snapshot
    topology: Mapping[str, Any]  #: ``record_of_topology(Topology)``
    records: tuple[SubtaskRecord, ...]
    #: how far the subtasks were when a restore made the snapshot of their records, or None for another snapshot
    recovery: RecoveryReport | None = None
    written_by: str | None = None  #: Python and Cutline that wrote the snapshot, to show; None: not known
    edited_from: int | None = None  #: snapshot that an editor changed into this one, or None if a run took the snapshot


@dataclass(frozen=True, slots=True)
class Aborted:
    """Record in the place of the manifest of `snapshot_id`, for ever."""

    run: str
    snapshot_id: int


def encode_manifest(manifest: Manifest | Aborted) -> list[Buffer]:
    """Return the whole file, as buffers."""
    if isinstance(manifest, Aborted):
        return seal(ABORTED_MAGIC, [pack_plain(_ABORTED.write(manifest))])
    return seal(MANIFEST_MAGIC, [pack_plain(_MANIFEST.write(manifest))])


def decode_manifest(data: Buffer, name: str) -> Manifest | Aborted:
    """Decode a manifest, or the aborted record in its place. `name` names the file in errors.

    Raises
    ------
    SnapshotCorrupt
        if any bit is damaged.
    RestoreRefused
        if the file is whole, but of a format version that this Cutline does not read.
    """
    aborted = is_aborted(data)
    record: Any = unpack_plain(unseal(ABORTED_MAGIC if aborted else MANIFEST_MAGIC, data, name), name)
    try:
        return _ABORTED.read(record) if aborted else _MANIFEST.read(record)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SnapshotCorrupt(f"{name}: whole, but not the fields of a manifest: {error!r}") from error


def is_aborted(data: Buffer) -> bool:
    """Return whether `data` claims to be an `Aborted` record. Nothing is checked."""
    return magic_of(data) == ABORTED_MAGIC


def _each(convert: Convert, gather: Callable[[Iterable[Any]], Any]) -> Convert:
    """Return a function that converts each of several records."""
    return lambda records: gather(map(convert, records))


_SENT = StoredArray(SentEntry, keys.SENT, write={"channel": CHANNEL.write}, read={"channel": CHANNEL.read})
_RECEIVED = StoredArray(ReceivedEntry, keys.RECEIVED, write={"channel": CHANNEL.write}, read={"channel": CHANNEL.read})
_ENTRY = StoredArray(ListEntry, keys.ENTRY, write={"handle": HANDLE.write}, read={"handle": HANDLE.read})
_STATUS = StoredMap(
    SubtaskStatus,
    keys.SUBTASK_STATUS,
    write={"own_state": lambda kind: kind.value},
    read={"uncommitted": tuple, "partitions": tuple, "own_state": OwnStateKind},
)


def _read_waves(stored: Any) -> tuple[tuple[int, int], ...]:
    return tuple((through, wave) for through, wave in stored)


_WAVES = StoredArray(
    ChannelWaves,
    keys.WAVES,
    write={"channel": CHANNEL.write, "waves": lambda waves: [list(each) for each in waves]},
    read={"channel": CHANNEL.read, "waves": _read_waves},
)

_BASE = StoredArray(
    StepBase,
    keys.STEP_BASE,
    write={"sent": list, "processed": list},
    read={"sent": tuple, "processed": tuple},
)

_VERSION = StoredArray(LocalVersion, keys.VERSION, write={"subtask": SUBTASK.write}, read={"subtask": SUBTASK.read})

#: Stored form of subtask records in the manifest.
SUBTASK_RECORD = StoredMap(
    SubtaskRecord,
    keys.SUBTASK_RECORD,
    write={
        "subtask": SUBTASK.write,
        "handles": _each(HANDLE.write, list),
        "sent": _each(_SENT.write, list),
        "received": _each(_RECEIVED.write, list),
        "status": _STATUS.write,
        "groups": list,
        "rows": _each(_ENTRY.write, list),
        "own": _each(HANDLE.write, list),
        "steps": _each(HANDLE.write, list),
        "base": _BASE.write,
        "version": _VERSION.write,
        "waves": _each(_WAVES.write, list),
    },
    read={
        "subtask": SUBTASK.read,
        "handles": _each(HANDLE.read, tuple),
        "sent": _each(_SENT.read, tuple),
        "received": _each(_RECEIVED.read, tuple),
        "status": _STATUS.read,
        "groups": read_groups,
        "rows": _each(_ENTRY.read, tuple),
        "own": _each(HANDLE.read, tuple),
        "steps": _each(HANDLE.read, tuple),
        "base": _BASE.read,
        "version": _VERSION.read,
        "waves": _each(_WAVES.read, tuple),
    },
)

_ABORTED = StoredMap(Aborted, keys.ABORTED)
_MANIFEST = StoredMap(
    Manifest,
    keys.MANIFEST,
    write={"records": _each(SUBTASK_RECORD.write, list), "recovery": RECOVERY_REPORT.write},
    read={"records": _each(SUBTASK_RECORD.read, tuple), "recovery": RECOVERY_REPORT.read},
)
