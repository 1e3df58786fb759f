"""Tree of files below a backend's root.

Owns every path, and the encoding of names in paths. Must not know the contents of files.

::

    <run>/claims/00000007                       Claim 7, write-once (PROTOCOL 7)
    <run>/bases/00000007                        Base of claim 7, write-once
    <run>/checkpoints/00000007                  copies of claims and bases, written by the holder of claim 7
    <run>/snapshots/0000000007000042.manifest   written last, once; or an aborted record in its place
    <run>/pins/0000000007000042-0001            entry 1 of the log of who holds or removes the snapshot, write-once
    <run>/parts/00000007/0000000007000042-count-1-<digest>
          incarnation ┘  snapshot ┘       │       └ of run and subtask
                                          └ for human readers: the subtask, or the first of several, shortened
    <run>/parts/00000007/0000000007000042-rows-count-1-<digest>
          a part of a list alone, because each part of a list ends at its own time; digest of the content
    <run>/records/00000007/0000000007500003-count-1-<digest>
          record of a subtask alone, write-once; incarnation, number, and digest of run and subtask
    <run>/input/…                               log of a DataFrame's rows; not of this package

Numbers are padded, so that the order of names is the order of numbers. A snapshot is one file, so that deleting it
leaves no folder behind. Ids are never reused.

The name of a run becomes one folder. Bytes other than ``A-Z a-z 0-9 _ -``, and dots at the begin or the end, are
written ``%xx``. A name that becomes too long is split over nested folders, and all but the last end in ``+``. Every
name has one path, and no two names share a path.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

import xxhash

from cutline.snapshot.stored.part import Handle

#: Most bytes of one segment of an encoded name. File systems allow 255, and some need room for suffixes of their own.
SEGMENT_BYTES_MAX = 200

#: Folder of a run's input log, which belongs to the reader of DataFrames.
INPUT_FOLDER = "input/"

#: Folder of the logs of pins.
PINS_FOLDER = "pins"

#: Most letters of a node's name in a part's name: enough to distinguish parts when reading a folder.
_SLUG_LETTERS_MAX = 40

_CLAIM = re.compile(r"claims/(\d{8,})")
_BASE = re.compile(r"bases/(\d{8,})")
_CHECKPOINT = re.compile(r"checkpoints/(\d{8,})")
_MANIFEST = re.compile(r"snapshots/(\d{16,})\.manifest")
_PIN = re.compile(r"pins/(\d{16,})-(\d{4,})")
_RECORD = re.compile(r"records/(\d{8,})/(\d{16,})-(\w+-.*)")
_PART = re.compile(r"parts/(\d{8,})/(\d{16,})-\w+-.*")


class PartPath(NamedTuple):
    """Numbers in the path of a file of parts."""

    incarnation: int
    snapshot_id: int


class RecordPath(NamedTuple):
    """Numbers in the path of a record, and the rest of its name, which every record of a subtask has."""

    incarnation: int
    number: int
    subtask: str


def claim_path(number: int) -> str:
    """Return the path of claim `number`, below the run's folder."""
    return f"claims/{number:08}"


def base_path(claim: int) -> str:
    """Return the path of the base of `claim`."""
    return f"bases/{claim:08}"


def checkpoint_path(claim: int) -> str:
    """Return the path of the checkpoint that the holder of `claim` writes."""
    return f"checkpoints/{claim:08}"


def manifest_path(snapshot_id: int) -> str:
    """Return the path of the manifest of `snapshot_id`, or of the aborted record in its place."""
    return f"snapshots/{snapshot_id:016}.manifest"


def pin_path(snapshot_id: int, number: int) -> str:
    """Return the path of entry `number` of the pin log of `snapshot_id`."""
    return f"{PINS_FOLDER}/{snapshot_id:016}-{number:04}"


def parts_path(handle: Handle) -> str:
    """Return the path of the file of parts that begins with the part of `handle`. No other file has this path."""
    return f"{_made_for(handle)}-{_slug(handle)}-{_digest(handle)}"


def rows_path(handle: Handle) -> str:
    """Return the path of the file that holds only the ROWS or OWN part of `handle`.

    The name has the checksum of the part, so that storing a part again is harmless. The incarnation is in the path,
    because a part that a lower incarnation left would else be found as present, and then be removed as an orphan.
    """
    return f"{_made_for(handle)}-{handle.kind.name.lower()}-{_slug(handle)}-{handle.checksum.hex()}"


def record_path(state: Handle) -> str:
    """Return the path of the record whose state part has this handle."""
    return f"records/{state.incarnation:08}/{state.snapshot_id:016}-{_slug(state)}-{_digest(state)}"


def claim_number(path: str) -> int | None:
    """Return the number in a path of `claim_path`, or None for any other path."""
    return _number(_CLAIM, path)


def base_claim(path: str) -> int | None:
    """Return the claim in a path of `base_path`, or None for any other path."""
    return _number(_BASE, path)


def checkpoint_claim(path: str) -> int | None:
    """Return the claim in a path of `checkpoint_path`, or None for any other path."""
    return _number(_CHECKPOINT, path)


def manifest_id(path: str) -> int | None:
    """Return the snapshot id in a path of `manifest_path`, or None for any other path."""
    return _number(_MANIFEST, path)


def pin_entry(path: str) -> tuple[int, int] | None:
    """Return the snapshot id and the number in a path of `pin_path`, or None for any other path."""
    match = _PIN.fullmatch(path)
    return (int(match[1]), int(match[2])) if match else None


def part_origin(path: str) -> PartPath | None:
    """Return the numbers in the path of a file of parts, or None for any other path."""
    match = _PART.fullmatch(path)
    return PartPath(int(match[1]), int(match[2])) if match else None


def record_origin(path: str) -> RecordPath | None:
    """Return what the path of a record says, or None for any other path."""
    match = _RECORD.fullmatch(path)
    return RecordPath(int(match[1]), int(match[2]), match[3]) if match else None


@lru_cache(maxsize=1024)  # asked for at each access to the store
def run_folder(name: str) -> str:
    """Return the folder of the run `name`, with segments separated by ``/``.

    Raises
    ------
    ValueError
        if the name is empty or is no Unicode text.
    """
    if not name:
        raise ValueError("a run's name is empty")
    try:
        encoded = "".join(_encode_byte(byte) for byte in name.encode())
    except UnicodeEncodeError as error:
        raise ValueError(f"the run's name {name!r} is no Unicode text") from error
    encoded = re.sub(r"^\.|\.$", "%2e", encoded)
    segments = [encoded[at : at + SEGMENT_BYTES_MAX] for at in range(0, len(encoded), SEGMENT_BYTES_MAX)]
    return "+/".join(segments)


def split_run(path: str) -> tuple[str, str] | None:
    """Return the run's name and the path below its folder. None if `path` is below no run's folder."""
    segments = path.split("/")
    end = next((at for at, segment in enumerate(segments) if not segment.endswith("+")), len(segments))
    encoded = "".join(segment.removesuffix("+") for segment in segments[: end + 1])
    try:
        name = re.sub(rb"%([0-9a-fA-F]{2})", lambda found: bytes([int(found[1], 16)]), encoded.encode()).decode()
    except UnicodeDecodeError:
        return None
    folder, rest = "/".join(segments[: end + 1]), "/".join(segments[end + 1 :])
    return (name, rest) if rest and name and run_folder(name) == folder else None


def _encode_byte(byte: int) -> str:
    letter = chr(byte)
    return letter if letter.isascii() and (letter.isalnum() or letter in "_-.") else f"%{byte:02x}"


def _made_for(handle: Handle) -> str:
    return f"parts/{handle.incarnation:08}/{handle.snapshot_id:016}"


def _slug(handle: Handle) -> str:
    """Return the subtask of a part for human readers, shortened."""
    return f"{re.sub(r'[^A-Za-z0-9_]', '_', handle.subtask.node)[:_SLUG_LETTERS_MAX]}-{handle.subtask.index}"


def _digest(handle: Handle) -> str:
    # A part's path depends on this text, so the text never changes.
    origin = f"({handle.run!r}, Subtask(node={handle.subtask.node!r}, index={handle.subtask.index!r}))"
    return xxhash.xxh3_128_hexdigest(origin.encode("utf-8", "backslashreplace"))


def _number(pattern: re.Pattern[str], path: str) -> int | None:
    match = pattern.fullmatch(path)
    return int(match[1]) if match else None
