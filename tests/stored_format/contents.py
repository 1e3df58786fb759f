"""Reads a stored snapshot down to the fields of its records, as plain values that a test can name."""

from __future__ import annotations

from typing import Any

import msgpack
import pyarrow as pa

from cutline.snapshot.channel.frame_codec import messages_of
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.stored.envelope import MANIFEST_MAGIC, unseal
from cutline.snapshot.stored.layout import manifest_id
from cutline.snapshot.stored.manifest import ABORTED_MAGIC
from cutline.snapshot.stored.node_state import NodeState
from cutline.snapshot.stored.part import PartKind, decode_frames
from cutline.snapshot.stored.run_store import RunStore

CODEC = Codec()

#: First bytes of an Arrow IPC stream.
_ARROW_STREAM = b"\xff" * 4


def contents(store: RunStore, snapshot_id: int) -> dict[str, dict[str, Any]]:
    """Read a whole snapshot, by subtask.

    ``state`` and ``frames`` are read from the parts, ``sent`` and ``received`` from the certificate. Fields of a state
    that are as in a fresh subtask are left out, and so are channels on which nothing was sent.
    """
    snapshot = store.read_snapshot(snapshot_id, CODEC)
    found: dict[str, dict[str, Any]] = {}
    for record in snapshot.manifest.records:
        subtask: dict[str, Any] = {}
        for handle in record.handles:
            body = store.read_part(handle)
            if handle.kind is PartKind.STATE:
                subtask.update(_state(body))
            else:
                frames = [(f.first, f.kind.name, _plain(messages_of(f, CODEC))) for f in decode_frames(handle, body)]
                subtask[f"{handle.kind.name} {handle.channel}"] = frames
        for sent in record.sent:
            if sent.sent:
                subtask[f"sent {sent.channel}"] = (sent.sent, sent.written, sent.first, sent.last)
        for received in record.received:
            if received.written:
                numbers = (received.processed, received.written, received.first, received.last)
                subtask[f"received {received.channel}"] = numbers
        found[str(record.subtask)] = subtask
    return found


#: The stored state of a subtask that has done nothing.
_FRESH: dict[str, Any] = {
    **dict.fromkeys(("state", "random")),
    **{"timers": [], "now": 0.0, "ended_inputs": [], "exhausted": False, "ended": False},
    **{"uncommitted": {}, "partitioners": {}},
}


def _state(body: memoryview) -> dict[str, Any]:
    """The stored names and values of a state, read and written by its class."""
    stored = CODEC.decode_state(b"".join(bytes(piece) for piece in NodeState.decode(body, CODEC).encode(CODEC)))
    assert list(stored) == list(_FRESH)
    pairs = stored["uncommitted"]
    stored["uncommitted"] = dict(pairs)
    assert len(stored["uncommitted"]) == len(pairs)
    return {name: _plain(value) for name, value in stored.items() if value != _FRESH[name]}


def without_bytes(path: str, data: bytes) -> Any:
    """The file; of a manifest the record, without reasons of alignments (prose) and without the bytes of parts."""
    if manifest_id(path.partition("/")[2]) is None or data[:4] == ABORTED_MAGIC:
        return data
    record = msgpack.unpackb(unseal(MANIFEST_MAGIC, data, path))
    for edge in record["topology"]["edges"]:
        assert edge.pop("reason")
    for handle in (handle for each in record["records"] for handle in _handles(each)):
        assert handle.pop("size") and handle.pop("checksum")
        del handle["inline"], handle["offset"], handle["path"]
    return record


def _handles(record: dict[str, Any]) -> list[dict[str, Any]]:
    """All stored handles of a subtask's record."""
    return [*record["handles"], *(entry[0] for entry in record.get("rows", ())), *record.get("own", ())]


def _plain(value: Any) -> Any:
    """The value, with the rows of each batch in it as a list, also those of an Arrow stream."""
    match value:
        case pa.RecordBatch():
            return value.to_pylist()
        case bytes() if value.startswith(_ARROW_STREAM):
            return pa.ipc.open_stream(value).read_all().to_pylist()
        case list():
            return [_plain(each) for each in value]
        case tuple() if type(value) is tuple:
            return tuple(_plain(each) for each in value)
        case _:
            return value
