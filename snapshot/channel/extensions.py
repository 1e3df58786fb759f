"""MessagePack extensions: pickles, record batches, and large buffers that are stored beside a state.

Owns the content of each extension. ::

    ext 2   pickle           of values that need no class
    ext 3   record batch     Arrow IPC stream
    ext 4   outside buffers  [kind, buffers, pickle]: see `Codec.encode_state` and
                             `snapshot.channel.out_of_band_buffers`
    ext 5   pickle           with references before it: `snapshot.naming.reference`
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgpack
import msgspec
import pyarrow as pa

from cutline.snapshot.channel.frame import Buffer
from cutline.snapshot.channel.out_of_band_buffers import LARGE_BYTES, OutOfBandBuffers, writable
from cutline.snapshot.channel.pickles import NotSerialisable, Pieces, pickle_into, unpickle
from cutline.snapshot.channel.record_batches import decode_batch, encode_batch
from cutline.snapshot.channel.survey import Survey
from cutline.snapshot.naming.by_name import ByName
from cutline.snapshot.naming.program_names import ProgramNames

Extension = msgspec.msgpack.Ext

EXT_PICKLE = 2
_EXT_BATCH = 3
_EXT_OUT_OF_BAND = 4
EXT_NAMING_PICKLE = 5

#: Kinds of outside buffers: bytes, a record batch, the buffers of a pickle, or a pickle and its buffers; and the last
#: two of a pickle with references. Stored: never renumber.
_BYTES, _BATCH, _BUFFERS, _PICKLE, _NAMING_BUFFERS, _NAMING_PICKLE = 0, 1, 2, 3, 4, 5

#: Most entries of a list or dict that are searched for large bytes, and most levels. The limits suit a state of few
#: large pieces, not of many small pieces. A user's own dict is two deep, because the outermost dict is the framework's.
_LIFTED_ENTRIES_MAX = 1_000
_LIFTED_DEPTH = 3


class Encoded:
    """A value that was encoded before, inside a value that is encoded now."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


class Large:
    """Bytes that stay outside while their value is encoded."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data


def encoder(out_of_band: OutOfBandBuffers | None = None) -> msgspec.msgpack.Encoder:
    """Return an encoder of trees of MessagePack types and record batches.

    Parameters
    ----------
    out_of_band : OutOfBandBuffers, optional
        Takes the large buffers of the value, or None to keep them inside.
    """
    return msgspec.msgpack.Encoder(enc_hook=partial(_extension_of, out_of_band))


def _extension_of(out_of_band: OutOfBandBuffers | None, value: Any) -> Any:
    """Return what stands for a value that MessagePack has no type for."""
    if type(value) is Encoded:
        return msgspec.Raw(value.data)
    if type(value) is Large:
        assert out_of_band is not None
        return _outside(_BYTES, [out_of_band.add(value.data)])
    if type(value) is pa.RecordBatch:
        if out_of_band is None or value.nbytes < LARGE_BYTES:
            return Extension(_EXT_BATCH, bytes(encode_batch(value)))
        room = out_of_band.memory.allocate
        return _outside(_BATCH, [out_of_band.add(encode_batch(value, lambda size: room(size).data))])
    raise TypeError(f"a {type(value).__qualname__} in a tree")  # the survey has missed it


def pickled(
    value: Any, found: Survey, by_name: ByName, *, safe: bool, out_of_band: OutOfBandBuffers | None = None
) -> Extension:
    """Return the extension that holds a value which is no tree of MessagePack types.

    Raises
    ------
    NotSerialisable
        as `pickle_into`.
    """
    pieces = Pieces()
    if out_of_band is None:
        is_naming = pickle_into(pieces, value, found, by_name, safe=safe)
        return Extension(EXT_NAMING_PICKLE if is_naming else EXT_PICKLE, b"".join(pieces))
    before = out_of_band.count
    is_naming = pickle_into(pieces, value, found, by_name, safe=safe, lift=out_of_band.lift)
    buffers = range(before, out_of_band.count)
    if sum(map(len, pieces)) >= LARGE_BYTES:
        return _outside(_NAMING_PICKLE if is_naming else _PICKLE, [out_of_band.add(*pieces), *buffers])
    data = b"".join(pieces)
    if buffers:
        return _outside(_NAMING_BUFFERS if is_naming else _BUFFERS, [*buffers], data)
    return Extension(EXT_NAMING_PICKLE if is_naming else EXT_PICKLE, data)


class ExtensionDecoder:
    """Decode values with extensions.

    Parameters
    ----------
    names : ProgramNames
        Names of the program's classes and functions.
    safe : bool
        True refuses pickles of classes and functions.
    inside : sequence of memoryview
        The outside buffers of the value, by number.
    """

    def __init__(self, names: ProgramNames, *, safe: bool, inside: Sequence[memoryview] = ()) -> None:
        self._names = names
        self._safe = safe
        self._inside = inside

    def unpack(self, data: Buffer) -> Any:
        """Return the value of MessagePack bytes.

        Raises
        ------
        NotSerialisable
            if the bytes hold no MessagePack value, or a pickle that is refused.
        """
        try:
            return msgpack.unpackb(data, ext_hook=self.decode, strict_map_key=False, unicode_errors="surrogatepass")
        except (ValueError, RecursionError, msgpack.UnpackException) as error:
            raise NotSerialisable(f"not a MessagePack value: {error}") from error

    def decode(self, code: int, data: bytes) -> Any:
        """Return the value of an extension. Raises as `unpack`."""
        if code == _EXT_BATCH:
            return decode_batch(data)
        if code == EXT_PICKLE:
            return unpickle(data, None, safe=self._safe)
        if code == EXT_NAMING_PICKLE:
            return unpickle(data, self._names, safe=self._safe)
        if code != _EXT_OUT_OF_BAND:
            raise NotSerialisable(f"unknown MessagePack extension {code}")
        kind, buffers, inline = self._find_out_of_band(data)
        if kind == _BYTES:
            return bytes(buffers[0])
        if kind == _BATCH:
            return decode_batch(buffers[0])
        stream: Buffer = buffers.pop(0) if kind in (_PICKLE, _NAMING_PICKLE) else inline
        names = self._names if kind in (_NAMING_BUFFERS, _NAMING_PICKLE) else None
        return unpickle(stream, names, map(writable, buffers), safe=self._safe)

    def _find_out_of_band(self, data: bytes) -> tuple[int, list[memoryview], bytes]:
        """Return the kind, the buffers and the pickle that an extension refers to."""
        kind, numbers, inline = msgpack.unpackb(data)
        try:
            return kind, [self._inside[number] for number in numbers], inline
        except IndexError as error:
            raise NotSerialisable(f"a state that refers to buffer {max(numbers)} of {len(self._inside)}") from error


def lifted(value: Any, depth: int = _LIFTED_DEPTH) -> Any:
    """Return a tree with its large bytes marked as `Large`, down to `depth` levels."""
    if type(value) is bytes:
        return Large(value) if len(value) >= LARGE_BYTES else value
    if depth and type(value) is dict and len(value) <= _LIFTED_ENTRIES_MAX:
        return {key: lifted(entry, depth - 1) for key, entry in value.items()}
    if depth and type(value) is list and len(value) <= _LIFTED_ENTRIES_MAX:
        return [lifted(entry, depth - 1) for entry in value]
    return value


def _outside(kind: int, numbers: list[int], inline: bytes = b"") -> Extension:
    return Extension(_EXT_OUT_OF_BAND, msgpack.packb([kind, numbers, inline]))
