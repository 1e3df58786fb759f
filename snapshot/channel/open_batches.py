"""The frame of record batches that a sending end is filling: an Arrow IPC stream, still open.

Small batches share a frame, because each frame costs as much as a thousand rows on its way from encoding to
`Node.onBatch`. Rows are copied when they are added, so what a sender does to its memory later is not seen.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from snapshot.channel.frame import Frame, PayloadKind
from snapshot.channel.record_batches import has_dictionaries

#: Rows from which a batch needs no company: what a frame costs is then below a nanosecond or two a row.
JOINED_ROWS_MAX: Final = 16 * 1024

#: Bytes at which a frame of small batches is full: one large write of a socket.
JOINED_BYTES_MAX: Final = 256 * 1024


class OpenBatches:
    """Encodes batches of one schema into one frame. Ended by `frame`.

    Parameters
    ----------
    schema : pyarrow.Schema
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.row_count = 0
        self._schema = schema
        # Dictionaries of several batches may outgrow their index, or not unify at all.
        self._can_join = not any(has_dictionaries(field.type) for field in schema)
        self._sink = pa.BufferOutputStream()
        self._writer = pa.ipc.new_stream(self._sink, schema)

    def takes(self, batch: pa.RecordBatch) -> bool:
        """Whether `batch` may go into the same frame as those that are in it."""
        return self._can_join and batch.num_rows < JOINED_ROWS_MAX and self._has_schema_of(batch)

    def add(self, batch: pa.RecordBatch) -> None:
        """Encode the rows of `batch` behind all others."""
        self._writer.write_batch(batch)
        self.row_count += batch.num_rows

    @property
    def byte_count(self) -> int:
        """What is encoded so far."""
        return int(self._sink.tell())

    @property
    def is_full(self) -> bool:
        """Nothing more is to be added."""
        return self.row_count >= JOINED_ROWS_MAX or not self._can_join or self.byte_count >= JOINED_BYTES_MAX

    def frame(self, first: int) -> Frame:
        """The frame, the first row of which is message `first`."""
        self._writer.close()
        return Frame(first, self.row_count, PayloadKind.BATCH, memoryview(self._sink.getvalue()))

    def _has_schema_of(self, batch: pa.RecordBatch) -> bool:
        return batch.schema is self._schema or bool(batch.schema.equals(self._schema, check_metadata=True))
