"""Envelope: the seal around every stored record: parts, manifests, claims, bases.

Owns the proof that stored bytes are whole and of the expected kind, and the format version of each kind. Must not know
the content, nor where records are stored. The layout is the same for every version of the content, for ever, so that
every Cutline can distinguish damage from an unknown version.

::

    0   4   magic: the kind of record
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

from cutline.snapshot.channel.frame import Buffer
from cutline.snapshot.errors import RestoreRefused, SnapshotCorrupt

PART_MAGIC = b"CLPT"
MANIFEST_MAGIC = b"CLMF"

#: {kind of record: format version of its content}; a kind that is not here has version 1. Raise the version of a kind
#: when its content changes its meaning. Files of any other version are refused.
_VERSIONS = {PART_MAGIC: 2, MANIFEST_MAGIC: 2}

#: First bytes of a signed file, whose envelope only a holder of the signing key reads (`snapshot.stored.signed`).
SIGNED_MAGIC = b"CLSG"

_BUFFER_BYTES = 4096

_PREFIX = struct.Struct(">4sHQ")
_CHECKSUM_BYTES = 16
ENVELOPE_BYTES = _PREFIX.size + _CHECKSUM_BYTES


def seal(magic: bytes, chunks: Sequence[Buffer]) -> list[Buffer]:
    """Put an envelope in front of `chunks`. Chunks are taken by reference and never copied."""
    views = [memoryview(chunk).cast("B") for chunk in chunks]
    prefix = _PREFIX.pack(magic, _version(magic), sum(view.nbytes for view in views))
    return [prefix + _digest(prefix, views), *chunks]


def unseal(magic: bytes, data: Buffer, name: str) -> memoryview:
    """Check every byte of a sealed record, and return its content without a copy.

    Parameters
    ----------
    magic : bytes
        The expected kind of record.
    data : bytes or memoryview
        The whole record.
    name : str
        Name of the record in errors.

    Raises
    ------
    SnapshotCorrupt
            if a byte is missing, damaged or too many, or the record is of another kind.
    RestoreRefused
        if the record is whole, but of a format version that this Cutline does not read, or the file is signed.
    """
    view = memoryview(data).cast("B")
    if view.nbytes < ENVELOPE_BYTES:
        raise SnapshotCorrupt(f"{name}: ends at offset {view.nbytes}, inside its envelope of {ENVELOPE_BYTES} bytes")
    found, version, length = _PREFIX.unpack_from(view)
    if found == SIGNED_MAGIC:
        raise RestoreRefused(
            f"{name}: is signed, and no signing key was given; give BarrierRuntime the run's signingKey, or the "
            "command line --signing-key-file"
        )
    if found != magic:
        raise SnapshotCorrupt(f"{name}: offset 0: {found!r} instead of {magic!r}, so this is no such record")
    end = ENVELOPE_BYTES + length
    if view.nbytes != end:
        raise SnapshotCorrupt(f"{name}: ends at offset {view.nbytes}, but its envelope says {end}")
    content = view[ENVELOPE_BYTES:]
    if _digest(bytes(view[: _PREFIX.size]), [content]) != seal_of(view):
        raise SnapshotCorrupt(f"{name}: checksum over offsets 0 to {end} does not match the one at {_PREFIX.size}")
    if version != _version(magic):
        raise RestoreRefused(
            f"{name}: format version {version}, but this Cutline reads {_version(magic)}; use a release that reads it"
        )
    return content


def envelopes(data: Buffer) -> Iterator[tuple[int, memoryview]]:
    """Yield (offset, record) of the records in `data`, split by the lengths in their envelopes. Nothing is checked.

    There is always a record. The last record is the rest of `data`, whole or not.
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
    """Return the checksum in the envelope of `data`. Call only on data with an envelope."""
    return bytes(memoryview(data)[_PREFIX.size : ENVELOPE_BYTES])


def magic_of(data: Buffer) -> bytes:
    """Return the magic of `data`, the kind of record that it claims to be. Nothing is checked."""
    return bytes(memoryview(data)[:4])


def pack_plain(value: object) -> bytes:
    """Encode plain data that `unpack_plain` decodes."""
    # The packer's own buffer would be a MiB for each record. A smaller buffer grows where a record needs more.
    packed: bytes = msgpack.packb(value, buf_size=_BUFFER_BYTES)
    return packed


def unpack_plain(content: Buffer, name: str) -> object:
    """Decode MessagePack without extensions, because stored records are plain data and must never run code.

    Raises
    ------
    SnapshotCorrupt
        if the bytes hold no MessagePack value.
    """
    try:
        return msgpack.unpackb(content, strict_map_key=False)
    except (ValueError, msgpack.UnpackException) as error:
        raise SnapshotCorrupt(f"{name}: offset {ENVELOPE_BYTES}: no MessagePack value: {error}") from error


def _version(magic: bytes) -> int:
    """Return the format version of a kind of record."""
    return _VERSIONS.get(magic, 1)


def _digest(prefix: bytes, views: Sequence[memoryview]) -> bytes:
    digest = xxhash.xxh3_128(prefix)
    for view in views:
        digest.update(view)
    return digest.digest()
