"""Record of one subtask alone, in mode `channelLogs`, and its bytes. One record is one file (PROTOCOL 14.1)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from cutline.snapshot.channel.frame import Buffer
from cutline.snapshot.errors import SnapshotCorrupt
from cutline.snapshot.ids import SNAPSHOT_IDS_PER_CLAIM, ChannelId, Subtask, first_snapshot_id
from cutline.snapshot.stored import keys
from cutline.snapshot.stored.certificate import SubtaskRecord
from cutline.snapshot.stored.envelope import pack_plain, seal, unpack_plain, unseal
from cutline.snapshot.stored.keys import StoredMap
from cutline.snapshot.stored.manifest import SUBTASK_RECORD
from cutline.snapshot.stored.part import HANDLE, Handle
from cutline.snapshot.stored.recovery_report import (
    SourceProgress as SourceProgress,  # a field of the record, and so part of this module
)

RECORD_MAGIC = b"CLRC"


@dataclass(frozen=True, slots=True)
class LocalCheckpoint:
    """State, numbers and log of one subtask. `snapshot.stored.keys` has the stored names of its fields."""

    run: str
    #: numbers of one incarnation ascend, and are those of no snapshot
    number: int
    #: state and lists of the subtask, with the numbers of its channels and no messages
    record: SubtaskRecord
    #: parts with the messages that receivers may still need, in the order of the channels and of their numbers
    log: tuple[Handle, ...]
    #: what the subtask has processed of each source, at least (`snapshot.modes.records.recovery_report`)
    checkpoint: SourceProgress
    #: highest id of a snapshot that the coordinator had requested before the capture, or 0
    requested: int

    @property
    def subtask(self) -> Subtask:
        """The subtask."""
        return self.record.subtask

    @property
    def sent(self) -> dict[ChannelId, int]:
        """{output: number of the last message sent} at the capture."""
        return {entry.channel: entry.sent for entry in self.record.sent}

    @property
    def processed(self) -> dict[ChannelId, int]:
        """{input: number of the last message processed} at the capture."""
        return {entry.channel: entry.processed for entry in self.record.received}

    @property
    def all_handles(self) -> tuple[Handle, ...]:
        """Handles of all parts that the record needs."""
        return (*self.record.all_handles, *self.log)


def first_record_number(incarnation: int) -> int:
    """Return the lowest number of the records of an incarnation: the upper half of the ids of its claim."""
    return first_snapshot_id(incarnation) + SNAPSHOT_IDS_PER_CLAIM // 2


def encode_record(record: LocalCheckpoint) -> list[Buffer]:
    """Return the whole file, as buffers."""
    return seal(RECORD_MAGIC, [pack_plain(_RECORD.write(record))])


def decode_record(data: Buffer, name: str) -> LocalCheckpoint:
    """Decode a record. `name` names the file in errors.

    Raises
    ------
    SnapshotCorrupt
        if any bit is damaged.
    RestoreRefused
        if the file is whole, but of a format version that this Cutline does not read.
    """
    stored: Any = unpack_plain(unseal(RECORD_MAGIC, data, name), name)
    try:
        return _RECORD.read(stored)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SnapshotCorrupt(f"{name}: whole, but not the fields of a record: {error!r}") from error


def _pairs(stored: Iterable[Any]) -> SourceProgress:
    return tuple((partition, offset) for partition, offset in stored)


_RECORD = StoredMap(
    LocalCheckpoint,
    keys.INDEPENDENT_RECORD,
    write={
        "record": SUBTASK_RECORD.write,
        "log": lambda handles: list(map(HANDLE.write, handles)),
        "checkpoint": lambda pairs: list(map(list, pairs)),
    },
    read={"record": SUBTASK_RECORD.read, "log": lambda stored: tuple(map(HANDLE.read, stored)), "checkpoint": _pairs},
)
