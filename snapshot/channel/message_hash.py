"""Hash the messages of a channel, so that a replay can tell whether it has the same messages.

The hash covers the messages and not their frames, because a replay divides them otherwise. It covers blocks of messages
from one cut to the next, so that a difference has a place. Blocks are hashed by the receiver, which has the messages as
values, whether they came by reference or as bytes. They are hashed as they were before the node got them, because
afterwards the node may change them.

Numbers, text, bytes, lists, tuples, dicts, sets and arrays are hashed by value. Of any other object only the type
counts, because equal objects need not have equal bytes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import Any, Final

import msgpack
import numpy as np
import pyarrow as pa

from cutline.snapshot.channel.key_hash import hash_columns
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.error_text import shown

#: Messages of a block. A smaller block names the place of a difference better, and costs 8 bytes of log.
BLOCK_MESSAGES: Final = 256

_DIGEST_BYTES: Final = 8

#: Keys of a block that an error names.
_SAMPLES_MAX: Final = 3

#: Bytes of the first buffer, because MessagePack's own would cost more than a few messages.
_BUFFER_BYTES: Final = 4096

#: Depth of containers that are hashed by value where MessagePack refuses a message.
_DEPTH_MAX: Final = 64

#: Types whose `repr` is the same for equal values, in every process.
_BY_REPR: Final = frozenset({
    "datetime.datetime", "datetime.date", "datetime.time", "datetime.timedelta",
    "builtins.complex", "decimal.Decimal", "fractions.Fraction", "uuid.UUID",
})  # fmt: skip


class PackedMessages:
    """The bytes of messages, made before the node gets them, because the node may change its messages.

    Parameters
    ----------
    messages : list
        The next messages of the channel.
    room : int
        Number of messages until the present block ends. Bytes are kept in pieces that end where blocks do.
    """

    def __init__(self, messages: list[Any], room: int) -> None:
        self._messages = messages
        #: place of the first message that is left
        self._first = 0
        bounds = [0, *range(room, len(messages), BLOCK_MESSAGES), len(messages)]
        parts = [messages] if len(bounds) == 2 else [messages[start:stop] for start, stop in pairwise(bounds)]
        self._pieces = deque((len(part), packed(part)) for part in parts)

    def __len__(self) -> int:
        """Return the number of messages that are left."""
        return len(self._messages) - self._first

    def take(self, limit: int) -> tuple[list[Any], bytes]:
        """Return the next messages of one piece, at most `limit`, and their bytes."""
        count, data = self._pieces.popleft()
        if limit < count:
            data, rest = _divided(data, limit)
            self._pieces.appendleft((count - limit, rest))
            count = limit
        some = self._messages[self._first : self._first + count]
        self._first += count
        return some, data


class ChannelHash:
    """Hash of what one channel has delivered since the last cut."""

    def __init__(self) -> None:
        self._blocks: list[bytes] = []
        self._hash = blake2b(digest_size=_DIGEST_BYTES)
        self._room = BLOCK_MESSAGES
        #: what `pack` has made last, of which list
        self._ahead: tuple[list[Any], PackedMessages] | None = None

    def add(self, messages: list[Any] | pa.RecordBatch) -> None:
        """Add the next messages of the channel, as the node gets them."""
        if not isinstance(messages, pa.RecordBatch):
            self.add_packed(PackedMessages(messages, self._room), len(messages))
            return
        rows, start = _row_hashes(messages), 0
        while start < len(rows):
            stop = min(len(rows), start + self._room)
            self._extend(messages.slice(start, stop - start), rows[start:stop].tobytes(), stop - start)
            start = stop

    def pack(self, messages: list[Any], left: int) -> PackedMessages:
        """Return the bytes of the last `left` of `messages`, for `add_packed`. The same list is packed once."""
        if self._ahead is None or self._ahead[0] is not messages or len(self._ahead[1]) != left:
            self._ahead = (messages, PackedMessages(messages[len(messages) - left :], self._room))
        return self._ahead[1]

    def add_packed(self, ahead: PackedMessages, count: int) -> None:
        """Add the next `count` messages of those that `pack` was given."""
        while count:
            some, data = ahead.take(min(count, self._room))
            self._extend(some, data, len(some))
            count -= len(some)

    def _extend(self, some: list[Any] | pa.RecordBatch, data: bytes, count: int) -> None:
        """Add messages of the present block."""
        self._hash.update(data)
        self._note(some)
        self._room -= count
        if not self._room:
            self._close()

    def take(self) -> tuple[bytes, ...]:
        """Return the hashes of the blocks since the last call. The next message begins a block."""
        if self._room < BLOCK_MESSAGES:
            self._close()
        blocks, self._blocks = tuple(self._blocks), []
        return blocks

    def _close(self) -> None:
        self._blocks.append(self._hash.digest())
        self._hash = blake2b(digest_size=_DIGEST_BYTES)
        self._room = BLOCK_MESSAGES

    def _note(self, messages: list[Any] | pa.RecordBatch) -> None:
        """Note messages of the present block."""


class NamedHash(ChannelHash):
    """A hash that can name keys of each block.

    Parameters
    ----------
    key_of : callable or None
        Returns the key of a message; None for an edge without a key, where the messages themselves are named.
    """

    def __init__(self, key_of: Callable[[Any], Any] | None) -> None:
        super().__init__()
        self._key_of = key_of
        #: the first messages of each block; their names are made only for an error, because that takes long
        self._samples: list[list[Any]] = [[]]

    def near(self, block: int) -> str:
        """Return some keys of a block that `take` has returned last, for an error."""
        messages = self._samples[block] if block < len(self._samples) else []
        names = [shown(each if self._key_of is None else self._key_of(each)) for each in messages]
        return ", ".join(list(dict.fromkeys(names))[:_SAMPLES_MAX])

    def forget(self) -> None:
        """Forget the keys of the blocks that `take` has returned."""
        self._samples = [[]]

    def _close(self) -> None:
        super()._close()
        self._samples.append([])

    def _note(self, messages: list[Any] | pa.RecordBatch) -> None:
        samples = self._samples[-1]
        if wanted := 4 * _SAMPLES_MAX - len(samples):
            some: Sequence[Any] = messages[:wanted]
            samples.extend(some.to_pylist() if isinstance(some, pa.RecordBatch) else some)


def content_hashes(messages: list[Any] | pa.RecordBatch, codec: Codec) -> Iterator[bytes]:
    """Yield the hash of each message, or of each row of a batch."""
    if isinstance(messages, pa.RecordBatch):
        yield from (row.tobytes() for row in _row_hashes(messages))
    else:
        yield from (content_hash(message, codec) for message in messages)


def content_hash(message: Any, codec: Codec) -> bytes:
    """Return a hash of one message, or of a key.

    Objects that have no value here count by their encoding, because else all objects of a type would be the same. Some
    values of two types are the same, such as a list and a tuple.
    """

    def other(value: Any) -> Any:
        found = _other(value, other)
        return found if len(found) > 1 else [*found, codec.encode(value)]

    return blake2b(packed([message], other), digest_size=_DIGEST_BYTES).digest()


# ---------------------------------------------------------------- values as bytes


def packed(messages: list[Any], other: Callable[[Any], Any] | None = None) -> bytes:
    """Return bytes that are the same for equal messages, in every process, and join as the lists do.

    `other` returns what stands for a value that MessagePack has not.
    """
    other = other or _other
    try:
        data: bytes = msgpack.packb(messages, default=other, buf_size=_BUFFER_BYTES)
    except (UnicodeEncodeError, ValueError, TypeError):  # half of a surrogate pair, a value that is too deep
        plain = [_plain(message, _DEPTH_MAX, other) for message in messages]
        data = msgpack.packb(plain, default=other, buf_size=_BUFFER_BYTES)
    count = len(messages)
    return data[1 if count < 16 else 3 if count < 65_536 else 5 :]  # without the length, which differs with the frame


def _divided(data: bytes, count: int) -> tuple[bytes, bytes]:
    """Return the bytes of the first `count` packed messages, and the others."""
    unpacker = msgpack.Unpacker(max_buffer_size=len(data))
    unpacker.feed(data)
    for _ in range(count):
        unpacker.skip()
    end = unpacker.tell()
    return data[:end], data[end:]


def _plain(value: Any, depth: int, other: Callable[[Any], Any]) -> Any:
    """Return a value of parts that MessagePack has. Takes long. Deeper parts, as of a value in itself, do not count."""
    if isinstance(value, str):
        return repr(value)
    if isinstance(value, dict | list | tuple) and not depth:
        return [type(value).__qualname__]
    if isinstance(value, dict):
        return [[_plain(key, depth - 1, other), _plain(each, depth - 1, other)] for key, each in value.items()]
    if isinstance(value, list | tuple):
        return [_plain(each, depth - 1, other) for each in value]
    return other(value)


def _other(value: Any, other: Callable[[Any], Any] | None = None) -> Any:
    """Return what stands for a value that MessagePack has not. `other` does so for the members of a set."""
    kind = type(value).__qualname__
    if isinstance(value, int):
        return [kind, repr(value)]  # beyond 64 bits
    if isinstance(value, set | frozenset):
        return [kind, sorted(packed([each], other) for each in value)]
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return [kind, str(value.dtype), list(value.shape), value.tobytes()]
    if isinstance(value, np.generic):
        return [kind, value.tobytes()]
    return [kind, repr(value)] if f"{type(value).__module__}.{kind}" in _BY_REPR else [kind]


def _row_hashes(batch: pa.RecordBatch) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Return a hash of each row, by the column."""
    columns = [_hashable(column) for column in batch.columns] or [pa.nulls(batch.num_rows)]
    return hash_columns(columns, as_tuple=True)


def _hashable(column: pa.Array) -> pa.Array:
    """Return a column of a type that can be a key, with equal values where `column` has equal values."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _hashable(column.dictionary_decode())
    if pa.types.is_floating(kind) or (pa.types.is_temporal(kind) and kind.bit_width in (32, 64)):
        return column.view({16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[kind.bit_width])
    if any(is_kind(kind) for is_kind in _KEYS):
        return column
    return pa.array([packed([value]) for value in column.to_pylist()], pa.binary())


_KEYS: Final = (
    *(pa.types.is_null, pa.types.is_boolean, pa.types.is_integer, pa.types.is_string, pa.types.is_large_string),
    *(pa.types.is_string_view, pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view),
    pa.types.is_fixed_size_binary,
)
