"""The sender's end of a channel: its out-buffer, with the numbers of PROTOCOL 1. No I/O.

A link (a socket, a queue inside one worker, the simulator's network) takes from a `ChannelSender` and delivers to
a `ChannelReceiver`. Messages are numbered from 1. At a cut the sender's numbers are ``sent`` (S) and ``written`` (w).

::

    ChannelSender                                          ChannelReceiver
    ┌──────────────────────────────┐                   ┌──────────────────────────────┐
    │ open frame │ frames │ markers│ ── take() ─ link ─│─> deliver() │ frames │ head  │ ─> node
    └──────────────────────────────┘                   └──────────────────────────────┘
      S                    w                             arrived                p
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from snapshot.channel.backpressure_flag import BackpressureFlag
from snapshot.channel.buffer_divisor import buffer_divisor
from snapshot.channel.channel_cuts import SentCut
from snapshot.channel.frame import Frame, Marker, PayloadKind
from snapshot.channel.frame_codec import encoded_together, frame_of_batch, frame_of_end, frame_of_pieces
from snapshot.channel.open_batches import JOINED_ROWS_MAX, OpenBatches
from snapshot.channel.record_batches import Allocate, new_memory
from snapshot.channel.serialization import Codec
from snapshot.channel.spill import Spill
from snapshot.errors import ChannelError, NodeError
from snapshot.ids import ChannelId

#: A frame of single messages is sealed at this size: large enough that sockets run at full speed, small
#: enough that a marker behind a half-written one waits less than a tenth of a millisecond.
FRAME_BYTES_TARGET = 32 * 1024

#: One message may be this large; a larger one is refused where it is sent. It has to fit a frame.
MESSAGE_BYTES_MAX = 128 * 1024 * 1024

#: A subtask whose out-buffer on any channel holds this much, and `BUFFER_FRAMES_MIN` frames, gets no next event
#: (PROTOCOL 9.1). Four frames of messages: what waits is in every unaligned snapshot.
BUFFER_BYTES_MAX = 128 * 1024

#: Frames that an out-buffer has room for however large they are: while one is written the next ones are made, else the
#: two workers wait for each other in turn. A link to the same worker asks for less (`ChannelSender.frames_min`).
BUFFER_FRAMES_MIN = 3

#: A message above this size is looked at when it is sent; of smaller ones so many may pass unseen: a MiB in all.
CHECKED_BYTES = 256
_UNSEEN_MAX = 4096

#: What `send_all` encodes in one call: this part of a frame, of so many messages at first, and at most.
_CHUNK_PART = 4
_AT_ONCE_FIRST, AT_ONCE_MAX = 16, 256

_VALUES, _TUPLES, _FLAT = PayloadKind.VALUES, PayloadKind.TUPLES, PayloadKind.FLAT


def _nobody() -> None:
    """Nobody is to be told."""


class ChannelSender:
    """The sender's end of one channel.

    Parameters
    ----------
    channel : ChannelId
    codec : Codec
    backpressure : BackpressureFlag
        Closed while the out-buffer is full; not by a channel that can spill.
    sent : int
        Number of the last message that was sent before (0 on a fresh channel).
    spill : Spill, optional
        Where frames go when memory is full, instead of closing the gate.
    siblings : int
        Output channels of the subtask, this one among them: the more, the less may wait on each.
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
        self.written = sent
        #: bytes that wait in memory, those of the open frame included
        self.buffered_bytes = 0
        self.ended = False
        self._codec, self._pack = codec, codec.pack
        self._backpressure = backpressure
        self._sets_backpressure = False
        divisor = buffer_divisor(siblings)
        self._frame_bytes, self._buffer_bytes = FRAME_BYTES_TARGET // divisor, BUFFER_BYTES_MAX // divisor
        self._full_at = self._buffer_bytes  # grows with the frames that come
        #: frames that it has room for however large they are; set by the link
        self.frames_min = BUFFER_FRAMES_MIN
        self._spill = spill
        #: number of the last message that is in a frame
        self._framed = sent
        #: the messages of the open frame, encoded; written by `send`, and by what does its work (`direct_send`)
        self.open_pieces: list[bytes] = []
        #: messages in `open_pieces` beyond one a piece
        self._further = 0
        #: messages that `send_all` encodes in one call: by the size of the last ones they fill a part of a frame
        self._at_once = _AT_ONCE_FIRST
        #: of the open frame, or of the next one; None: whatever is sent is looked at, and refused
        self.open_kind: PayloadKind | None = _VALUES
        #: called when something has come that may be taken; set by the link
        self.on_waiting: Callable[[], None] = _nobody
        #: called with each marker that is taken; set for an observer
        self.on_marker_taken: Callable[[ChannelId, Marker], None] | None = None
        #: where large frames are encoded, so that the link need not copy them; set by the link
        self.allocate: Allocate = new_memory
        self._forbidden = ""
        #: bytes of the open frame's pieces up to `_checked`, and the count at which they are looked at again
        self._piece_bytes = self._checked = 0
        self.check_at = 1
        #: the open frame while its kind is BATCH; else it is `open_pieces`
        self._batches: OpenBatches | None = None
        #: frames in order, with the aligned markers between them
        self._queue: deque[Frame | Marker] = deque()
        #: markers that overtake: ahead of everything in `_queue`, ascending by arrival
        self._head: deque[Marker] = deque()
        #: aligned markers in `_queue`: {snapshot_id: S when it was put there}
        self._waiting: dict[int, int] = {}
        #: cuts whose marker can no longer be moved; taken by `settled`
        self._settled: dict[int, SentCut] = {}

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
            self._append(frame_of_batch(self._framed + 1, batch, self.allocate))
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
        self._append(frame_of_end(self._framed + 1))
        self.ended = True
        self.check_at = 0  # so that whatever is sent now is looked at, and refused

    def seal(self) -> None:
        """Close the open frame, so that it can be taken. Called when it is full and when the loop runs out of work."""
        if self.open_pieces:
            assert self.open_kind is not None
            pieces, self.open_pieces = self.open_pieces, []
            count, self._further = len(pieces) + self._further, 0
            self._piece_bytes = self._checked = 0
            self._append(frame_of_pieces(self._framed + 1, self.open_kind, pieces, count))
        elif self._batches is not None:
            batches, self._batches = self._batches, None
            self._append(batches.frame(self._framed + 1))

    def take(self) -> Frame | Marker | None:
        """What goes on the link next. A frame that is taken counts as written, so take it only to write it."""
        if self._head:
            return self._taken(self._head.popleft())
        if not self._queue:
            return self._take_spilled()
        item = self._queue.popleft()
        if isinstance(item, Marker):
            self._settled[item.snapshot_id] = SentCut(self._waiting.pop(item.snapshot_id), item.written, ())
            return self._taken(item)
        self.written += item.count
        self.buffered_bytes -= len(item.payload)
        if self._sets_backpressure:
            self._set_backpressure()
        return item

    def _taken(self, marker: Marker) -> Marker:
        if self.on_marker_taken is not None:
            self.on_marker_taken(self.channel, marker)
        return marker

    @property
    def sent(self) -> int:
        """S: number of the last message that was sent."""
        if self._batches is not None:
            return self._framed + self._batches.row_count
        return self._framed + len(self.open_pieces) + self._further

    @property
    def has_marker(self) -> bool:
        """A marker is next: it needs no credit."""
        return bool(self._head or (self._waiting and isinstance(self._queue[0], Marker)))

    @property
    def marker_overtakes(self) -> bool:
        """A marker is next that went ahead of what waits."""
        return bool(self._head)

    @property
    def has_data(self) -> bool:
        """Something sealed waits to be taken."""
        return bool(self._queue or self._head or self._spill)

    @property
    def has_open_frame(self) -> bool:
        """Messages wait in a frame that is not sealed."""
        return bool(self.open_pieces) or self._batches is not None

    @property
    def spilling(self) -> bool:
        """Frames wait on disk."""
        return bool(self._spill)

    @property
    def waiting_bytes(self) -> int:
        """What a marker that overtakes now would make the sender save, in memory and on disk."""
        spilled = 0 if self._spill is None else self._spill.waiting_bytes
        open_bytes = sum(map(len, self.open_pieces)) if self._batches is None else self._batches.byte_count
        return self.buffered_bytes + open_bytes + spilled

    def put_marker(self, snapshot_id: int, min_snapshot_id: int, *, aligned: bool, saves: bool = True) -> None:
        """Put a marker on the channel: behind all that was sent if `aligned`, else ahead of all that waits.

        With `saves` False nothing of what it overtakes is kept: for a snapshot that has failed here already.
        """
        self.seal()
        if aligned:
            self._queue.append(Marker(snapshot_id, min_snapshot_id, self.sent, True))
            self._waiting[snapshot_id] = self.sent
            self.on_waiting()
        else:
            if self._waiting:
                self._overtake_through(len(self._queue))
            self._put_at_head(Marker(snapshot_id, min_snapshot_id, self.written, False), self.sent, saves=saves)

    def overtake(self, snapshot_id: int) -> None:
        """Move the waiting marker of `snapshot_id`, and those ahead of it, to the head (PROTOCOL 4.3)."""
        if snapshot_id in self._waiting:
            waiting = (n for n, i in enumerate(self._queue) if isinstance(i, Marker) and i.snapshot_id == snapshot_id)
            self._overtake_through(next(waiting) + 1)

    def settled(self, snapshot_id: int) -> SentCut | None:
        """The cut of `snapshot_id`, once nothing can change it any more; it is handed out once."""
        return self._settled.pop(snapshot_id, None)

    def discard(self, snapshot_id: int) -> None:
        """Forget what was saved for `snapshot_id`, and its marker, if that still waits among the messages."""
        self._settled.pop(snapshot_id, None)
        if self._waiting.pop(snapshot_id, None) is not None:
            self._queue = deque(i for i in self._queue if not (isinstance(i, Marker) and i.snapshot_id == snapshot_id))

    def validate(self) -> None:
        """Assert the end's invariants."""
        if not self._queue and not self._spill and self._batches is None:
            assert self.written + len(self.open_pieces) + self._further == self.sent, (self.channel, self.written)
            return
        expected = self.written + 1
        for frame in self._frames():
            assert frame.first == expected, (self.channel, frame.first, expected)
            expected = frame.last + 1
        assert expected == self._framed + 1, (self.channel, expected, self._framed)

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

    def _append(self, frame: Frame) -> None:
        self._framed += frame.count
        if self._spill is not None and (len(self._spill) or self.buffered_bytes >= self._buffer_bytes):
            self._spill.append(frame)
        else:
            self._queue.append(frame)
            self.buffered_bytes += len(frame.payload)
            self._full_at = max(self._full_at, self.frames_min * len(frame.payload))
            if self._sets_backpressure or self.buffered_bytes >= self._full_at:
                self._set_backpressure()
        self.on_waiting()

    def _take_spilled(self) -> Frame | None:
        frame = self._spill.popleft() if self._spill else None
        self.written += 0 if frame is None else frame.count
        return frame

    def _set_backpressure(self) -> None:
        full = self.buffered_bytes >= self._full_at and self._spill is None
        if full is not self._sets_backpressure:
            self._sets_backpressure = full
            self._backpressure.closed += 1 if full else -1

    def _overtake_through(self, position: int) -> None:
        """Move the markers among the first `position` items to the head: markers never overtake each other."""
        items = list(self._queue)
        self._queue = deque(i for n, i in enumerate(items) if n >= position or isinstance(i, Frame))
        for marker in (item for item in items[:position] if isinstance(item, Marker)):
            moved = marker._replace(written=self.written, aligned=False)
            self._put_at_head(moved, self._waiting.pop(marker.snapshot_id))

    def _put_at_head(self, marker: Marker, sent: int, *, saves: bool = True) -> None:
        self._head.append(marker)
        self.on_waiting()
        self._settled[marker.snapshot_id] = SentCut(sent, marker.written, self._unwritten(sent) if saves else ())

    def _unwritten(self, through: int) -> tuple[Frame, ...]:
        """The frames of (written, through]: what a marker at the head has overtaken."""
        return tuple(frame for frame in self._frames() if frame.last <= through)

    def _frames(self) -> Iterator[Frame]:
        """All that wait, in order."""
        return (item for part in (self._queue, self._spill or ()) for item in part if isinstance(item, Frame))

    def _refuse(self, size: int) -> None:
        if self.ended:
            raise ChannelError(f"{self.channel}: a message was sent after the end of the stream")
        raise ChannelError(
            f"{self.channel}: a message of {size:,} bytes; at most {MESSAGE_BYTES_MAX:,} can be sent. "
            "Send it in pieces, or store it and send where it is."
        )
