"""Tasks on rows, performed over a real store in memory: what is stored is what was captured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cutline.snapshot.channel.partitioning import groups_of
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.ids import Subtask
from cutline.snapshot.keyed.decoding import rows_of
from cutline.snapshot.keyed.kinds import StateKind
from cutline.snapshot.keyed.migration import MigratedRows
from cutline.snapshot.keyed.row_spool import KeptRows, MemorySpool, RowSpool
from cutline.snapshot.keyed.rows import CapturedRows, DirtyTable, StateSpec
from cutline.snapshot.stored.keyed_state import keyed_state, read_segments
from cutline.snapshot.stored.list_rules import ListEntry
from cutline.snapshot.stored.memory_files import MemoryFiles
from cutline.snapshot.stored.part import PartKind
from cutline.snapshot.stored.run_store import RunStore
from cutline.snapshot.worker import storage_tasks
from cutline.snapshot.worker.generations import CompactRows, EncodeRows, MergeRows, StoreRows
from cutline.snapshot.worker.ledger import TaskFailed
from cutline.snapshot.worker.storage_tasks import StorageWork
from cutline.state_backends import row_spool
from cutline.state_backends.row_spool import FileSpool

SUBTASK = Subtask("count", 1)
SPEC = StateSpec("n", StateKind.VALUE)


class Place:
    """A store, and the work on it."""

    def __init__(self, inline_bytes_max: int = 0, spool: RowSpool | None = None) -> None:
        self.files = MemoryFiles({})
        self.store = RunStore(self.files, "run")
        self.inline_bytes_max = inline_bytes_max
        self.pauses = 0
        self.work = StorageWork(
            "run", 7, Codec(), lambda parts, inline: self.store.put_rows(parts, inline=inline),
            self.store.read_part, self.pause, spool or MemorySpool(),
        )  # fmt: skip

    def pause(self, seconds: float) -> None:
        self.pauses += 1

    def encoded(self, generation: int, rows: dict[Any, Any], parallelism: int = 1) -> KeptRows | TaskFailed:
        """The rows of a capture, encoded."""
        captured = CapturedRows(float(generation), groups_of(0, parallelism), (DirtyTable(SPEC, rows),))
        return self.work.encode(EncodeRows(SUBTASK, generation, captured))

    def stored(self, first: int, last: int, *captures: dict[Any, Any]) -> tuple[ListEntry, ...]:
        """Captures, merged and stored as one segment."""
        found = [self.encoded(first + number, rows) for number, rows in enumerate(captures)]
        segments = tuple(each for each in found if not isinstance(each, TaskFailed))
        rows: Any = segments[0]
        if len(segments) > 1:
            rows = self.work.perform(MergeRows(SUBTASK, first, last, segments))
        task = StoreRows(SUBTASK, PartKind.ROWS, first, last, 100 + last, rows, self.inline_bytes_max)
        return self.work.store(task)

    def compacted(self, *sources: tuple[ListEntry, ...], is_whole: bool = True) -> tuple[ListEntry, ...]:
        """Stored segments, merged and stored again."""
        return self.work.store(CompactRows(SUBTASK, 0, 9, 109, sources, is_whole, self.inline_bytes_max))

    def state(self, *segments: tuple[ListEntry, ...]) -> dict[Any, Any]:
        """What a list holds."""
        entries = [entry for segment in segments for entry in segment]
        return keyed_state([entries], "n", self.store.read_part, Codec())


def test_rows_on_the_local_disk_are_stored_as_those_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Merged, stored and compacted in many small files: few stored pieces, the same rows, and no file is left."""
    monkeypatch.setattr(row_spool, "MEMORY_BYTES_MAX", 0)
    monkeypatch.setattr(row_spool, "_FILE_BYTES_MAX", 2_000)
    spool = FileSpool(tmp_path, "1-waiting")
    place, other = Place(spool=spool), Place()
    captures: list[dict[Any, Any]] = [{key: key + n for key in range(n, 400, n)} for n in range(1, 6)]
    captures[3] |= {key: None for key in range(0, 400, 7)}
    found = []
    for each in (place, other):
        stored = [each.stored(1, 3, *map(dict, captures[:3])), each.stored(4, 5, *map(dict, captures[3:]))]
        assert [len(entries) for entries in stored] == [1, 1]
        found.append((each.state(*stored), each.state(each.compacted(*stored))))
    assert found[0] == found[1] and found[0][0] == found[0][1] != {}
    assert not [*tmp_path.rglob("*.rows")]
    spool.close()


def test_rows_on_the_local_disk_are_merged_in_ranges(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as a piece has are in memory at a time, and another thread may run between two ranges."""
    monkeypatch.setattr(row_spool, "MEMORY_BYTES_MAX", 0)
    monkeypatch.setattr(storage_tasks, "_SPOOLED_RANGE_BYTES_MAX", 2_000)
    spool = FileSpool(tmp_path, "1-waiting")
    place = Place(spool=spool)
    captures = [place.encoded(number, dict.fromkeys(range(400), number)) for number in (1, 2)]
    segments = tuple(each for each in captures if not isinstance(each, TaskFailed))
    bytes_ = sum(ref.size for rows in segments for ref in rows)
    place.pauses = 0
    merged: Any = place.work.perform(MergeRows(SUBTASK, 1, 2, segments))
    assert len(merged) == place.pauses >= bytes_ // 2_000 > 3
    spool.close()


@pytest.mark.parametrize("inline_bytes_max", [0, 1 << 20])
def test_the_newest_row_counts_in_a_list_and_after_a_compaction(inline_bytes_max: int) -> None:
    """Merged before it was stored, or stored and compacted, inline or in files: the rows are the same."""
    place = Place(inline_bytes_max)
    one = place.stored(1, 2, {"a": 1, "b": 2, "c": 3}, {"b": 20, "c": None})
    two = place.stored(3, 3, {"d": 4, "a": None})
    assert place.state(one, two) == {"b": 20, "d": 4}
    base = place.compacted(one, two)
    assert place.state(base) == {"b": 20, "d": 4}
    assert [(entry.handle.first, entry.handle.last) for entry in (*one, *two, *base)] == [(1, 2), (3, 3), (0, 9)]
    assert len(place.files.files()) == (0 if inline_bytes_max else 3)
    assert [entry.handle.inline is not None for entry in base] == [bool(inline_bytes_max)]


def test_a_base_without_rows_is_a_piece() -> None:
    """When all rows are gone, a list that listed nothing would look as if it had lost its generations."""
    place = Place()
    one, two = place.stored(1, 1, {"a": 1, "b": 2}), place.stored(2, 2, {"a": None, "b": None})
    base = place.compacted(one, two)
    assert [(entry.handle.first, entry.handle.last, entry.lo) for entry in base] == [(0, 9, one[0].lo)]
    (segment,) = read_segments(base, place.store.read_part)
    assert segment.rows.num_rows == 0 and [spec.name for spec in segment.states] == ["n"]
    assert list(rows_of(segment, "n")) == [] and place.state(base) == {}
    three = place.stored(3, 3, {"a": 5})
    assert place.state(base, three) == {"a": 5}


def test_tombstones_stay_where_an_older_row_may_be() -> None:
    """A merge that does not reach back to the begin of the list must hide what lies before it."""
    place = Place()
    one, two, three = place.stored(1, 1, {"a": 1}), place.stored(2, 2, {"a": None}), place.stored(3, 3, {"b": 3})
    assert place.state(one, place.compacted(two, three, is_whole=False)) == {"b": 3}


def test_a_clip_hides_the_other_rows_of_a_piece() -> None:
    """A reader takes only the key groups that its list names."""
    place = Place()
    (entry,) = place.stored(1, 1, {number: number for number in range(100)})
    half = ListEntry(entry.handle, entry.lo, 16_384)
    assert 0 < len(place.state((half,))) < 100
    assert place.state((half,), (ListEntry(entry.handle, 16_384, entry.hi),)) == {n: n for n in range(100)}


def test_a_key_of_another_subtask_is_refused_by_name() -> None:
    """Its row would be restored where its messages do not come."""
    refused = Place().encoded(1, {number: number for number in range(100)}, parallelism=2)
    assert isinstance(refused, TaskFailed)
    assert refused.reason.startswith("count[1]: ") and "'n'" in refused.reason and "key" in refused.reason


def test_long_work_pauses() -> None:
    """Another thread may run between chunks of rows."""
    place = Place()
    place.encoded(1, {number: number for number in range(5_000)})
    assert place.pauses >= 5


def test_migrated_rows_are_stored_without_being_encoded_again() -> None:
    """All rows as a base. Without any row the base is an empty piece, because it replaces a list."""
    place, groups = Place(), groups_of(1, 2)
    (segment,) = read_segments(place.stored(1, 1, {"a": 1, "b": 2}), place.store.read_part)
    for rows, spans in ((segment.rows, 2), (segment.rows[:0], 0)):
        task = EncodeRows(SUBTASK, 0, MigratedRows(groups, replace(segment, rows=rows)))
        kept = place.work.encode(task)
        assert not isinstance(kept, TaskFailed)
        (entry,) = place.work.store(StoreRows(SUBTASK, PartKind.ROWS, 0, 0, 9, kept, 0))
        assert (entry.handle.first, entry.handle.last, entry.handle.rows) == (0, 0, spans)
        if not spans:
            assert (entry.lo, entry.hi) == (groups.start, groups.stop)
