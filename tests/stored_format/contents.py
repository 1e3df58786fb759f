"""Reads a stored snapshot down to the fields of its records, as plain values that a test can name."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pyarrow as pa

from snapshot.channel.frame_codec import messages_of
from snapshot.channel.serialization import Codec
from snapshot.stored.part import PartKind, decode_frames
from snapshot.stored.run_store import RunStore
from snapshot.subtask.node_state import NodeState

CODEC = Codec()


def contents(store: RunStore, snapshot_id: int) -> dict[str, dict[str, Any]]:
    """All that a snapshot holds, by subtask.

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


#: What a subtask keeps that has done nothing.
_FRESH = NodeState(None, None, [], 0.0, [], False, False, {}, {})


def _state(body: memoryview) -> dict[str, Any]:
    state = NodeState.decode(body, CODEC)
    values = {field.name: (getattr(state, field.name), getattr(_FRESH, field.name)) for field in fields(NodeState)}
    return {name: _plain(value) for name, (value, fresh) in values.items() if value != fresh}


def _plain(value: Any) -> Any:
    """The value, with the rows of each batch in it as a list."""
    match value:
        case pa.RecordBatch():
            return value.to_pylist()
        case list():
            return [_plain(each) for each in value]
        case tuple() if type(value) is tuple:
            return tuple(_plain(each) for each in value)
        case _:
            return value
