"""The sealed envelope around everything that is stored: parts, manifests, claims, bases.

Owns how stored bytes prove that they are whole and of the expected sort. Must not know what is inside, nor
where it is stored. This layout never changes, whatever version the content has, so that every Cutline can
tell damage from a version that it does not know.

::

    0   4   magic: what sort of record this is
    4   2   format version of the content
    6   8   length of the content in bytes
    14  16  xxh3_128 of bytes 0 to 14 and of the content
    30      content
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import msgpack
import xxhash

from snapshot.channel.frame import Buffer
from snapshot.errors import RestoreRefused, SnapshotCorrupt

#: Version of everything that is stored; raised when the content of any sealed record changes its meaning.
FORMAT_VERSION = 1

_BUFFER_BYTES = 4096

_PREFIX = struct.Struct(">4sHQ")
_CHECKSUM_BYTES = 16
ENVELOPE_BYTES = _PREFIX.size + _CHECKSUM_BYTES


def seal(magic: bytes, chunks: Sequence[Buffer]) -> list[Buffer]:
    """Put an envelope in front of `chunks`, which are taken by reference and never copied."""
    views = [memoryview(chunk).cast("B") for chunk in chunks]
    prefix = _PREFIX.pack(magic, FORMAT_VERSION, sum(view.nbytes for view in views))
    return [prefix + _digest(prefix, views), *chunks]


def unseal(magic: bytes, data: Buffer, name: str) -> memoryview:
    """The content of a sealed record, without a copy, when every byte of it is proved.

    Parameters
    ----------
    magic : bytes
        The sort of record that is expected.
    data : bytes or memoryview
        All of it.
    name : str
        How errors call it.

    Raises
    ------
    SnapshotCorrupt
        if a byte is missing, damaged or too many, or the record is of another sort.
    RestoreRefused
        if the record is whole, but of a format version that this Cutline does not read.
    """
    view = memoryview(data).cast("B")
    if view.nbytes < ENVELOPE_BYTES:
        raise SnapshotCorrupt(f"{name}: ends at offset {view.nbytes}, inside its envelope of {ENVELOPE_BYTES} bytes")
    found, version, length = _PREFIX.unpack_from(view)
    if found != magic:
        raise SnapshotCorrupt(f"{name}: offset 0: {found!r} instead of {magic!r}, so this is no such record")
    end = ENVELOPE_BYTES + length
    if view.nbytes != end:
        raise SnapshotCorrupt(f"{name}: ends at offset {view.nbytes}, but its envelope says {end}")
    content = view[ENVELOPE_BYTES:]
    if _digest(bytes(view[: _PREFIX.size]), [content]) != seal_of(view):
        raise SnapshotCorrupt(f"{name}: checksum over offsets 0 to {end} does not match the one at {_PREFIX.size}")
    if version != FORMAT_VERSION:
        raise RestoreRefused(
            f"{name}: format version {version}, but this Cutline reads {FORMAT_VERSION}; use a release that reads it"
        )
    return content


def envelopes(data: Buffer) -> Iterator[tuple[int, memoryview]]:
    """(offset, record) of those that stand one behind the other in `data`, by their own word: nothing is proved.

    There is always one; the last one is what is left, whole or not.
    """
    view, start = memoryview(data).cast("B"), 0
    while True:
        left = view.nbytes - start
        claimed = ENVELOPE_BYTES + _PREFIX.unpack_from(view, start)[2] if left >= ENVELOPE_BYTES else left
        yield start, view[start : start + claimed]
        start += claimed
        if start >= view.nbytes:
            return


def seal_of(data: Buffer) -> bytes:
    """The checksum that the envelope of `data` claims. Call only on what has an envelope."""
    return bytes(memoryview(data)[_PREFIX.size : ENVELOPE_BYTES])


def magic_of(data: Buffer) -> bytes:
    """The sort of record that `data` claims to be; unproved."""
    return bytes(memoryview(data)[:4])


def pack_plain(value: object) -> bytes:
    """Encode what is stored: plain data, as `unpack_plain` reads it."""
    # The packer's own buffer would be a MiB, made anew for each record; it grows where a record needs more.
    packed: bytes = msgpack.packb(value, buf_size=_BUFFER_BYTES)
    return packed


def unpack_plain(content: Buffer, name: str) -> object:
    """Decode MessagePack without any extension: stored records are plain data and never run code.

    Raises
    ------
    SnapshotCorrupt
        if the bytes are no MessagePack value.
    """
    try:
        return msgpack.unpackb(content, strict_map_key=False)
    except (ValueError, msgpack.UnpackException) as error:
        raise SnapshotCorrupt(f"{name}: offset {ENVELOPE_BYTES}: no MessagePack value: {error}") from error


def _digest(prefix: bytes, views: Sequence[memoryview]) -> bytes:
    digest = xxhash.xxh3_128(prefix)
    for view in views:
        digest.update(view)
    return digest.digest()
