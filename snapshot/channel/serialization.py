"""The codec of messages, states and control records: MessagePack for trees of plain values, pickle for all else.

A tree of exact lists, dicts and atoms goes as MessagePack, with record batches as extensions. Every other value goes
whole as one pickle (`snapshot.channel.pickles`): tuples, sets, objects, and containers that are reached in two ways. So
a value comes back equal, of the same types and with the same sharing, whether its message crossed a socket or stayed
in its worker. A *safe* codec refuses pickles that name classes or functions, when encoding and when decoding.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain
from typing import Any, Final

import msgpack
import pyarrow as pa

from cutline.snapshot.channel.extensions import Encoded, ExtensionDecoder, encoder, lifted, pickled
from cutline.snapshot.channel.frame import Buffer
from cutline.snapshot.channel.kept_memory import KeptMemory
from cutline.snapshot.channel.out_of_band_buffers import OutOfBandBuffers, split_buffers
from cutline.snapshot.channel.pickles import NotSerialisable
from cutline.snapshot.channel.stored_references import code_in
from cutline.snapshot.channel.survey import ATOMS, Survey, TooDeep, survey
from cutline.snapshot.naming.by_name import ByName
from cutline.snapshot.naming.program_names import NO_GRAPH, NotBound, ProgramNames

#: Types of trees that are written as MessagePack, and types that may stand inside.
_ROOTS: Final = frozenset({list, dict, pa.RecordBatch})
_TREE_TYPES: Final = ATOMS | _ROOTS
_FIELD_TYPES: Final = _TREE_TYPES | {Encoded}

#: The survey of a value whose content needs none.
_NOTHING: Final = Survey(frozenset(), is_tree=True, others=[])

#: Errors of the encoder for integers of more than 64 bits and for halves of surrogate pairs.
_NOT_MESSAGEPACK: Final = (OverflowError, UnicodeEncodeError)

#: True for types of values that nobody can change and that refer to nothing.
are_atoms: Callable[[Any], bool] = ATOMS.issuperset


class Codec:
    """Encode values to bytes and decode them. A codec serves any number of channels of one thread.

    Parameters
    ----------
    safe : bool
        True refuses pickles of classes and functions on both ends.
    memory : KeptMemory, optional
        Memory for copies of large states. None makes a `KeptMemory` of the codec's own.
    names : ProgramNames
        Names of the classes and functions of the program whose values are encoded.
    """

    def __init__(self, *, safe: bool = False, memory: KeptMemory | None = None, names: ProgramNames = NO_GRAPH) -> None:
        self.safe = safe
        self._by_name = ByName(names)
        self._memory = KeptMemory() if memory is None else memory
        #: decodes what `encode` made; raises NotSerialisable if the bytes hold no such value, or hold a pickle and the
        #: codec is safe; call only on bytes whose sender was authenticated or whose checksum was verified
        self.decode: Callable[[bytes | memoryview], Any] = ExtensionDecoder(names, safe=safe).unpack
        #: encodes an atom, or a tuple of atoms as an array; raises OverflowError or UnicodeEncodeError for the integers
        #: and texts that MessagePack has not; its UTF-8 of text beyond ASCII stays in memory with the str
        self.pack: Callable[[Any], bytes] = encoder().encode

    def encode(self, value: Any) -> bytes:
        """Encode one value.

        Raises
        ------
        NotSerialisable
            if the value can be neither written as MessagePack nor pickled, would not be unpickled again, is nested too
            deep, or needs a pickle of a class and the codec is safe.
        """
        if type(value) in ATOMS or _is_flat(value):
            try:
                return self.pack(value)
            except _NOT_MESSAGEPACK:
                pass
        return self._encode(value, is_root=type(value) in _ROOTS)

    def encode_tuple(self, message: tuple[Any, ...]) -> bytes:
        """Encode a message for a frame of tuples, whose arrays are read as tuples. Raises as `encode`."""
        return self._encode(message, is_root=True)

    def _encode(self, value: Any, *, is_root: bool) -> bytes:
        found = _surveyed(value)
        if is_root and found.is_tree and found.types <= _TREE_TYPES:
            try:
                return self.pack(value)
            except _NOT_MESSAGEPACK:
                pass
        return self.pack(pickled(value, found, self._by_name, safe=self.safe))

    def pack_all(self, messages: list[Any]) -> bytes | None:
        """Encode each message as `encode` does, one after another, in one call. None if one of them needs a pickle."""
        if not are_atoms(map(type, messages)) and not (_ROOTS.issuperset(map(type, messages)) and _is_tree(*messages)):
            return None
        return self._pack_list(messages)

    def pack_tuples(self, messages: list[tuple[Any, ...]]) -> bytes | None:
        """Encode each message as `encode_tuple` does, in one call. None if one of them needs a pickle."""
        return self._pack_list(messages) if _is_tree(*messages) else None

    def pack_flat(self, messages: list[tuple[Any, ...]]) -> bytes | None:
        """Encode tuples as `pack_tuples` does. None unless all are flat (`PayloadKind.FLAT`)."""
        return self._pack_list(messages) if are_atoms(map(type, chain.from_iterable(messages))) else None

    def _pack_list(self, messages: list[Any]) -> bytes | None:
        try:
            return self.pack(messages)[len(array_header(len(messages))) :]
        except _NOT_MESSAGEPACK:
            return None

    def require(self, references: Iterable[bytes]) -> None:
        """Look up what pickles refer to, before any is read.

        Raises
        ------
        NotSerialisable
            if the program has no class or function of a name, or another class than the stored one.
        """
        for each in references:
            try:
                self._by_name.names.bind(each)
            except NotBound as error:
                raise NotSerialisable(str(error)) from error

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

    def encode_state(self, fields: Mapping[str, Any]) -> tuple[Buffer, ...]:
        """Encode named values, with their large buffers beside them.

        Large bytes go by reference; other buffers are copied once. Each field keeps the sharing inside it.

        Raises
        ------
        NotSerialisable
            as `encode`.
        """
        out_of_band = OutOfBandBuffers(self._memory)
        pack = encoder(out_of_band).encode  # a new encoder, so that no memory of the state is kept
        encoded = {name: Encoded(self._encode_field(value, pack, out_of_band)) for name, value in fields.items()}
        return out_of_band.join(pack(encoded))

    def _encode_field(self, value: Any, pack: Callable[[Any], bytes], out_of_band: OutOfBandBuffers) -> bytes:
        found = _NOTHING if type(value) in ATOMS or _is_flat(value) else _surveyed(value)
        if found.is_tree and found.types <= _FIELD_TYPES and (type(value) in ATOMS or type(value) in _ROOTS):
            before = out_of_band.count
            try:
                return pack(lifted(value))
            except _NOT_MESSAGEPACK:
                out_of_band.truncate(before)
        return pack(pickled(value, found, self._by_name, safe=self.safe, out_of_band=out_of_band))

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
        self.require(code_in(encoded))
        return ExtensionDecoder(self._by_name.names, safe=self.safe, inside=inside).unpack(encoded)

    def decode_fields(self, data: bytes | memoryview) -> Iterator[tuple[str, Any]]:
        """Yield (name, value) of the fields of `encode_state` that can be decoded here. Others are left out.

        Raises
        ------
        NotSerialisable
            if the bytes hold no state.
        """
        try:
            encoded, inside = split_buffers(data)
            fields = _encoded_fields(encoded)
        except (ValueError, struct.error, msgpack.UnpackException) as error:
            raise NotSerialisable(f"not a state: {error}") from error
        decoder = ExtensionDecoder(self._by_name.names, safe=self.safe, inside=inside)
        for name, field in fields:
            with suppress(NotSerialisable):
                yield name, decoder.unpack(field)


def _encoded_fields(encoded: memoryview) -> list[tuple[str, memoryview]]:
    """Return the bytes of each value of a MessagePack map, without decoding any."""
    unpacker = msgpack.Unpacker(max_buffer_size=max(1, encoded.nbytes))
    unpacker.feed(encoded)
    fields = []
    for _ in range(unpacker.read_map_header()):
        name = unpacker.unpack()
        start = unpacker.tell()
        unpacker.skip()
        fields.append((name, encoded[start : unpacker.tell()]))
    return fields


def _is_flat(value: Any) -> bool:
    """Return whether `value` is a list or dict of atoms. A survey would find the same in three times the time."""
    if type(value) is list:
        return are_atoms(map(type, value))
    return type(value) is dict and are_atoms(map(type, value)) and are_atoms(map(type, value.values()))


def _is_tree(*values: Any) -> bool:
    """Return whether the content of `values` can be written as MessagePack, each value alone."""
    try:
        found = survey(*values)
    except TooDeep:  # the value that is too deep is refused when it is encoded alone
        return False
    return found.is_tree and found.types <= _TREE_TYPES


def _surveyed(value: Any) -> Survey:
    try:
        return survey(value)
    except TooDeep as error:
        raise NotSerialisable(f"{type(value).__qualname__} cannot be encoded: {error}") from error


#: MessagePack headers of arrays of up to 15 elements.
_SHORT_HEADERS = tuple(bytes((0x90 | count,)) for count in range(16))


def _no_extension(code: int, data: bytes) -> Any:
    raise ValueError(f"an extension {code} of {len(data)} bytes")


def array_header(count: int) -> bytes:
    """Return the MessagePack header of an array of `count` elements. Making a packer would cost as much as a frame."""
    if count < 16:
        return _SHORT_HEADERS[count]
    return b"\xdc" + count.to_bytes(2, "big") if count < 65_536 else b"\xdd" + count.to_bytes(4, "big")
