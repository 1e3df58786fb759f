"""The sender's end of a channel: numbers and encodes messages, and builds frames of them. No I/O.

A link (a socket, a queue inside one worker, the simulator's network) takes from the out-buffer of a `ChannelSender` and
delivers to a `ChannelReceiver`. Messages are numbered from 1. At a cut the sender's numbers are ``sent`` (S) and
``written`` (w).

::

    ChannelSender                                          ChannelReceiver
    ┌──────────────────────────────┐                   ┌──────────────────────────────┐
    │ open frame │ frames │ markers│ ── take() ─ link ─│─> deliver() │ frames │ head  │ ─> node
    └──────────────────────────────┘                   └──────────────────────────────┘
      S                    w                             arrived                p
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from snapshot.channel.frame import PayloadKind
from snapshot.channel.frame_codec import encoded_together, frame_of_batch, frame_of_end, frame_of_pieces
from snapshot.channel.output_buffer import BackpressureFlag, OutputBuffer, Spill, buffer_divisor
from snapshot.channel.record_batches import JOINED_ROWS_MAX, Allocate, OpenBatches, new_memory
from snapshot.channel.serialization import Codec
from snapshot.errors import ChannelError, NodeError
from snapshot.ids import ChannelId

#: A frame of single messages is sealed at this size: large enough that sockets run at full speed, small
#: enough that a marker behind a half-written one waits less than a tenth of a millisecond.
FRAME_BYTES_TARGET = 32 * 1024

#: One message may be this large; a larger one is refused where it is sent. It has to fit a frame.
MESSAGE_BYTES_MAX = 128 * 1024 * 1024

#: bytes of a message above which its frame's size is checked at once; of smaller messages this many pass unchecked
CHECKED_BYTES = 256
_UNSEEN_MAX = 4096

#: What `send_all` encodes in one call: this part of a frame, of so many messages at first, and at most.
_CHUNK_PART = 4
_AT_ONCE_FIRST, AT_ONCE_MAX = 16, 256

_VALUES, _TUPLES, _FLAT = PayloadKind.VALUES, PayloadKind.TUPLES, PayloadKind.FLAT


class ChannelSender:
    """The sender's end of one channel.

    Parameters
    ----------
    channel : ChannelId
    codec : Codec
    backpressure, sent, spill, siblings
        See `OutputBuffer`.
    """

    def __init__(
        self,
        channel: ChannelId,
        codec: Codec,
        backpressure: BackpressureFlag,
        *,
        sent: int = 0,
        spill: Spill | None = None,
        siblings: int = 1,
    ) -> None:
        self.channel = channel
        self.buffer = OutputBuffer(channel, backpressure, sent=sent, spill=spill, siblings=siblings)
        self.ended = False
        #: where large frames are encoded, so that the link need not copy them; set by the link
        self.allocate: Allocate = new_memory
        self._codec, self._pack = codec, codec.pack
        self._frame_bytes = FRAME_BYTES_TARGET // buffer_divisor(siblings)
        #: the messages of the open frame, encoded; written by `send`, and by what does its work (`context._by_key`)
        self.open_pieces: list[bytes] = []
        #: messages in `open_pieces` beyond one a piece
        self._further = 0
        #: messages that `send_all` encodes in one call: by the size of the last ones they fill a part of a frame
        self._at_once = _AT_ONCE_FIRST
        #: of the open frame, or of the next one; None: whatever is sent is checked, and refused
        self.open_kind: PayloadKind | None = _VALUES
        self._forbidden = ""
        #: bytes of the open frame's pieces up to `_checked`, and the count at which they are checked again
        self._piece_bytes = self._checked = 0
        self.check_at = 1
        #: the open frame while its kind is BATCH; else it is `open_pieces`
        self._batches: OpenBatches | None = None

    def send(self, message: Any) -> None:
        """Number, encode and buffer one message. Never blocks.

        Raises
        ------
        NotSerialisable
            if the codec refuses it.
        ChannelError
            if it is larger than `MESSAGE_BYTES_MAX`, or the channel has ended.
        NodeError
            while it is forbidden.
        """
        try:
            if type(message) is tuple:
                if self.open_kind is not _TUPLES:
                    self.switch(_TUPLES)
                piece = self._pack([*message])
            else:
                if self.open_kind is not _VALUES:
                    self.switch(_VALUES)
                piece = self._pack(message)
        except (TypeError, ValueError, OverflowError, RecursionError, BufferError):
            piece = self._codec.encode(list(message) if type(message) is tuple else message)  # says what is wrong
        pieces = self.open_pieces
        pieces.append(piece)
        # The hot path ends here: sizes are added up now and then, and at once where one message is large.
        if len(piece) > CHECKED_BYTES or len(pieces) >= self.check_at:
            self.check_frame_size(piece)

    def send_all(self, messages: list[Any], *, are_tuples: bool) -> None:
        """`send` each of `messages`, no record batch among them, with a few calls for all."""
        start, is_single = 0, self.ended
        while start < len(messages):
            some = messages[start : start + self._at_once]
            start += len(some)
            encoded = None if is_single else encoded_together(some, self._codec, are_tuples=are_tuples)
            if encoded is None or (len(some) == 1 and len(encoded[1]) > MESSAGE_BYTES_MAX):
                for message in some:  # meets what is wrong, if anything is, and says what it is
                    self.send(message)
                continue
            kind, chunk = encoded
            per_chunk = max(1, self._frame_bytes // _CHUNK_PART * len(some) // len(chunk))
            if len(some) > 1 and len(chunk) > min(self._frame_bytes, MESSAGE_BYTES_MAX):  # larger than those before
                start, self._at_once = start - len(some), min(per_chunk, len(some) - 1)
                continue
            if self.open_kind is not kind and not (kind is _FLAT and self.open_kind is _TUPLES and self.open_pieces):
                self.switch(kind)
            self._further += len(some) - 1
            self._at_once = min(per_chunk, AT_ONCE_MAX)
            self.open_pieces.append(chunk)
            self.check_frame_size(chunk)

    def forbid(self, why: str) -> None:
        """Refuse whatever is sent, with these words, until they are ""."""
        self.seal()
        self._forbidden, self.open_kind = why, None if why else _VALUES

    def send_batch(self, batch: pa.RecordBatch) -> None:
        """Number, encode and buffer the rows of a record batch; an empty one is nothing. Raises as `send`."""
        if not batch.num_rows:
            return
        if self.open_kind is None:
            self.switch(PayloadKind.BATCH)
        if self.ended or (batch.get_total_buffer_size() > MESSAGE_BYTES_MAX and batch.nbytes > MESSAGE_BYTES_MAX):
            self._refuse(batch.nbytes)
        if batch.num_rows >= JOINED_ROWS_MAX:  # it fills a frame alone
            self.seal()
            self.buffer.append(frame_of_batch(self.buffer.framed + 1, batch, self.allocate))
            return
        if self._batches is None or not self._batches.takes(batch):
            self.switch(PayloadKind.BATCH)
            self._batches = OpenBatches(batch.schema)
        self._batches.add(batch)
        if self._batches.is_full:
            self.seal()

    def send_end(self) -> None:
        """Number and buffer the end of the stream; nothing may be sent after it."""
        self.seal()
        self.buffer.append(frame_of_end(self.buffer.framed + 1))
        self.ended = True
        self.check_at = 0  # each further message is checked, and refused

    def seal(self) -> None:
        """Close the open frame, so that it can be taken. Called when it is full and when the loop runs out of work."""
        if self.open_pieces:
            assert self.open_kind is not None
            pieces, self.open_pieces = self.open_pieces, []
            count, self._further = len(pieces) + self._further, 0
            self._piece_bytes = self._checked = 0
            self.buffer.append(frame_of_pieces(self.buffer.framed + 1, self.open_kind, pieces, count))
        elif self._batches is not None:
            batches, self._batches = self._batches, None
            self.buffer.append(batches.frame(self.buffer.framed + 1))

    @property
    def sent(self) -> int:
        """S: number of the last message that was sent."""
        if self._batches is not None:
            return self.buffer.framed + self._batches.row_count
        return self.buffer.framed + len(self.open_pieces) + self._further

    @property
    def has_open_frame(self) -> bool:
        """Messages wait in a frame that is not sealed."""
        return bool(self.open_pieces) or self._batches is not None

    @property
    def waiting_bytes(self) -> int:
        """Return the bytes that an overtaking marker would make the sender save now, in memory and on disk."""
        open_bytes = sum(map(len, self.open_pieces)) if self._batches is None else self._batches.byte_count
        return self.buffer.waiting_bytes + open_bytes

    def put_marker(self, snapshot_id: int, min_snapshot_id: int, *, aligned: bool, saves: bool = True) -> None:
        """Put a marker behind all that was sent so far, or ahead of all that waits: see `OutputBuffer.put_marker`."""
        self.seal()
        self.buffer.put_marker(snapshot_id, min_snapshot_id, aligned=aligned, saves=saves)

    def validate(self) -> None:
        """Assert the end's invariants."""
        self.buffer.validate()
        if self._batches is None:
            assert self.sent == self.buffer.framed + len(self.open_pieces) + self._further

    def switch(self, kind: PayloadKind) -> None:
        """The next message is of another kind, so it begins another frame."""
        if self._forbidden:
            raise NodeError(self._forbidden)
        self.seal()
        self.open_kind = kind

    def check_frame_size(self, piece: bytes) -> None:
        """Add up what the open frame holds: seal it if that is enough, else say when to look again."""
        pieces = self.open_pieces
        if self.ended or len(piece) > MESSAGE_BYTES_MAX:
            pieces.pop()
            self._refuse(len(piece))
        self._piece_bytes += sum(map(len, pieces[self._checked :]))
        self._checked = len(pieces)
        if self._piece_bytes >= self._frame_bytes:
            self.seal()
            return
        room = (self._frame_bytes - self._piece_bytes) * self._checked // self._piece_bytes
        self.check_at = self._checked + min(max(room, 1), _UNSEEN_MAX)

    def _refuse(self, size: int) -> None:
        if self.ended:
            raise ChannelError(f"{self.channel}: a message was sent after the end of the stream")
        raise ChannelError(
            f"{self.channel}: a message of {size:,} bytes; at most {MESSAGE_BYTES_MAX:,} can be sent. "
            "Send it in pieces, or store it and send where it is."
        )
