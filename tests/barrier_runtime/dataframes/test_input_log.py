"""The input log, read by offset. Its files are written by hand, so that row groups can have any shape."""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgpack
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline.barrier_runtime.dataframes import log_writing
from cutline.barrier_runtime.dataframes.input_log import (
    BATCH_BYTES_MAX,
    BATCH_ROWS_MAX,
    INPUT_LOG_MAGIC,
    InputLog,
    LogFile,
    find_log,
    place_of,
)
from cutline.snapshot.errors import CutlineError, GraphError, SnapshotCorrupt
from cutline.snapshot.stored.envelope import seal

SCHEMA = pa.schema([("id", pa.int64())])


def read_all(log: InputLog) -> list[pa.RecordBatch]:
    return [batch for row_group in log.row_groups for _, batch in log.read(row_group)]


def make_log(root: str, shape: list[list[int]]) -> tuple[InputLog, dict[tuple[int, int], list[int]]]:
    """A log of files of row groups of so many rows, and the ids in each row group."""
    ids = itertools.count()
    place = place_of(root, "run", "node")
    os.makedirs(f"{place}/log")
    groups: dict[tuple[int, int], list[int]] = {}
    files = []
    for file, row_counts in enumerate(shape):
        name = f"part-{file:05}.parquet"
        with pq.ParquetWriter(f"{place}/log/{name}", SCHEMA, write_page_checksum=True) as writer:
            for group, rows in enumerate(row_counts):
                groups[file, group] = list(itertools.islice(ids, rows))
                writer.write_table(pa.table({"id": groups[file, group]}, schema=SCHEMA))
        files.append(LogFile(name, os.path.getsize(f"{place}/log/{name}"), tuple(row_counts)))
    return InputLog(place, "log", SCHEMA, tuple(files)), groups


def ids_of(batches: list[pa.RecordBatch]) -> list[int]:
    return [each for batch in batches for each in batch["id"].to_pylist()]


@given(row=st.integers(0, 20000))
def test_an_offset_may_be_any_row(log_of_one_group: InputLog, row: int) -> None:
    """Batches may end elsewhere when the same rows are read again."""
    rest = list(log_of_one_group.read((0, 0), row))
    assert ids_of([batch for _, batch in rest]) == list(range(row, 20000))
    assert [next_row for next_row, _ in rest] == list(itertools.accumulate([b.num_rows for _, b in rest], initial=row))[
        1:
    ]
    assert all(0 < batch.num_rows <= BATCH_ROWS_MAX for _, batch in rest)


@pytest.fixture(scope="module")
def log_of_one_group() -> Iterator[InputLog]:
    with tempfile.TemporaryDirectory() as root:
        yield make_log(root, [[20000]])[0]


def test_wide_rows_come_in_small_batches(tmp_path: Path) -> None:
    """A batch is bounded in bytes, too; one row that is larger than the bound comes alone."""
    rows = ["x" * BATCH_BYTES_MAX * 2, *["y" * (BATCH_BYTES_MAX // 3)] * 10]
    schema = pa.schema([("text", pa.string())])
    place = place_of(str(tmp_path), "run", "node")
    os.makedirs(f"{place}/log")
    pq.write_table(pa.table({"text": rows}, schema=schema), f"{place}/log/a.parquet")
    size = os.path.getsize(f"{place}/log/a.parquet")
    batches = read_all(InputLog(place, "log", schema, (LogFile("a.parquet", size, (11,)),)))
    assert [text for batch in batches for text in batch["text"].to_pylist()] == rows
    assert all(batch.nbytes <= BATCH_BYTES_MAX or batch.num_rows == 1 for batch in batches)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """A file that is gone is damage, not an end."""
    log, _ = make_log(str(tmp_path), [[10], [10]])
    os.unlink(f"{log.place}/log/part-00001.parquet")
    with pytest.raises(SnapshotCorrupt, match=r"part-00001\.parquet of the input log is missing"):
        read_all(log)


def test_another_row_count_is_found(tmp_path: Path) -> None:
    """A file of the right size that holds other rows is refused."""
    log, _ = make_log(str(tmp_path), [[10]])
    wrong = InputLog(log.place, log.name, SCHEMA, (LogFile("part-00000.parquet", log.files[0].size_bytes, (11,)),))
    with pytest.raises(SnapshotCorrupt, match="10 rows instead of 11"):
        read_all(wrong)


def test_a_torn_file_is_found_at_every_length(tmp_path: Path) -> None:
    """No length but the whole one is read."""
    log, _ = make_log(str(tmp_path), [[10]])
    path = f"{log.place}/log/part-00000.parquet"
    data = Path(path).read_bytes()
    for length in range(len(data)):
        Path(path).write_bytes(data[:length])
        with pytest.raises(SnapshotCorrupt, match=f"has {length} bytes instead of {len(data)}"):
            read_all(log)


def test_a_damaged_manifest_is_found(tmp_path: Path) -> None:
    """Every flipped bit of the manifest is found; and it comes back as it was written when none is."""
    log, _ = make_log(str(tmp_path), [[10, 5], [10]])
    record = {"name": log.name, "schema": SCHEMA.serialize().to_pybytes(), "files": log.files}
    data = b"".join(bytes(chunk) for chunk in seal(INPUT_LOG_MAGIC, [msgpack.packb(record)]))
    manifest = Path(f"{log.place}/manifest")
    manifest.write_bytes(data)
    assert find_log(log.place) == log
    for offset in range(len(data)):
        manifest.write_bytes(data[:offset] + bytes([data[offset] ^ 1]) + data[offset + 1 :])
        with pytest.raises(CutlineError):
            find_log(log.place)


def test_rows_that_the_driver_cannot_see_are_missed(tmp_path: Path) -> None:
    """Executors that wrote to disks of their own are noticed: some rows, or all, are not where the driver looks."""
    log, _ = make_log(str(tmp_path), [[10], [10]])
    folder = f"{log.place}/{log.name}"
    log_writing._keep_files(log.files, folder)
    os.unlink(f"{folder}/part-00001.parquet")
    with pytest.raises(GraphError, match=r"wrote 20 rows .* the driver sees 10.*logPath"):
        log_writing._keep_files(log.files, folder)
    with pytest.raises(GraphError, match="sees 0"):
        log_writing._keep_files(log.files, f"{folder}-elsewhere")


@pytest.mark.parametrize("root", ["relative/path", "s3://bucket/prefix", "hdfs://host/path"])
def test_a_root_that_is_no_folder_is_refused(root: str) -> None:
    """Spark and Python must mean the same place."""
    with pytest.raises(GraphError, match="node 'lines'"):
        place_of(root, "run", "lines")
