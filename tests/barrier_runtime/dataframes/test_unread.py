"""What partitions have still to read of a log. The framework's part, dividing offsets by name, is played by hand."""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutline.barrier_runtime.dataframes.input_log import InputLog, LogFile, LogPlace
from cutline.barrier_runtime.dataframes.unread import PARTITIONS, BatchReader, Unread, share
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.coordinator.partition_assignment import assign_afresh
from cutline.snapshot.errors import SnapshotCorrupt
from tests.barrier_runtime.dataframes.test_input_log import ids_of, make_log

Offsets = dict[str, Unread | None]

#: as small as row groups can be, and larger than a batch
shapes = st.lists(st.lists(st.sampled_from([0, 1, 3, 8192, 8193, 20000]), max_size=4), max_size=4)


def log_of(shape: Sequence[int]) -> InputLog:
    """A log of files of so many row groups, which is not on any disk."""
    files = tuple(LogFile(f"part-{number:05}.parquet", 1, (1,) * count) for number, count in enumerate(shape))
    return InputLog(LogPlace("/", "log"), "log", pa.schema([("id", pa.int64())]), files)


def stored(offsets: Offsets) -> bytes:
    return Codec(safe=True).encode({name: None if each is None else each.as_offset() for name, each in offsets.items()})


def restored(log: InputLog, state: bytes) -> Offsets:
    offsets = Codec(safe=True).decode(state)
    return {name: None if each is None else Unread.of_offset(log, each) for name, each in offsets.items()}


def read(offsets: Offsets, batches: int | None = None) -> list[int]:
    """Read so many batches, or all, partition after partition, and keep the offsets."""
    found: list[pa.RecordBatch] = []
    for name, unread in offsets.items():
        for rest, batch in () if unread is None else unread.read():
            if len(found) == batches:
                return ids_of(found)
            offsets[name] = rest
            found.append(batch)
        if len(found) != batches:
            offsets[name] = None
    return ids_of(found)


def redistributed(subtasks: Sequence[Offsets], parallelism: int) -> list[Offsets]:
    """Unite the offsets of all subtasks, and deal them to others."""
    united = {name: offset for offsets in subtasks for name, offset in offsets.items()}
    assert len(united) == sum(map(len, subtasks))
    return [{name: united[name] for name in names} for names in assign_afresh(united, parallelism)]


def numbers(offsets: Mapping[str, Unread | None]) -> list[int]:
    return [number for unread in offsets.values() if unread is not None for number in unread.row_groups]


@given(
    shape=shapes,
    names=st.integers(1, 5),
    parallelisms=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    data=st.data(),
)
def test_rows_are_read_once_at_any_parallelism(
    shape: list[list[int]], names: int, parallelisms: list[int], data: st.DataObject
) -> None:
    """Cut a run anywhere and go on with any other parallelism, several times: each row is read exactly once."""
    with tempfile.TemporaryDirectory() as root:
        log, groups = make_log(root, shape)
        first = min(parallelisms[0], names)
        subtasks = [share(log, each, at, first) for at, each in enumerate(assign_afresh(PARTITIONS[:names], first))]
        kept: list[int] = []
        for parallelism in parallelisms[1:]:
            for offsets in subtasks:
                kept += read(offsets, data.draw(st.integers(0, 4), label="batches before the snapshot"))
            states = [stored(offsets) for offsets in subtasks]
            for offsets in subtasks:
                read(offsets, data.draw(st.integers(0, 2), label="batches that are lost"))
            subtasks = redistributed([restored(log, state) for state in states], parallelism)
        for offsets in subtasks:
            kept += read(offsets)
        assert Counter(kept) == Counter(itertools.chain(*groups.values()))
        assert all(unread is None for offsets in subtasks for unread in offsets.values())


@given(shape=st.lists(st.integers(0, 300), max_size=10), parallelism=st.integers(1, len(PARTITIONS)))
def test_a_fresh_share_is_as_even_as_row_groups_allow(shape: list[int], parallelism: int) -> None:
    """Subtasks take turns at row groups, each subtask in the order of the log, at any parallelism."""
    log = log_of(shape)
    for index in range(parallelism):
        mine = share(log, assign_afresh(PARTITIONS, parallelism)[index], index, parallelism)
        assert numbers(mine) == list(range(index, sum(shape), parallelism))


@pytest.mark.parametrize("before", [1, 3, 4, 16])
@pytest.mark.parametrize("after", [1, 2, 6, 15, 32])
@pytest.mark.parametrize("row_groups", [64, 480, 3000])
def test_a_rescaled_share_is_even(before: int, after: int, row_groups: int) -> None:
    """What half-way is unread is divided evenly: the parts are one row group, or a 480th of all."""
    log = log_of([row_groups])
    subtasks = [share(log, names, at, before) for at, names in enumerate(assign_afresh(PARTITIONS, before))]
    for offsets in subtasks:
        some = [name for name, unread in offsets.items() if unread is not None]
        offsets.update(dict.fromkeys(some[: len(some) // 2]))
    counts = [len(numbers(offsets)) for offsets in redistributed(subtasks, after)]
    part = -(-row_groups // len(PARTITIONS))
    assert max(counts) - min(counts) <= 3 * part
    assert sum(counts) > 0


def test_an_offset_stays_small() -> None:
    """A partition without rows has no offset, so a small log has a small state; a large one has 480 offsets."""
    sizes = [len(stored(share(log_of([count]), PARTITIONS, 0, 1))) for count in (1, 480, 100_000)]
    assert sizes[0] < 3_000
    assert sizes[1] < 40_000
    assert sizes[2] < 40_000


def test_names_are_sorted_and_few() -> None:
    """The framework sorts them as text, and each manifest holds them."""
    assert list(PARTITIONS) == sorted(set(PARTITIONS))
    assert len(PARTITIONS) == 480


def slices_of(reader: BatchReader, start: Unread) -> list[tuple[Unread, Unread, list[int]]]:
    """The slices from `start` to the end, each with its rows."""
    found = []
    while (batch := reader.next_batch(start)) is not None:
        found.append((start, batch[0], ids_of(list(reader.slice(start, batch[0])))))
        start = batch[0]
    return found


@given(shape=shapes, data=st.data())
def test_a_slice_has_the_same_rows_at_each_read(shape: list[list[int]], data: st.DataObject) -> None:
    """In any order of reads, by one reader, also where Arrow would cut other batches."""
    with tempfile.TemporaryDirectory() as root, pytest.MonkeyPatch.context() as patch:
        log, groups = make_log(root, shape)
        whole = Unread(log, range(len(log.row_groups)))
        slices = slices_of(BatchReader(), whole)
        assert [row for *_, rows in slices for row in rows] == list(itertools.chain(*groups.values()))
        rows_max = data.draw(st.sampled_from([1000, 8192, 10_000]), label="rows of a batch")
        patch.setattr("cutline.barrier_runtime.dataframes.input_log.BATCH_ROWS_MAX", rows_max)
        reader = BatchReader()
        for start, stop, rows in data.draw(st.permutations(slices), label="order"):
            assert ids_of(list(reader.slice(start, stop))) == rows
        assert [ids_of(list(reader.slice(start, stop))) for start, stop, _ in slices] == [rows for *_, rows in slices]


def test_adjacent_slices_are_decoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row group is opened once, and one that was read to its end is not opened again."""
    log, _ = make_log(str(tmp_path), [[20_000, 9_000]])
    opened: list[tuple[tuple[int, int], int]] = []
    read = InputLog.read

    def counted(self: InputLog, row_group: tuple[int, int], first_row: int = 0) -> Any:
        opened.append((row_group, first_row))
        return read(self, row_group, first_row)

    monkeypatch.setattr(InputLog, "read", counted)
    slices = slices_of(BatchReader(), Unread(log, range(2)))
    assert len(slices) == 5 and opened == [((0, 0), 0), ((0, 1), 0)]
    assert BatchReader().next_batch(slices[-1][1]) is None
    assert len(opened) == 2


def test_a_slice_beyond_the_log_is_damage(tmp_path: Path) -> None:
    """Rows that a replay needs are not left out in silence."""
    log, _ = make_log(str(tmp_path), [[30]])
    start = Unread(log, range(1))
    with pytest.raises(SnapshotCorrupt, match=r"input log has no row 31 at range\(0, 1\)"):
        list(BatchReader().slice(start, Unread(log, range(1), 31)))
