"""Rows that wait on the local disk: read back as they were, and gone when they are stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.keyed.decoding import rows_of
from cutline.snapshot.keyed.kinds import StateKind
from cutline.snapshot.keyed.merging import merging_rows
from cutline.snapshot.keyed.rows import CapturedRows, DirtyTable, StateSpec
from cutline.snapshot.keyed.segment import Segment
from cutline.snapshot.plan.topology import KEY_GROUPS
from cutline.state_backends import row_spool
from cutline.state_backends.row_spool import MEMORY_BYTES_MAX, FileSpool
from tests.snapshot.keyed.keyed_subtask import encoded

SPEC = StateSpec("v", StateKind.VALUE)


def segment_of(rows: dict[int, bytes | None]) -> Segment:
    """Rows of one capture."""
    values = {key: None if value is None else Codec().encode(value) for key, value in rows.items()}
    return encoded(CapturedRows(1.0, range(KEY_GROUPS), (DirtyTable(SPEC, values),)))


def rows_in(*segments: Segment) -> dict[int, bytes | None]:
    """Rows of segments, the newest of each key."""
    return {
        key: None if value is None else Codec().decode(value)
        for segment in segments
        for keys, _, values, _ in rows_of(segment, "v")
        for key, value in zip(keys, values, strict=True)
    }


def files(folder: Path) -> list[Path]:
    """Files of rows below a folder."""
    return sorted(folder.rglob("*.rows"))


def test_many_rows_wait_in_files_and_few_in_memory(tmp_path: Path) -> None:
    """Both are read as they were. A file is no larger than a merge wants it, and goes when its rows are stored."""
    spool = FileSpool(tmp_path, "1-waiting")
    few: dict[int, bytes | None] = {1: b"one"}
    many: dict[int, bytes | None] = {number: bytes([number % 256]) * 1000 for number in range(5_000)}
    kept_few = spool.keep(segment_of(few))
    assert not tmp_path.joinpath("owners").exists(), "a folder was made for rows that fit memory"
    kept_many = spool.keep(segment_of(many))
    assert len(files(tmp_path)) == len(kept_many) > 2
    assert sum(path.stat().st_size for path in files(tmp_path)) > MEMORY_BYTES_MAX
    assert max(path.stat().st_size for path in files(tmp_path)) <= row_spool._FILE_BYTES_MAX
    assert rows_in(*map(spool.read, kept_few)) == few
    assert rows_in(*map(spool.read, kept_many)) == many
    spool.discard(kept_few)
    spool.discard(kept_many)
    assert files(tmp_path) == []
    spool.close()


def test_files_are_merged_with_rows_in_memory(tmp_path: Path) -> None:
    """The newest row of a key counts, wherever it waits, and a tombstone stays."""
    spool = FileSpool(tmp_path, "1-waiting")
    many: dict[int, bytes | None] = {number: bytes(1000) for number in range(5_000)}
    newer: dict[int, bytes | None] = {7: b"newer", 8: None}
    sources = [spool.keep(segment_of(many)), spool.keep(segment_of(newer))]
    found = rows_in(*merging_rows(sources, spool.read, is_whole=False, range_bytes_max=1_000_000))
    assert found == many | newer
    spool.close()


def test_a_closed_spool_leaves_nothing_and_keeps_nothing(tmp_path: Path) -> None:
    """An incarnation that has ended fills no disk, also where one of its threads still works."""
    spool = FileSpool(tmp_path, "1-waiting")
    many: dict[int, bytes | None] = {number: bytes(1000) for number in range(5_000)}
    spool.keep(segment_of(many))
    spool.close()
    spool.close()
    assert files(tmp_path) == []
    with pytest.raises(OSError, match="1-waiting"):
        spool.keep(segment_of(many))
