"""The one codec of messages, states and control records: MessagePack, with extensions for what it lacks.

MessagePack arrays decode to lists; tuples, and everything that is not a plain MessagePack type, travel as
extensions (`snapshot.channel.extensions`), so that a value comes back equal and of the same type (a message means the
same whether it crossed a socket or stayed in its worker); only a bytearray or a memoryview comes back as bytes. What
MessagePack lacks goes through cloudpickle, unless the codec is *safe*: then pickle is refused when encoding
and when decoding.
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

#: A tuple of nothing but these is flat: MessagePack holds them as they are, without an extension, and no list is in it.
_FLAT_TYPES = frozenset({bool, int, float, str, bytes, NoneType})


class Codec:
    """Encodes values to bytes and back. One serves any number of channels of one thread.

    Parameters
    ----------
    safe : bool
        True refuses cloudpickle on both ends.
    memory : KeptMemory, optional
        Where copies of large states are made; its own by default.
    """

    def __init__(self, *, safe: bool = False, memory: KeptMemory | None = None) -> None:
        self.safe = safe
        self._memory = KeptMemory() if memory is None else memory
        self._packer = ExtensionEncoder(safe=safe).packer()
        #: decodes what `encode` made; raises NotSerialisable if the bytes are no such value, or hold a pickle and the
        #: codec is safe. Only ever called on bytes whose sender was authenticated or whose checksum was verified
        self.decode: Callable[[bytes | memoryview], Any] = ExtensionDecoder(safe=safe).unpack
        #: `encode` without the words for what goes wrong: for a hot path that then calls `encode` for them
        self.pack: Callable[[Any], bytes] = self._packer.pack
        #: takes tuples for arrays; the UTF-8 that it makes of text beyond ASCII stays with the str
        self._flat_encoder = msgspec.msgpack.Encoder()

    def encode(self, value: Any) -> bytes:
        """Encode one value.

        Raises
        ------
        NotSerialisable
            if neither MessagePack nor (unless safe) cloudpickle can hold it.
        """
        return packed(self._packer, value)

    def pack_all(self, values: list[Any]) -> bytes:
        """Pack several messages, one behind the other, in one call. Raises the errors of `pack`."""
        return self.pack(values)[len(array_header(len(values))) :]

    def pack_flat(self, messages: list[tuple[Any, ...]]) -> bytes | None:
        """Pack tuples as `pack_all` packs lists. Return None unless all are flat (`PayloadKind.FLAT`)."""
        if not _FLAT_TYPES.issuperset(map(type, chain.from_iterable(messages))):
            return None
        try:
            encoded = self._flat_encoder.encode(messages)
        except (OverflowError, UnicodeEncodeError):  # an integer of more than 64 bits, half of a surrogate pair
            return None
        return encoded[len(array_header(len(messages))) :]

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
        out_of_band = OutOfBandBuffers(self._memory)
        packer = ExtensionEncoder(
            safe=self.safe, out_of_band=out_of_band
        ).packer()  # a new one: nothing of a state stays
        return out_of_band.join(packed(packer, lifted(value)))

    def decode_state(self, data: bytes | memoryview) -> Any:
        """Decode what `encode_state` made, from one piece of memory. What can be changed is a copy.

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


#: Of arrays of up to 15 elements.
_SHORT_HEADERS = tuple(bytes((0x90 | count,)) for count in range(16))


def _no_extension(code: int, data: bytes) -> Any:
    raise ValueError(f"an extension {code} of {len(data)} bytes")


def array_header(count: int) -> bytes:
    """The MessagePack header of an array of `count` elements; a packer, made for it, costs as much as a frame."""
    if count < 16:
        return _SHORT_HEADERS[count]
    return b"\xdc" + count.to_bytes(2, "big") if count < 65_536 else b"\xdd" + count.to_bytes(4, "big")
