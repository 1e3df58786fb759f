"""The one codec of messages, states and control records: MessagePack, with extensions for what it lacks.

MessagePack arrays decode to lists; tuples, and everything that is not a plain MessagePack type, travel as
extensions, so that a value comes back equal and of the same type (a message means the same whether it
crossed a socket or stayed in its worker); only a bytearray or a memoryview comes back as bytes. What
MessagePack lacks goes through cloudpickle, unless the codec is *safe*: then pickle is refused when encoding
and when decoding.

::

    ext 1   tuple           MessagePack array
    ext 2   anything else   cloudpickle
    ext 3   record batch    Arrow IPC stream
    ext 4   what is outside  [kind, buffers, pickle]: see `Codec.encode_state` and `snapshot.channel.outside`
"""

from __future__ import annotations

import io
import pickle
import struct
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import chain
from types import NoneType
from typing import Any

import cloudpickle
import msgpack
import msgspec
import pyarrow as pa

from snapshot.channel.outside import LARGE_BYTES, Outside, taken_apart, writable
from snapshot.stored.envelope import Buffer

_EXT_TUPLE = 1
_EXT_PICKLE = 2
_EXT_BATCH = 3
_EXT_OUTSIDE = 4

#: What is outside: bytes, a record batch, or the buffers of a pickled value. Stored: never renumber.
_BYTES, _BATCH, _PICKLE = 0, 1, 2

#: Entries of a list or dict that are looked at for large bytes, and how deep: a state of few large pieces, not one of
#: many small. The outermost dict is the framework's, so a user's own is two deep.
_LIFTED_ENTRIES_MAX = 1_000
_LIFTED_DEPTH = 3


#: A tuple of nothing but these is flat: MessagePack holds them as they are, without an extension, and no list is in it.
_FLAT_TYPES = frozenset({bool, int, float, str, bytes, NoneType})


class NotSerialisable(TypeError):
    """A value that the codec refuses. The caller adds node, channel and type, and raises its own error."""


class Codec:
    """Encodes values to bytes and back. One serves any number of channels of one thread.

    Parameters
    ----------
    safe : bool
        True refuses cloudpickle on both ends.
    """

    def __init__(self, *, safe: bool = False) -> None:
        self.safe = safe
        # strict_types: a tuple or a subclass goes to the extension instead of losing its type.
        self._packer = msgpack.Packer(default=self._encode_extension, strict_types=True, unicode_errors="surrogatepass")
        #: `encode` without the words for what goes wrong: for a hot path that then calls `encode` for them
        self.pack: Callable[[Any], bytes] = self._packer.pack
        #: takes tuples for arrays; the UTF-8 that it makes of text beyond ASCII stays with the str
        self._flat_encoder = msgspec.msgpack.Encoder()
        #: of the one state that this codec was made to encode, or decode
        self._outside: Outside | None = None
        self._inside: Sequence[memoryview] = ()

    def encode(self, value: Any) -> bytes:
        """Encode one value.

        Raises
        ------
        NotSerialisable
            if neither MessagePack nor (unless safe) cloudpickle can hold it.
        """
        try:
            packed: bytes = self._packer.pack(value)
            return packed
        except NotSerialisable:
            raise
        except (TypeError, ValueError, OverflowError, RecursionError, BufferError) as error:
            raise NotSerialisable(f"{type(value).__qualname__} cannot be encoded: {error}") from error

    def decode(self, data: bytes | memoryview) -> Any:
        """Decode what `encode` made. Only ever called on bytes whose sender was authenticated or whose
        checksum was verified.

        Raises
        ------
        NotSerialisable
            if the bytes are no such value, or hold a pickle and the codec is safe.
        """
        try:
            return msgpack.unpackb(
                data,
                ext_hook=self._decode_extension,
                strict_map_key=False,
                unicode_errors="surrogatepass",
            )
        except (ValueError, msgpack.UnpackException) as error:
            raise NotSerialisable(f"not a MessagePack value: {error}") from error

    def pack_all(self, values: list[Any]) -> bytes:
        """What `pack` makes of each, one behind the other, in one call. Raises what `pack` raises."""
        return self.pack(values)[len(array_header(len(values))) :]

    def pack_flat(self, messages: list[tuple[Any, ...]]) -> bytes | None:
        """What `pack_all` makes of the tuples as lists; None unless all are flat (`PayloadKind.FLAT`)."""
        if not _FLAT_TYPES.issuperset(map(type, chain.from_iterable(messages))):
            return None
        try:
            packed = self._flat_encoder.encode(messages)
        except (OverflowError, UnicodeEncodeError):  # an integer of more than 64 bits, half of a surrogate pair
            return None
        return packed[len(array_header(len(messages))) :]

    def decode_flat(self, data: bytes | memoryview) -> list[Any]:
        """Decode an array of flat tuples: what `decode` gives, but for the tuples, which needn't be made of lists.

        Raises
        ------
        NotSerialisable
            if the bytes are no such thing.
        """
        try:
            return list(msgpack.unpackb(data, use_list=False, ext_hook=_no_extension, unicode_errors="surrogatepass"))
        except (TypeError, ValueError, msgpack.UnpackException) as error:
            raise NotSerialisable(f"no flat tuples: {error}") from error

    def encode_state(self, value: Any) -> tuple[Buffer, ...]:
        """Encode one value, its large buffers beside it: bytes by reference, everything else copied once.

        Raises
        ------
        NotSerialisable
            as `encode`.
        """
        outside, one = Outside(), Codec(safe=self.safe)  # of its own: nothing of a state stays behind
        one._outside = outside
        return outside.beside(one.encode(_lifted(value)))

    def decode_state(self, data: bytes | memoryview) -> Any:
        """Decode what `encode_state` made, from one piece of memory. What can be changed is a copy.

        Raises
        ------
        NotSerialisable
            as `decode`.
        """
        one = Codec(safe=self.safe)  # of its own: snapshots are read on any thread
        try:
            encoded, one._inside = taken_apart(data)
        except (ValueError, struct.error) as error:
            raise NotSerialisable(f"not a state: {error}") from error
        return one.decode(encoded)

    @cached_property
    def _nested(self) -> Codec:
        """For what is inside an extension: a packer cannot be entered twice. One codec a level, made once."""
        return Codec(safe=self.safe)

    def _encode_extension(self, value: Any) -> msgpack.ExtType:
        outside = self._outside
        if type(value) is tuple:
            self._nested._outside = outside
            return msgpack.ExtType(_EXT_TUPLE, self._nested.encode(list(value)))
        if type(value) is _Large:
            assert outside is not None
            return _outside_extension(_BYTES, [outside.add(value.data)])
        if isinstance(value, pa.RecordBatch):
            if outside is None or value.nbytes < LARGE_BYTES:
                return msgpack.ExtType(_EXT_BATCH, bytes(encode_batch(value)))
            # Given back on a thread that stores: Arrow's own pool then asks the system anew, 0.7 ms for 240 KB.
            return _outside_extension(_BATCH, [outside.add(encode_batch(value, pa.system_memory_pool()))])
        if self.safe:
            raise NotSerialisable(f"{type(value).__qualname__} needs pickle, which safe=True refuses")
        try:
            if outside is None:
                return msgpack.ExtType(_EXT_PICKLE, cloudpickle.dumps(value, protocol=5))
            before = outside.count
            pickled = cloudpickle.dumps(value, protocol=5, buffer_callback=outside.lift)
            if outside.count == before:
                return msgpack.ExtType(_EXT_PICKLE, pickled)
            return _outside_extension(_PICKLE, list(range(before, outside.count)), pickled)
        except Exception as error:  # pickling runs the value's own code, which may raise anything
            raise NotSerialisable(f"{type(value).__qualname__} cannot be pickled: {error}") from error

    def _decode_extension(self, code: int, data: bytes) -> Any:
        if code == _EXT_TUPLE:
            return tuple(self.decode(data))
        if code == _EXT_BATCH:
            return decode_batch(data)
        kind, buffers, pickled = (_PICKLE, [], data) if code == _EXT_PICKLE else self._find_outside(code, data)
        if kind == _BYTES:
            return bytes(buffers[0])
        if kind == _BATCH:
            return decode_batch(buffers[0])
        if self.safe:
            raise NotSerialisable("a pickled value, which safe=True refuses")
        try:
            return pickle.loads(pickled, buffers=[writable(buffer) for buffer in buffers])
        except Exception as error:  # unpickling runs the class's own code, which may raise anything
            raise NotSerialisable(f"a value cannot be unpickled here: {type(error).__name__}: {error}") from error

    def _find_outside(self, code: int, data: bytes) -> tuple[int, list[memoryview], bytes]:
        """What an extension refers to."""
        if code != _EXT_OUTSIDE:
            raise NotSerialisable(f"unknown MessagePack extension {code}")
        kind, numbers, pickled = msgpack.unpackb(data)
        try:
            return kind, [self._inside[number] for number in numbers], pickled
        except IndexError as error:
            raise NotSerialisable(f"a state that refers to buffer {max(numbers)} of {len(self._inside)}") from error


class _Large:
    """Bytes that are to stay outside, while their value is encoded."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


def _no_extension(code: int, data: bytes) -> Any:
    raise ValueError(f"an extension {code} of {len(data)} bytes")


def _lifted(value: Any, depth: int = _LIFTED_DEPTH) -> Any:
    """The value, with the large bytes marked that are in it, or in what is in it."""
    if type(value) is bytes:
        return _Large(value) if len(value) >= LARGE_BYTES else value
    if depth and type(value) is dict and len(value) <= _LIFTED_ENTRIES_MAX:
        return {key: _lifted(entry, depth - 1) for key, entry in value.items()}
    if depth and type(value) is list and len(value) <= _LIFTED_ENTRIES_MAX:
        return [_lifted(entry, depth - 1) for entry in value]
    return value


def _outside_extension(kind: int, numbers: list[int], pickled: bytes = b"") -> msgpack.ExtType:
    return msgpack.ExtType(_EXT_OUTSIDE, msgpack.packb([kind, numbers, pickled]))


def array_header(count: int) -> bytes:
    """The MessagePack header of an array of `count` elements; a packer, made for it, costs as much as a frame."""
    if count < 16:
        return bytes((0x90 | count,))
    return b"\xdc" + count.to_bytes(2, "big") if count < 65_536 else b"\xdd" + count.to_bytes(4, "big")


def encode_batch(batch: pa.RecordBatch, memory_pool: pa.MemoryPool | None = None) -> pa.Buffer:
    """One record batch as an Arrow IPC stream; columns are copied once, into the pool's memory (None: Arrow's)."""
    sized = pa.MockOutputStream()
    _write_stream(sized, batch)
    # Of the right size, so that nothing is copied while it grows.
    buffer = pa.allocate_buffer(sized.size(), memory_pool=memory_pool)
    with pa.FixedSizeBufferWriter(buffer) as sink:
        _write_stream(sink, batch)
    return buffer


def _write_stream(sink: Any, batch: pa.RecordBatch) -> None:
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)


def decode_batch(data: bytes | memoryview | pa.Buffer) -> pa.RecordBatch:
    """The record batch of `encode_batch`; its columns refer to `data` without a copy."""
    with pa.ipc.open_stream(io.BytesIO(data) if isinstance(data, bytes) else pa.BufferReader(data)) as reader:
        return reader.read_next_batch()
