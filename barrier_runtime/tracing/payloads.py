"""Payloads in a trace: the bytes of a small message, so that a diagram can show it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from cutline.snapshot.channel.pickles import NotSerialisable
from cutline.snapshot.channel.serialization import Codec

#: Bytes of a payload at most. A larger message is traced without its payload, because no diagram has room for it.
PAYLOAD_BYTES_MAX = 64

#: Rows of a batch whose payloads are kept. The limit exists because making Python values of more would take all time.
LABELLED_ROWS_MAX = 32

_NUMBERS = (int, float, bool, type(None))
_TEXTS = (str, bytes)

#: types with a length, which are not encoded if the length alone shows that the payload is too large
_SIZED = (*_TEXTS, bytearray, list, tuple, dict)

#: the form of a message in memory, taken by `Payloads.encoded`
Kept = object


class Payloads:
    """Keeps messages of one subtask. User objects are never pickled here, and never unpickled by drawings."""

    def __init__(self) -> None:
        self._codec = Codec(safe=True)

    def keep(self, message: Any) -> Kept:
        """Return a small immutable message as it is, and every other message encoded.

        Small messages are encoded later, because a busy subtask drops most of its events before sending them.
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
        """Return the rows of a batch as `keep` does. Return `NOTHING` for each row of a large batch."""
        if batch.num_rows > LABELLED_ROWS_MAX:
            return [NOTHING] * int(batch.num_rows)
        return [self.keep(row) for row in batch.to_pylist()]

    def encoded(self, kept: Kept) -> bytes:
        """Return the payload of an event: empty if the message is large, or needs a class."""
        return kept if type(kept) is Encoded else self._encode(kept)

    def _encode(self, message: Any) -> bytes:
        if type(message) in _SIZED and len(message) > PAYLOAD_BYTES_MAX:
            return b""
        try:
            packed = self._codec.encode(message)
        except NotSerialisable:
            return b""
        return packed if len(packed) <= PAYLOAD_BYTES_MAX else b""


class Encoded(bytes):
    """An encoded payload, as opposed to a user's message of type bytes."""


#: the payload of events without a message, and of messages that are traced without a payload
NOTHING = Encoded()


def _is_small(value: Any) -> bool:
    kind = type(value)
    return kind in _NUMBERS or (kind in _TEXTS and len(value) <= PAYLOAD_BYTES_MAX)
