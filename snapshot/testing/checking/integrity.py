"""Checker 5: every byte of a snapshot is checked on reading, and every changed bit is found."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from cutline.snapshot.channel.frame import Buffer
from cutline.snapshot.errors import CutlineError, SnapshotCorrupt
from cutline.snapshot.stored.manifest import decode_manifest, encode_manifest
from cutline.snapshot.stored.part import Handle, decode_part
from cutline.snapshot.stored.snapshot import Snapshot
from cutline.snapshot.testing.checking.values import named
from cutline.snapshot.testing.checking.verdict import Verdict, verdict_of

#: maximum bytes of a snapshot whose every bit is tried, because each try reads the whole piece around its bit
_TRIED_BYTES_MAX = 64 * 1024


def integrity(snapshot: Snapshot) -> Verdict:
    """Check size and checksum of every part and of the manifest, and that the manifest decodes to an equal manifest.

    Returns
    -------
    Verdict
        Problems name the file, the offset and the difference.
    """
    found = []
    try:
        snapshot.verify()
        if decode_manifest(_manifest_bytes(snapshot), "the manifest") != snapshot.manifest:
            found.append("the manifest does not come back from its bytes as it is")
    except CutlineError as error:
        found.append(str(error))
    fine = f"{named(snapshot)}: all {snapshot.size} bytes are as they were written"
    return verdict_of("integrity", [f"{named(snapshot)}: {problem}" for problem in found], fine)


def flippedBits(snapshot: Snapshot, read: Callable[[Handle], Buffer]) -> Verdict:
    """Flip every bit of a small snapshot, one at a time, and check that reading refuses each flipped bit.

    Parameters
    ----------
    snapshot : Snapshot
    read : callable
        Returns the bytes of a part that is stored, not inline.

    Returns
    -------
    Verdict
        Problems name the part, or the manifest, and the bit that reading accepted.

    Raises
    ------
    ValueError
        if the snapshot is not small.
    """
    pieces = list(_pieces(snapshot, read))
    size = sum(len(whole) for _, whole, _ in pieces)
    if size > _TRIED_BYTES_MAX:
        raise ValueError(f"{snapshot}: {size} bytes, and every bit is tried of {_TRIED_BYTES_MAX} at most")
    problems = [
        f"{named(snapshot)}: {name}: offset {bit // 8}: nobody noticed that bit {bit % 8} was flipped"
        for name, whole, decode in pieces
        for bit in range(8 * len(whole))
        if not _is_noticed(whole, bit, decode)
    ]
    fine = f"{named(snapshot)}: each of {8 * size} flipped bits was noticed"
    return verdict_of("integrity", problems, fine)


#: name of a piece, its bytes, and the function that decodes the bytes
_Piece = tuple[str, bytes, Callable[[bytes], object]]


def _pieces(snapshot: Snapshot, read: Callable[[Handle], Buffer]) -> Iterator[_Piece]:
    yield "the manifest", _manifest_bytes(snapshot), lambda data: decode_manifest(data, "the manifest")
    for record in snapshot.manifest.records:
        for handle in record.all_handles:
            whole = handle.inline if handle.path is None else read(handle)
            yield handle.name, bytes(whole or b""), _decoder(handle)


def _decoder(handle: Handle) -> Callable[[bytes], object]:
    return lambda data: decode_part(handle, data)


def _is_noticed(whole: bytes, bit: int, decode: Callable[[bytes], object]) -> bool:
    flipped = bytearray(whole)
    flipped[bit // 8] ^= 1 << bit % 8
    try:
        decode(bytes(flipped))
    except SnapshotCorrupt:
        return True
    return False


def _manifest_bytes(snapshot: Snapshot) -> bytes:
    return b"".join(encode_manifest(snapshot.manifest))
