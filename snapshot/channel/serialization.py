"""The codec of messages, states and control records: MessagePack with extensions.

MessagePack arrays decode to lists. Tuples, and all values without a plain MessagePack type, travel as extensions
(`snapshot.channel.extensions`). So a value comes back equal and of the same type, whether its message crossed a socket
or stayed in its worker. Only a bytearray or a memoryview comes back as bytes. Values that MessagePack lacks go through
cloudpickle, unless the codec is *safe*: a safe codec refuses pickle when encoding and when decoding.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import chain
from types import NoneType
from typing import Any

import msgpack
import msgspec

from snapshot.channel.extensions import ExtensionDecoder, ExtensionEncoder, NotSerialisable, lifted, packed
from snapshot.channel.frame import Buffer
from snapshot.channel.kept_memory import KeptMemory
from snapshot.channel.out_of_band_buffers import OutOfBandBuffers, split_buffers

#: Types of which a flat tuple consists. MessagePack holds them without an extension, and none of them is a list.
_FLAT_TYPES = frozenset({bool, int, float, str, bytes, NoneType})


class Codec:
    """Encode values to bytes and decode them. A codec serves any number of channels of one thread.

    Parameters
    ----------
    safe : bool
        True refuses cloudpickle on both ends.
    memory : KeptMemory, optional
        Memory for copies of large states. None makes a `KeptMemory` of the codec's own.
    """

    def __init__(self, *, safe: bool = False, memory: KeptMemory | None = None) -> None:
        self.safe = safe
        self._memory = KeptMemory() if memory is None else memory
        self._packer = ExtensionEncoder(safe=safe).packer()
        #: decodes what `encode` made; raises NotSerialisable if the bytes hold no such value, or hold a pickle and the
        #: codec is safe; call only on bytes whose sender was authenticated or whose checksum was verified
        self.decode: Callable[[bytes | memoryview], Any] = ExtensionDecoder(safe=safe).unpack
        #: `encode` without its error messages, for a hot path that calls `encode` after an error to raise them
        self.pack: Callable[[Any], bytes] = self._packer.pack
        #: encoder that takes tuples for arrays; its UTF-8 of text beyond ASCII stays in memory with the str
        self._flat_encoder = msgspec.msgpack.Encoder()

    def encode(self, value: Any) -> bytes:
        """Encode one value.

        Raises
        ------
        NotSerialisable
            if neither MessagePack nor (unless safe) cloudpickle can hold the value.
        """
        return packed(self._packer, value)

    def pack_all(self, values: list[Any]) -> bytes:
        """Encode each value as `pack` does, one behind another, in one call. Raises as `pack`."""
        return self.pack(values)[len(array_header(len(values))) :]

    def pack_flat(self, messages: list[tuple[Any, ...]]) -> bytes | None:
        """Encode tuples as `pack_all` encodes lists. Return None unless all are flat (`PayloadKind.FLAT`)."""
        if not _FLAT_TYPES.issuperset(map(type, chain.from_iterable(messages))):
            return None
        try:
            encoded = self._flat_encoder.encode(messages)
        except (OverflowError, UnicodeEncodeError):  # an integer of more than 64 bits, half of a surrogate pair
            return None
        return encoded[len(array_header(len(messages))) :]

    def decode_flat(self, data: bytes | memoryview) -> list[Any]:
        """Decode an array of flat tuples. As `decode`, but the tuples are made directly, not from lists.

        Raises
        ------
        NotSerialisable
            if the bytes hold no flat tuples.
        """
        try:
            return list(msgpack.unpackb(data, use_list=False, ext_hook=_no_extension, unicode_errors="surrogatepass"))
        except (TypeError, ValueError, msgpack.UnpackException) as error:
            raise NotSerialisable(f"no flat tuples: {error}") from error

    def encode_state(self, value: Any) -> tuple[Buffer, ...]:
        """Encode one value, with its large buffers beside it. Bytes go by reference; other buffers are copied once.

        Raises
        ------
        NotSerialisable
            as `encode`.
        """
        out_of_band = OutOfBandBuffers(self._memory)
        packer = ExtensionEncoder(
            safe=self.safe, out_of_band=out_of_band
        ).packer()  # a new packer, so that no memory of the state is kept
        return out_of_band.join(packed(packer, lifted(value)))

    def decode_state(self, data: bytes | memoryview) -> Any:
        """Decode the state of `encode_state` from one piece of memory. Mutable values are copies.

        Raises
        ------
        NotSerialisable
            as `decode`.
        """
        try:
            encoded, inside = split_buffers(data)
        except (ValueError, struct.error) as error:
            raise NotSerialisable(f"not a state: {error}") from error
        return ExtensionDecoder(safe=self.safe, inside=inside).unpack(encoded)


#: MessagePack headers of arrays of up to 15 elements.
_SHORT_HEADERS = tuple(bytes((0x90 | count,)) for count in range(16))


def _no_extension(code: int, data: bytes) -> Any:
    raise ValueError(f"an extension {code} of {len(data)} bytes")


def array_header(count: int) -> bytes:
    """Return the MessagePack header of an array of `count` elements. Making a packer would cost as much as a frame."""
    if count < 16:
        return _SHORT_HEADERS[count]
    return b"\xdc" + count.to_bytes(2, "big") if count < 65_536 else b"\xdd" + count.to_bytes(4, "big")
