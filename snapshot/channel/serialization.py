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
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from functools import cached_property
from typing import Any

import cloudpickle
import msgpack
import pyarrow as pa

_EXT_TUPLE = 1
_EXT_PICKLE = 2
_EXT_BATCH = 3


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
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
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

    @cached_property
    def _nested(self) -> Codec:
        """For what is inside an extension: a packer cannot be entered twice. One codec a level, made once."""
        return Codec(safe=self.safe)

    def _encode_extension(self, value: Any) -> msgpack.ExtType:
        if type(value) is tuple:
            return msgpack.ExtType(_EXT_TUPLE, self._nested.encode(list(value)))
        if isinstance(value, pa.RecordBatch):
            return msgpack.ExtType(_EXT_BATCH, bytes(encode_batch(value)))
        if self.safe:
            raise NotSerialisable(f"{type(value).__qualname__} needs pickle, which safe=True refuses")
        try:
            return msgpack.ExtType(_EXT_PICKLE, cloudpickle.dumps(value, protocol=5))
        except Exception as error:  # pickling runs the value's own code, which may raise anything
            raise NotSerialisable(f"{type(value).__qualname__} cannot be pickled: {error}") from error

    def _decode_extension(self, code: int, data: bytes) -> Any:
        if code == _EXT_TUPLE:
            return tuple(self.decode(data))
        if code == _EXT_BATCH:
            return decode_batch(data)
        if code != _EXT_PICKLE:
            raise NotSerialisable(f"unknown MessagePack extension {code}")
        if self.safe:
            raise NotSerialisable("a pickled value, which safe=True refuses")
        try:
            return pickle.loads(data)
        except Exception as error:  # unpickling runs the class's own code, which may raise anything
            raise NotSerialisable(f"a value cannot be unpickled here: {type(error).__name__}: {error}") from error


def array_header(count: int) -> bytes:
    """The MessagePack header of an array of `count` elements; a packer, made for it, costs as much as a frame."""
    if count < 16:
        return bytes((0x90 | count,))
    return b"\xdc" + count.to_bytes(2, "big") if count < 65_536 else b"\xdd" + count.to_bytes(4, "big")


def encode_batch(batch: pa.RecordBatch) -> pa.Buffer:
    """One record batch as an Arrow IPC stream; column buffers are copied once."""
    sized = pa.MockOutputStream()
    _write_stream(sized, batch)
    buffer = pa.allocate_buffer(sized.size())  # of the right size, so that nothing is copied while it grows
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
