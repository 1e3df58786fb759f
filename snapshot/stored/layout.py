"""The tree below a backend's root.

Owns every path and how names become paths; must not know what the files hold.

::

    <run>/claims/00000007                       Claim 7, write-once (PROTOCOL 7)
    <run>/bases/00000007                        Base of claim 7, write-once
    <run>/snapshots/0000000007000042.manifest   written last, once; or an aborted record in its place
    <run>/parts/00000007/0000000007000042-count-1-<digest>
          incarnation ┘  snapshot ┘       │       └ of run and subtask
                                          └ for people: the subtask, or the first of several, shortened
    <run>/input/…                               log of a DataFrame's rows; not of this package

Numbers are padded so that the order of names is that of numbers. A snapshot is one file, so that no folder
is left behind when it is deleted; ids are never reused.

A run's name becomes one folder: bytes other than ``A-Z a-z 0-9 _ -``, and dots except between those, are
written ``%xx``. A name of which this takes too many bytes is split over nested folders, all but the last
ending in ``+``. Every name has one path, and no two names share one.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import xxhash

from snapshot.stored.part import Handle

#: Bytes of one encoded name's segment. File systems take 255; some need room for suffixes of their own.
SEGMENT_BYTES_MAX = 200

#: folder of a run's input log, which belongs to the readers of DataFrames
INPUT_FOLDER = "input/"

#: Letters of a node's name in a part's name: enough to tell parts apart when looking at a folder.
_SLUG_LETTERS_MAX = 40

_CLAIM = re.compile(r"claims/(\d{8,})")
_BASE = re.compile(r"bases/(\d{8,})")
_MANIFEST = re.compile(r"snapshots/(\d{16,})\.manifest")
_PART = re.compile(r"parts/(\d{8,})/(\d{16,})-\w+-.*")


class PartPath(NamedTuple):
    """Numbers in the path of a file of parts."""

    incarnation: int
    snapshot_id: int


def claim_path(number: int) -> str:
    """Return the path of claim `number`, below the run's folder."""
    return f"claims/{number:08}"


def base_path(claim: int) -> str:
    """Return the path of the base of `claim`."""
    return f"bases/{claim:08}"


def manifest_path(snapshot_id: int) -> str:
    """Return the path of the manifest of `snapshot_id`, or of the aborted record in its place."""
    return f"snapshots/{snapshot_id:016}.manifest"


def parts_path(handle: Handle) -> str:
    """The file of parts of which that of `handle` is the first; no other file has it."""
    slug = re.sub(r"[^A-Za-z0-9_]", "_", handle.subtask.node)[:_SLUG_LETTERS_MAX]
    who = f"{slug}-{handle.subtask.index}-{_digest(handle)}"
    return f"parts/{handle.incarnation:08}/{handle.snapshot_id:016}-{who}"


def claim_number(path: str) -> int | None:
    """The inverse of `claim_path`; None for any other path."""
    return _number(_CLAIM, path)


def base_claim(path: str) -> int | None:
    """The inverse of `base_path`; None for any other path."""
    return _number(_BASE, path)


def manifest_id(path: str) -> int | None:
    """The inverse of `manifest_path`; None for any other path."""
    return _number(_MANIFEST, path)


def part_origin(path: str) -> PartPath | None:
    """Parse the path of a file of parts; None for any other path."""
    match = _PART.fullmatch(path)
    return PartPath(int(match[1]), int(match[2])) if match else None


def run_folder(name: str) -> str:
    """The folder of the run `name`; its segments are separated by ``/``.

    Raises
    ------
    ValueError
        if the name is empty or no Unicode text.
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
    """The run's name and the path below its folder; None if `path` is below no run's folder."""
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


def _digest(handle: Handle) -> str:
    # As the subtask's repr was when format 1 began: a part's path follows from this text, whatever the class is called.
    origin = f"({handle.run!r}, Subtask(node={handle.subtask.node!r}, index={handle.subtask.index!r}))"
    return xxhash.xxh3_128_hexdigest(origin.encode("utf-8", "backslashreplace"))


def _number(pattern: re.Pattern[str], path: str) -> int | None:
    match = pattern.fullmatch(path)
    return int(match[1]) if match else None
