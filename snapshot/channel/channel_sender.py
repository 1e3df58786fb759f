"""Channel sender: numbers the messages of one channel, encodes them, and builds frames of them. No I/O.

A receiver in the same worker gets messages that nobody can change by reference. All other messages are encoded.

A link (a socket, a queue inside one worker, the simulator's network) takes frames from a sender's out-buffer and
delivers them to a `ChannelReceiver`. Messages are numbered from 1. At a cut the sender's numbers are ``sent`` (S) and
``written`` (w).

::

    ChannelSender                                          ChannelReceiver
    ┌──────────────────────────────┐                   ┌──────────────────────────────┐
    │ open frame │ frames │ markers│ ── take() ─ link ─│─> deliver() │ frames │ head  │ ─> node
    └──────────────────────────────┘                   └──────────────────────────────┘
      S                    w                             arrived                p
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa

from cutline.snapshot.channel.control_frames import StreamEnd, control_frame
from cutline.snapshot.channel.frame import PayloadKind
from cutline.snapshot.channel.frame_codec import encoded_together, frame_of_batch, frame_of_pieces
from cutline.snapshot.channel.open_objects import UNWEIGHED_MAX, OpenObjects
from cutline.snapshot.channel.output_buffer import BackpressureFlag, OutputBuffer, Spill, buffer_divisor
from cutline.snapshot.channel.record_batches import JOINED_ROWS_MAX, Allocate, OpenBatches, new_memory
from cutline.snapshot.channel.send_log import LoggedOutputBuffer, SendLog
from cutline.snapshot.channel.serialization import Codec, are_atoms
from cutline.snapshot.channel.shapes import Shapes
from cutline.snapshot.channel.stamped_buffer import StampedBuffer
from cutline.snapshot.channel.stamps import OpenStamps, Stamp
from cutline.snapshot.channel.survey import ATOMS
from cutline.snapshot.errors import ChannelError, NodeError
from cutline.snapshot.ids import ChannelId

#: Bytes at which a frame of single messages is sealed. Sockets run at full speed at this size, and a marker after a
#: half-written frame waits less than a tenth of a millisecond.
FRAME_BYTES_TARGET = 32 * 1024

#: Most bytes of one message, because a message has to fit a frame. `send` refuses larger messages.
MESSAGE_BYTES_MAX = 128 * 1024 * 1024

#: Bytes above which a message's size is checked at once. At most `_UNSEEN_MAX` smaller messages pass between two
#: checks: a MiB in all.
CHECKED_BYTES = 256
_UNSEEN_MAX = 4096

#: Part of a frame that `send_all` encodes in one call. `_AT_ONCE_FIRST` is the first guess of how many messages fill
#: that part, and `AT_ONCE_MAX` the limit.
_CHUNK_PART = 4
_AT_ONCE_FIRST, AT_ONCE_MAX = 16, 256

_VALUES, _TUPLES, _FLAT = PayloadKind.VALUES, PayloadKind.TUPLES, PayloadKind.FLAT


class _OpenSize:
    """The bytes of the open frame's pieces, summed only now and then, because each message would pay for a sum."""

    __slots__ = ("byte_count", "frame_bytes", "piece_count")

    def __init__(self, frame_bytes: int) -> None:
        #: bytes at which the frame is full
        self.frame_bytes = frame_bytes
        #: bytes of the first `piece_count` pieces
        self.byte_count = self.piece_count = 0

    def clear(self) -> None:
        """Begin an empty frame."""
        self.byte_count = self.piece_count = 0

    def sum_up(self, pieces: list[bytes]) -> int:
        """Add the pieces since the last call. Return the piece count of the next call, or 0 when the frame is full."""
        count, summed = len(pieces), self.piece_count
        # A large message is checked at once, so most often one piece is new.
        new = len(pieces[-1]) if count == summed + 1 else sum(map(len, pieces[summed:]))
        self.piece_count = count
        self.byte_count = byte_count = self.byte_count + new
        if byte_count >= self.frame_bytes:
            return 0
        room = (self.frame_bytes - byte_count) * count // byte_count
        return count + min(max(room, 1), _UNSEEN_MAX)


class ChannelSender:
    """Number, encode and frame the messages of one channel.

    Parameters
    ----------
    channel : ChannelId
    codec : Codec
    backpressure, sent, spill, siblings
        See `OutputBuffer`.
    shapes : Shapes, optional
        The check for messages that may go by reference, shared by the subtask's senders.
    stamps : OpenStamps, optional
        Stamps of the messages. None: messages have none.
    log : SendLog, optional
        Log of all frames, for records of the subtask alone.
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
        shapes: Shapes | None = None,
        stamps: OpenStamps | None = None,
        log: SendLog | None = None,
    ) -> None:
        assert stamps is None or log is None
        make: Callable[..., OutputBuffer] = OutputBuffer
        if stamps is not None:
            make = partial(StampedBuffer, stamps)
        elif log is not None:
            make = partial(LoggedOutputBuffer, log)
        self.buffer = make(channel, backpressure, sent=sent, spill=spill, siblings=siblings)
        self.ended = False
        #: allocator of the memory that large frames are encoded into, so that the link copies nothing; set by the link
        self.allocate: Allocate = new_memory
        self._codec, self._pack = codec, codec.pack
        self._size = _OpenSize(FRAME_BYTES_TARGET // buffer_divisor(siblings))
        #: messages of the open frame that go by reference; written by `send`, and by `direct_send`
        self.objects = OpenObjects(Shapes() if shapes is None else shapes, codec, buffer_divisor(siblings))
        #: encoded messages of the open frame; written by `send`, and by `direct_send`, which does `send`'s work
        self.open_pieces: list[bytes] = []
        #: messages in `open_pieces` minus the number of pieces
        self._further = 0
        #: messages that `send_all` encodes in one call, computed from the size of the last messages
        self._at_once = _AT_ONCE_FIRST
        #: kind of the open frame, or of the next frame; None: every message is checked, and refused
        self.open_kind: PayloadKind | None = _VALUES
        self._forbidden = ""
        #: piece count of the open frame at the next check of its size
        self.check_at = 1
        #: messages of the open frame while its kind is BATCH, or None while the messages are in `open_pieces`
        self._batches: OpenBatches | None = None

    def send(self, message: Any) -> None:
        """Number, encode and buffer one message. Never blocks.

        Raises
        ------
        NotSerialisable
            if the codec refuses the message.
        ChannelError
            if the message is larger than `MESSAGE_BYTES_MAX`, or the channel has ended.
        NodeError
            while sending is forbidden (`forbid`).
        """
        objects = self.objects
        if objects.limit and objects.shapes.fits(message):
            objects.messages.append(message)
            if len(objects.messages) >= objects.limit:
                self.check_objects()
        else:
            self.send_encoded(message)

    def send_encoded(self, message: Any) -> None:
        """Send one message by value. Raises as `send`."""
        try:
            if type(message) is tuple:
                if self.open_kind is not _TUPLES:
                    self.switch(_TUPLES)
                piece = self._pack(message) if are_atoms(map(type, message)) else self._codec.encode_tuple(message)
            else:
                if self.open_kind is not _VALUES:
                    self.switch(_VALUES)
                piece = self._pack(message) if type(message) in ATOMS else self._codec.encode(message)
        except (OverflowError, UnicodeEncodeError):  # of an atom that MessagePack has not
            piece = self._codec.encode_tuple(message) if type(message) is tuple else self._codec.encode(message)
        if self.objects.limit:
            self._begin_encoded()
        pieces = self.open_pieces
        pieces.append(piece)
        # Sizes are summed only now and then, because this path is hot. A large message is checked at once.
        if len(piece) > CHECKED_BYTES or len(pieces) >= self.check_at:
            self.check_frame_size(piece)

    def send_all(self, messages: list[Any], *, are_tuples: bool, keys: list[Any] | None = None) -> None:
        """Send each of `messages`, with few calls for all. `messages` holds no record batch. Raises as `send`.

        Parameters
        ----------
        messages : list
        are_tuples : bool
            Whether all messages are tuples.
        keys : list, optional
            The messages' keys.
        """
        if self.objects.limit and self.objects.shapes.all_fit(messages):
            self._send_objects(messages, keys)
            return
        start, is_single = 0, self.ended
        while start < len(messages):
            some = messages[start : start + self._at_once]
            start += len(some)
            encoded = None if is_single else encoded_together(some, self._codec, are_tuples=are_tuples)
            if encoded is None or (len(some) == 1 and len(encoded[1]) > MESSAGE_BYTES_MAX):
                for message in some:  # `send_encoded` raises with the reason
                    self.send_encoded(message)
                continue
            kind, chunk = encoded
            per_chunk = max(1, self._size.frame_bytes // _CHUNK_PART * len(some) // len(chunk))
            if len(some) > 1 and len(chunk) > min(self._size.frame_bytes, MESSAGE_BYTES_MAX):  # larger than estimated
                start, self._at_once = start - len(some), min(per_chunk, len(some) - 1)
                continue
            if self.open_kind is not kind and not (kind is _FLAT and self.open_kind is _TUPLES and self.open_pieces):
                self.switch(kind)
            if self.objects.limit:
                self._begin_encoded()
            self._further += len(some) - 1
            self._at_once = min(per_chunk, AT_ONCE_MAX)
            self.open_pieces.append(chunk)
            self.check_frame_size(chunk)

    def _send_objects(self, messages: list[Any], keys: list[Any] | None) -> None:
        for start in range(0, len(messages), UNWEIGHED_MAX):
            self.objects.messages += messages[start : start + UNWEIGHED_MAX]
            if keys is not None:
                self.objects.keys += keys[start : start + UNWEIGHED_MAX]
            self.check_objects()

    def take_objects(self) -> None:
        """Send messages that nobody can change by reference from now on. Called by a link inside one worker."""
        self.seal()
        self.objects.are_taken = True
        self._reopen()

    def forbid(self, why: str) -> None:
        """Refuse every message from now on, with a NodeError that says `why`. An empty `why` ends this."""
        self.seal()
        self._forbidden, self.open_kind = why, None if why else _VALUES
        self._reopen()

    def send_batch(self, batch: pa.RecordBatch) -> None:
        """Number, encode and buffer the rows of a record batch. An empty batch sends nothing. Raises as `send`."""
        if not batch.num_rows:
            return
        if self.open_kind is None:
            self.switch(PayloadKind.BATCH)
        if not batch.num_columns:
            raise ChannelError(f"{self.channel}: a batch of {batch.num_rows} rows without columns: rows need a column")
        if self.ended or (batch.get_total_buffer_size() > MESSAGE_BYTES_MAX and batch.nbytes > MESSAGE_BYTES_MAX):
            self._refuse(batch.nbytes)
        if batch.num_rows >= JOINED_ROWS_MAX:  # such a batch fills a frame alone
            self.seal()
            self.buffer.append(frame_of_batch(self.buffer.framed + 1, batch, self.allocate))
            return
        if self._batches is None or not self._batches.takes(batch):
            self.switch(PayloadKind.BATCH)
            self._batches = OpenBatches(batch.schema)
            self.objects.limit = 0
        self._batches.add(batch)
        if self._batches.is_full:
            self.seal()

    def send_end(self) -> None:
        """Number and buffer the end of the stream. Nothing may be sent afterwards."""
        self.seal()
        self.buffer.append(control_frame(self.buffer.framed + 1, StreamEnd()))
        self.ended = True
        self.check_at = 0  # so that every later message is checked, and refused
        self._reopen()

    def seal(self) -> None:
        """Close the open frame, so that the link can take it. Called when the frame is full or the loop has no work."""
        if self.objects.messages:
            self.buffer.append(self.objects.frame(self.buffer.framed + 1))
            self._reopen()
        elif self.open_pieces:
            assert self.open_kind is not None
            pieces, self.open_pieces = self.open_pieces, []
            count, self._further = len(pieces) + self._further, 0
            self._size.clear()
            self.buffer.append(frame_of_pieces(self.buffer.framed + 1, self.open_kind, pieces, count))
            self._reopen()
        elif self._batches is not None:
            batches, self._batches = self._batches, None
            self.buffer.append(batches.frame(self.buffer.framed + 1))
            self._reopen()

    def stamp(self, stamp: Stamp) -> None:
        """Stamp the messages that are sent from now on."""
        assert isinstance(self.buffer, StampedBuffer)
        self.buffer.stamps.change(stamp, self.sent)

    @property
    def channel(self) -> ChannelId:
        """The channel."""
        return self.buffer.channel

    @property
    def sent(self) -> int:
        """Number of the last message that was sent (S)."""
        if self._batches is not None:
            return self.buffer.framed + self._batches.row_count
        return self.buffer.framed + len(self.objects.messages) + len(self.open_pieces) + self._further

    @property
    def has_open_frame(self) -> bool:
        """Messages wait in a frame that is not sealed."""
        return bool(self.open_pieces or self.objects.messages) or self._batches is not None

    @property
    def waiting_bytes(self) -> int:
        """Bytes in memory and on disk that the sender would save if a marker overtook them now."""
        open_bytes = sum(map(len, self.open_pieces)) if self._batches is None else self._batches.byte_count
        if self.objects.messages:
            open_bytes = self.objects.weigh()
        return self.buffer.waiting_bytes + open_bytes

    def put_marker(
        self, snapshot_id: int, min_snapshot_id: int, *, aligned: bool, saves: bool = True, is_final: bool = False
    ) -> None:
        """Put a marker after all sent messages, or before all waiting messages: see `OutputBuffer.put_marker`."""
        self.seal()
        self.buffer.put_marker(snapshot_id, min_snapshot_id, aligned=aligned, saves=saves, is_final=is_final)

    def validate(self) -> None:
        """Assert the sender's invariants."""
        self.buffer.validate()
        if self._batches is None:
            assert self.sent == self.buffer.framed + len(self.objects.messages) + len(self.open_pieces) + self._further
        assert not self.objects.messages or not (self.open_pieces or self._batches), "objects and bytes in one frame"
        assert len(self.objects.keys) <= len(self.objects.messages)

    def switch(self, kind: PayloadKind) -> None:
        """Begin a frame of another kind. Raises NodeError while sending is forbidden."""
        if self._forbidden:
            raise NodeError(f"{self.channel.source}: {self._forbidden}")
        self.seal()
        self.open_kind = kind

    def check_objects(self) -> None:
        """Seal the frame of messages by reference if it is full. Encode the last one where none may be open."""
        if not self.objects.limit:
            self.send_encoded(self.objects.take_back())
        elif self.objects.are_full:
            self.seal()

    def check_frame_size(self, piece: bytes) -> None:
        """Sum the bytes of the open frame. Seal the frame if it is full, else compute `check_at`."""
        pieces = self.open_pieces
        if self.ended or len(piece) > MESSAGE_BYTES_MAX:
            pieces.pop()
            self._refuse(len(piece))
        check_at = self._size.sum_up(pieces)
        if check_at:
            self.check_at = check_at
        else:
            self.seal()

    def _begin_encoded(self) -> None:
        """Encode all messages until the next frame, because frames of one message each would cost more."""
        self.seal()
        self.objects.limit = 0

    def _reopen(self) -> None:
        """Allow messages by reference in the next frame, unless no message is allowed, or all are encoded."""
        is_allowed = self.objects.are_taken and not (self.ended or self._forbidden)
        self.objects.limit = UNWEIGHED_MAX if is_allowed else 0

    def _refuse(self, size: int) -> None:
        if self.ended:
            raise ChannelError(f"{self.channel}: a message was sent after the end of the stream")
        raise ChannelError(
            f"{self.channel}: a message of {size:,} bytes; at most {MESSAGE_BYTES_MAX:,} can be sent. "
            "Send it in pieces, or store it and send where it is."
        )
