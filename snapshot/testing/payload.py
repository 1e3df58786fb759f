"""Messages as a history keeps them: bytes that no handler can change, from which the very same value comes back."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from snapshot.channel.serialization import Codec


def pack(message: Any, codec: Codec) -> bytes:
    """One message."""
    return codec.encode(message)


def unpack(payload: bytes, codec: Codec) -> Any:
    """The inverse of `pack`."""
    return codec.decode(payload)


def pack_rows(batch: pa.RecordBatch, codec: Codec) -> list[bytes]:
    """The rows of a batch, each of which is a message, as a node without `onBatch` is given them."""
    return [codec.encode(row) for row in batch.to_pylist()]
