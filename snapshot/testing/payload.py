"""Messages as a history stores them: bytes that no handler can change, and that decode to an equal value."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from cutline.snapshot.channel.serialization import Codec


def pack(message: Any, codec: Codec) -> bytes:
    """Encode one message."""
    return codec.encode(message)


def unpack(payload: bytes, codec: Codec) -> Any:
    """Decode a message: the inverse of `pack`."""
    return codec.decode(payload)


def pack_rows(batch: pa.RecordBatch, codec: Codec) -> list[bytes]:
    """Encode the rows of a batch. Each row is a message, as a node without `onBatch` receives it."""
    return [codec.encode(row) for row in batch.to_pylist()]
