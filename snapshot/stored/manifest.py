"""The manifest: the one record that makes a snapshot exist. Written last, written once, lists every part.

Owns what a manifest says and its bytes: plain MessagePack in a sealed envelope, never pickle, so that it can
be read where no user module can be imported. Must not know where it is stored. In the place of a manifest
there may be an `Aborted` record, which says that this snapshot will never exist (PROTOCOL 7.6).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from snapshot.errors import SnapshotCorrupt
from snapshot.ids import Subtask
from snapshot.stored.certificate import ReceivedEntry, SentEntry, SubtaskRecord
from snapshot.stored.envelope import Buffer, magic_of, pack_plain, seal, unpack_plain, unseal
from snapshot.stored.part import channel_of, channel_record, handle_of, handle_record, subtask_record
from snapshot.subtask.reports import Standing

MANIFEST_MAGIC = b"CLMF"
ABORTED_MAGIC = b"CLAB"


@dataclass(frozen=True, slots=True)
class Manifest:
    """A published snapshot. Every field is the same word on disk."""

    run: str
    snapshot_id: int
    incarnation: int
    claim: int  #: of the coordinator that published it
    timestamp: float  #: seconds since the epoch when it was triggered; information only
    duration: float  #: seconds from its trigger to its last acknowledgement
    final: bool  #: it shows that all has ended: the run's result
    pinned: bool  #: retention never removes it
    topology: Mapping[str, Any]  #: ``Topology.as_record()``
    records: tuple[SubtaskRecord, ...]


@dataclass(frozen=True, slots=True)
class Aborted:
    """Stands where the manifest of `snapshot_id` would, for ever."""

    run: str
    snapshot_id: int


def encode_manifest(manifest: Manifest | Aborted) -> list[Buffer]:
    """The whole file, as buffers."""
    if isinstance(manifest, Aborted):
        aborted = {"run": manifest.run, "snapshot_id": manifest.snapshot_id}
        return seal(ABORTED_MAGIC, [pack_plain(aborted)])
    record = {
        "run": manifest.run,
        "snapshot_id": manifest.snapshot_id,
        "incarnation": manifest.incarnation,
        "claim": manifest.claim,
        "timestamp": manifest.timestamp,
        "duration": manifest.duration,
        "final": manifest.final,
        "pinned": manifest.pinned,
        "topology": manifest.topology,
        "records": [encode_record(each) for each in manifest.records],
    }
    return seal(MANIFEST_MAGIC, [pack_plain(record)])


def decode_manifest(data: Buffer, name: str) -> Manifest | Aborted:
    """Read what stands in a manifest's place, called `name` in errors.

    Raises
    ------
    SnapshotCorrupt
        if any bit differs from what was written.
    RestoreRefused
        if it is whole, but of a format version that this Cutline does not read.
    """
    aborted = is_aborted(data)
    record: Any = unpack_plain(unseal(ABORTED_MAGIC if aborted else MANIFEST_MAGIC, data, name), name)
    try:
        if aborted:
            return Aborted(**record)
        return Manifest(**{**record, "records": tuple(decode_record(each) for each in record["records"])})
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise SnapshotCorrupt(f"{name}: whole, but not the fields of a manifest: {error!r}") from error


def is_aborted(data: Buffer) -> bool:
    """Whether `data` claims to be an `Aborted` record; proves nothing."""
    return magic_of(data) == ABORTED_MAGIC


def encode_record(record: SubtaskRecord) -> dict[str, Any]:
    """Plain data, for the manifest and for the control message that acknowledges a snapshot."""
    return {
        "subtask": subtask_record(record.subtask),
        "incarnation": record.incarnation,
        "handles": [handle_record(handle) for handle in record.handles],
        "sent": [[channel_record(e.channel), e.sent, e.written, e.first, e.last] for e in record.sent],
        "received": [[channel_record(e.channel), e.processed, e.written, e.first, e.last] for e in record.received],
        "standing": asdict(record.standing),
    }


def decode_record(record: dict[str, Any]) -> SubtaskRecord:
    """The inverse of `encode_record`; raises KeyError, TypeError or ValueError on anything else."""
    standing = record["standing"]
    return SubtaskRecord(
        **{
            **record,
            "subtask": Subtask(*record["subtask"]),
            "handles": tuple(handle_of(handle) for handle in record["handles"]),
            "sent": tuple(SentEntry(channel_of(channel), *numbers) for channel, *numbers in record["sent"]),
            "received": tuple(ReceivedEntry(channel_of(channel), *numbers) for channel, *numbers in record["received"]),
            "standing": Standing(**{**standing, "uncommitted": tuple(standing["uncommitted"])}),
        }
    )
