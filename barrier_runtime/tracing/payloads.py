"""Payloads in a trace: the bytes of a small message, so that a diagram can show it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from snapshot.channel.serialization import Codec

#: A message that takes more is in the trace without what it says: no diagram has room for it.
PAYLOAD_BYTES_MAX = 64

#: Rows of a batch up to which each is kept with what it says: making Python values of more would be all that is done.
LABELLED_ROWS_MAX = 32

_NUMBERS = (int, float, bool, type(None))
_TEXTS = (str, bytes)

#: What has a length is not encoded where that alone says that it is too large.
_SIZED = (*_TEXTS, bytearray, list, tuple, dict)

#: What is kept in memory of a message, for `Payloads.encoded`.
Kept = object


class Payloads:
    """Keeps messages of one subtask. Nothing of the user's is pickled, nor unpickled where it is drawn."""

    def __init__(self) -> None:
        self._pack = Codec(safe=True).pack

    def keep(self, message: Any) -> Kept:
        """Return a small immutable message as it is, and every other message encoded.

        A busy subtask drives out again most of what it notes: what can wait is not encoded in vain.
        """
        if _is_small(message):
            return message
        if type(message) is tuple and len(message) <= PAYLOAD_BYTES_MAX:
            for each in message:
                if not _is_small(each):
                    return Encoded(self._encode(message))
            return message
        return Encoded(self._encode(message))

    def keep_rows(self, batch: pa.RecordBatch) -> list[Kept]:
        """The rows of a batch, likewise; those of a large one are not told."""
        if batch.num_rows > LABELLED_ROWS_MAX:
            return [NOTHING] * int(batch.num_rows)
        return [self.keep(row) for row in batch.to_pylist()]

    def encoded(self, kept: Kept) -> bytes:
        """The payload of an event; empty where it is large, or more than plain values."""
        return kept if type(kept) is Encoded else self._encode(kept)

    def _encode(self, message: Any) -> bytes:
        if type(message) in _SIZED and len(message) > PAYLOAD_BYTES_MAX:
            return b""
        try:
            packed = self._pack(message)
        except (TypeError, ValueError, OverflowError, RecursionError, BufferError):
            return b""
        return packed if len(packed) <= PAYLOAD_BYTES_MAX else b""


class Encoded(bytes):
    """A payload already, and no message of the user's that is bytes."""


#: For events without a message, and for messages of which nothing is told.
NOTHING = Encoded()


def _is_small(value: Any) -> bool:
    kind = type(value)
    return kind in _NUMBERS or (kind in _TEXTS and len(value) <= PAYLOAD_BYTES_MAX)
