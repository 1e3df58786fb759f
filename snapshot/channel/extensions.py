"""MessagePack extensions: tuples, record batches, pickles, and large buffers that are stored beside a state.

Owns the content of each extension. A packer refers to its `ExtensionEncoder`, and the encoder to the packer of nested
values, never back. So the memory of a state is freed at once, because there is no cycle that waits for the garbage
collector. The collector runs once in 100,000 new objects: with batches hardly ever, and a state may be a gigabyte. ::

    ext 1   tuple           MessagePack array
    ext 2   anything else   cloudpickle
    ext 3   record batch    Arrow IPC stream
    ext 4   buffer outside   [kind, buffers, pickle]: see `Codec.encode_state` and
                             `snapshot.channel.out_of_band_buffers`
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import cloudpickle
import msgpack
import pyarrow as pa

from snapshot.channel.frame import Buffer
from snapshot.channel.out_of_band_buffers import LARGE_BYTES, OutOfBandBuffers, writable
from snapshot.channel.record_batches import decode_batch, encode_batch
from snapshot.error_text import headline

_EXT_TUPLE = 1
_EXT_PICKLE = 2
_EXT_BATCH = 3
_EXT_OUT_OF_BAND = 4

#: Kinds of an outside buffer: bytes, a record batch, or the buffers of a pickled value. Stored: never renumber.
_BYTES, _BATCH, _PICKLE = 0, 1, 2

#: Most entries of a list or dict that are searched for large bytes, and most levels. The limits suit a state of few
#: large pieces, not of many small pieces. A user's own dict is two deep, because the outermost dict is the framework's.
_LIFTED_ENTRIES_MAX = 1_000
_LIFTED_DEPTH = 3


class NotSerialisable(TypeError):
    """A value that the codec refuses. The caller adds node, channel and type, and raises its own error."""


class ExtensionEncoder:
    """Encode values that a packer cannot encode. `encode` is the packer's ``default``.

    Parameters
    ----------
    safe : bool
        True refuses cloudpickle.
    out_of_band : OutOfBandBuffers, optional
        Buffers of the value that is encoded next, or None to keep large buffers inside.
    """

    def __init__(self, *, safe: bool, out_of_band: OutOfBandBuffers | None = None) -> None:
        self._safe = safe
        self._out_of_band = out_of_band

    def packer(self) -> msgpack.Packer:
        """Return a packer of all values."""
        # strict_types: a tuple or a subclass goes to the extension instead of losing its type.
        return msgpack.Packer(default=self.encode, strict_types=True, unicode_errors="surrogatepass")

    @cached_property
    def _nested(self) -> msgpack.Packer:
        """Packer of the values inside an extension, made once a level, because no packer can be entered twice."""
        return ExtensionEncoder(safe=self._safe, out_of_band=self._out_of_band).packer()

    def encode(self, value: Any) -> msgpack.ExtType:
        """Return the extension that holds `value`.

        Raises
        ------
        NotSerialisable
            if pickle refuses `value`, or the encoder is safe and `value` needs pickle.
        """
        out_of_band = self._out_of_band
        if type(value) is tuple:
            return msgpack.ExtType(_EXT_TUPLE, packed(self._nested, list(value)))
        if type(value) is _Large:
            assert out_of_band is not None
            return _out_of_band_extension(_BYTES, [out_of_band.add(value.data)])
        if isinstance(value, pa.RecordBatch):
            if out_of_band is None or value.nbytes < LARGE_BYTES:
                return msgpack.ExtType(_EXT_BATCH, bytes(encode_batch(value)))
            room = out_of_band.memory.allocate
            return _out_of_band_extension(_BATCH, [out_of_band.add(encode_batch(value, lambda size: room(size).data))])
        if self._safe:
            raise NotSerialisable(f"{type(value).__qualname__} needs pickle, which safe=True refuses")
        try:
            if out_of_band is None:
                return msgpack.ExtType(_EXT_PICKLE, cloudpickle.dumps(value, protocol=5))
            before = out_of_band.count
            pickled = cloudpickle.dumps(value, protocol=5, buffer_callback=out_of_band.lift)
            if out_of_band.count == before:
                return msgpack.ExtType(_EXT_PICKLE, pickled)
            return _out_of_band_extension(_PICKLE, list(range(before, out_of_band.count)), pickled)
        except Exception as error:  # pickling runs the value's own code, which may raise anything
            raise NotSerialisable(f"{type(value).__qualname__} cannot be pickled: {error}") from error


class ExtensionDecoder:
    """Decode the extensions of `ExtensionEncoder`.

    Parameters
    ----------
    safe : bool
        True refuses pickle.
    inside : sequence of memoryview
        The outside buffers of the value, by number.
    """

    def __init__(self, *, safe: bool, inside: Sequence[memoryview] = ()) -> None:
        self._safe = safe
        self._inside = inside

    def unpack(self, data: Buffer) -> Any:
        """Return the value of a packer's bytes.

        Raises
        ------
        NotSerialisable
            if the bytes hold no MessagePack value, or a pickle that is refused.
        """
        try:
            return msgpack.unpackb(data, ext_hook=self.decode, strict_map_key=False, unicode_errors="surrogatepass")
        except (ValueError, msgpack.UnpackException) as error:
            raise NotSerialisable(f"not a MessagePack value: {error}") from error

    def decode(self, code: int, data: bytes) -> Any:
        """Return the value of an extension. Raises as `unpack`."""
        if code == _EXT_TUPLE:
            return tuple(self.unpack(data))
        if code == _EXT_BATCH:
            return decode_batch(data)
        kind, buffers, pickled = (_PICKLE, [], data) if code == _EXT_PICKLE else self._find_out_of_band(code, data)
        if kind == _BYTES:
            return bytes(buffers[0])
        if kind == _BATCH:
            return decode_batch(buffers[0])
        if self._safe:
            raise NotSerialisable("a pickled value, which safe=True refuses")
        try:
            return pickle.loads(pickled, buffers=[writable(buffer) for buffer in buffers])
        except Exception as error:  # unpickling runs the class's own code, which may raise anything
            raise NotSerialisable(f"a value cannot be unpickled here: {headline(error)}") from error

    def _find_out_of_band(self, code: int, data: bytes) -> tuple[int, list[memoryview], bytes]:
        """Return the kind, the buffers and the pickle that an extension refers to."""
        if code != _EXT_OUT_OF_BAND:
            raise NotSerialisable(f"unknown MessagePack extension {code}")
        kind, numbers, pickled = msgpack.unpackb(data)
        try:
            return kind, [self._inside[number] for number in numbers], pickled
        except IndexError as error:
            raise NotSerialisable(f"a state that refers to buffer {max(numbers)} of {len(self._inside)}") from error


class _Large:
    """Bytes that stay outside while their value is encoded."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


def lifted(value: Any, depth: int = _LIFTED_DEPTH) -> Any:
    """Return `value` with its large bytes marked as `_Large`, down to `depth` levels."""
    if type(value) is bytes:
        return _Large(value) if len(value) >= LARGE_BYTES else value
    if depth and type(value) is dict and len(value) <= _LIFTED_ENTRIES_MAX:
        return {key: lifted(entry, depth - 1) for key, entry in value.items()}
    if depth and type(value) is list and len(value) <= _LIFTED_ENTRIES_MAX:
        return [lifted(entry, depth - 1) for entry in value]
    return value


def _out_of_band_extension(kind: int, numbers: list[int], pickled: bytes = b"") -> msgpack.ExtType:
    return msgpack.ExtType(_EXT_OUT_OF_BAND, msgpack.packb([kind, numbers, pickled]))


def packed(packer: msgpack.Packer, value: Any) -> bytes:
    """Return the bytes that `packer` makes of `value`.

    Raises
    ------
    NotSerialisable
        if the packer refuses `value`.
    """
    try:
        encoded: bytes = packer.pack(value)
        return encoded
    except NotSerialisable:
        raise
    except (TypeError, ValueError, OverflowError, RecursionError, BufferError) as error:
        raise NotSerialisable(f"{type(value).__qualname__} cannot be encoded: {error}") from error
