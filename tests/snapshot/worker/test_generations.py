"""The log of a subtask's generations: what is stored, listed, merged and compacted, under any order of results.

Contents are sets of numbers of captures, so that what a list holds can be compared with what was captured.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, cast

import pytest

from cutline.snapshot.ids import Subtask
from cutline.snapshot.keyed.compaction import SegmentSize
from cutline.snapshot.keyed.migration import MigratedRows
from cutline.snapshot.keyed.rows import CapturedRows
from cutline.snapshot.stored.list_rules import ListEntry
from cutline.snapshot.stored.own_changes import OwnChange
from cutline.snapshot.stored.part import Handle, PartKind
from cutline.snapshot.worker.generations import (
    CompactRows,
    EncodeRows,
    GenerationLog,
    MergeRows,
    StorageTask,
    StoreRows,
)
from cutline.snapshot.worker.ledger import Declined, TaskFailed
from tests.run_size import scaled

SUBTASK = Subtask("count", 1)
GROUPS = (0, 32_768)
INCARNATION = 7


def handle(name: str, first: int, last: int, *, incarnation: int = INCARNATION, run: str = "run") -> Handle:
    """A handle of rows that are not read."""
    at = (PartKind.ROWS, run, incarnation, 1, SUBTASK, None, first, last, 100, b"c" * 16, name, None)
    return Handle(*at, groups=GROUPS, rows=1)


def entry(name: str, first: int, last: int, **origin: Any) -> ListEntry:
    """An entry of a list, with the whole range."""
    return ListEntry(handle(name, first, last, **origin), *GROUPS)


def pairs(sizes: Sequence[SegmentSize], inline_bytes_max: int) -> tuple[int, int] | None:
    """Merge eagerly: of five segments all, of four the two oldest, of three the two newest."""
    if len(sizes) >= 5:
        return (0, len(sizes))
    if len(sizes) == 4:
        return (0, 2)
    return (len(sizes) - 2, len(sizes)) if len(sizes) >= 3 else None


@dataclass
class Host:
    """Performs the tasks of a log in any order, and remembers what each stored file holds."""

    log: GenerationLog
    #: {path: numbers of the captures in it, in order}
    files: dict[str, tuple[int, ...]] = field(default_factory=dict)
    tasks: list[StorageTask] = field(default_factory=list)
    #: {snapshot_id: captures that its list must hold, or None when it was declined}
    due: dict[int, tuple[int, ...] | None] = field(default_factory=dict)
    captures: int = 0
    lists: dict[int, tuple[ListEntry, ...]] = field(default_factory=dict)
    seen: dict[str, None] = field(default_factory=dict)
    #: captures that a migration has made a base of
    migrated: tuple[int, ...] = ()

    def migrate(self) -> None:
        """Begin with a base of all that was restored."""
        self.migrated = tuple(range(1, self.captures + 1))
        self.seen["migrated"] = None
        self.take(self.log.migrated(MigratedRows(range(*GROUPS), cast("Any", None))))

    def take(self, decisions: list[StorageTask | Declined]) -> None:
        for decision in decisions:
            if isinstance(decision, Declined):
                self.due[decision.snapshot_id] = None
            else:
                self.tasks.append(decision)
        storing = [task for task in self.tasks if isinstance(task, MergeRows | StoreRows)]
        assert len(storing) <= 1, "two segments are stored at a time"

    def capture(self, snapshot_id: int, *, changes: bool, is_whole: bool = False) -> None:
        """Cut."""
        if changes:
            self.captures += 1
        self.due[snapshot_id] = tuple(range(1, self.captures + 1))
        if self.log.kind is PartKind.STEPS:
            self.take(self.log.captured_change(snapshot_id, OwnChange(self.captures == 1, (b"%d" % self.captures,))))
            return
        rows = CapturedRows(float(self.captures), range(*GROUPS), ()) if changes else None
        self.take(self.log.captured(snapshot_id, rows))

    def seal(self) -> None:
        """Let changed rows leave memory between two cuts."""
        self.captures += 1
        self.seen["sealed"] = None
        self.take(self.log.sealed(CapturedRows(float(self.captures), range(*GROUPS), ())))

    def perform(self, place: int, *, fails: bool) -> None:
        """End a task, well or not."""
        task = self.tasks.pop(place % len(self.tasks))
        match task:
            case EncodeRows(_, _, rows):
                content = self.migrated if isinstance(rows, MigratedRows) else (int(rows.now),)
                self.take(self.log.done(task, cast("Any", content)))
            case MergeRows() | StoreRows() | CompactRows() if fails:
                self.seen["failed"] = None
                self.take(self.log.done(task, TaskFailed("no space")))
            case MergeRows(segments=segments):
                assert len(segments) > 1
                self.seen["merged"] = None
                rows = cast("Any", tuple(number for numbers in segments for number in cast("Any", numbers)))
                self.take(self.log.done(task, rows))
            case StoreRows(kind=PartKind.STEPS, first=first, last=last, content=content):
                if len(content) > 1:
                    self.seen["several steps in a part"] = None
                self.store(task, [int(bytes(each.body[0])) for each in cast("Any", content)], first, last)
            case StoreRows(first=first, last=last, content=content):
                self.store(task, cast("Any", content), first, last)
            case CompactRows(first=first, last=last, sources=sources):
                self.seen["compacted"] = None
                found = [n for source in sources for each in source for n in self.files[each.handle.path or ""]]
                self.store(task, found, first, last)

    def store(self, task: StoreRows | CompactRows, content: Sequence[int], first: int, last: int) -> None:
        """Store a file that no other has the name of."""
        path = f"{type(task).__name__}-{first}-{last}-{len(self.files)}"
        self.files[path] = tuple(content)
        self.take(self.log.done(task, (entry(path, first, last),)))

    def acknowledge(self) -> None:
        """Take every list that is whole, and check it."""
        for snapshot_id in list(self.due):
            if not self.log.has_cut(snapshot_id):
                continue
            found = self.log.list_of(snapshot_id)
            if found is None:
                continue
            self.lists[snapshot_id] = found
            content = [number for each in found for number in self.files[each.handle.path or ""]]
            assert tuple(content) == self.due[snapshot_id], snapshot_id
            self.check_lineage(found)
            self.log.forget(snapshot_id)

    def check_lineage(self, found: Sequence[ListEntry]) -> None:
        """A restored part, then an own part that abuts."""
        own = [each.handle for each in found if each.handle.incarnation == INCARNATION]
        restored = [each.handle for each in found if each.handle.incarnation != INCARNATION]
        assert [each.handle for each in found] == restored + own
        if own and own[0].first == 0:
            assert not restored
        for before, after in itertools.pairwise(own):
            assert after.first == before.last + 1, "generations do not abut"
        assert not own or own[0].first in (0, 1)

    def check_drops(self) -> None:
        """What a list dropped is in no list of a later cut, or retention would remove it too early."""
        for path in self.files:
            listing = [any(each.handle.path == path for each in self.lists[number]) for number in sorted(self.lists)]
            text = "".join(str(int(each)) for each in listing)
            assert "0" not in text.strip("0"), f"{path}: {text}"


def walk(log_class: type[GenerationLog], seed: int, kind: PartKind = PartKind.ROWS) -> Host:
    """Let captures, results, aborts and acknowledgements happen in a random order, then let the store work again."""
    chance = Random(seed)
    restored, is_fork = chance.randrange(4), chance.random() < 0.3
    is_migrated, needs_base = chance.random() < 0.2 and kind is PartKind.ROWS, chance.random() < 0.2
    origin = {"incarnation": 5, "run": "origin" if is_fork else "run"}
    before = tuple(entry(f"restored-{n}", n, n, **origin) for n in range(1, restored + 1))
    known = () if is_migrated else before
    host = Host(log_class(SUBTASK, "run", known, 1_000, 1, kind, choose=pairs, needs_base=needs_base))
    host.captures = restored
    if is_migrated:
        host.migrate()
    host.files = {f"restored-{n}": (n,) for n in range(1, restored + 1)}
    snapshot_id = 10
    for _ in range(chance.randrange(60)):
        event = chance.random()
        if event < 0.25:
            snapshot_id += 1
            host.capture(snapshot_id, changes=chance.random() < 0.7 or kind is PartKind.STEPS)
        elif event < 0.35 and kind is PartKind.ROWS:
            host.seal()
        elif event < 0.75 and host.tasks:
            host.perform(chance.randrange(6), fails=chance.random() < 0.3)
        elif event < 0.85:
            host.log.discard_below(snapshot_id - chance.randrange(4))
        else:
            host.acknowledge()
    host.log.discard_below(snapshot_id + 1)
    host.capture(snapshot_id + 1, changes=True)
    while host.tasks:
        host.perform(0, fails=False)
        host.acknowledge()
    assert snapshot_id + 1 in host.lists, "the store works again, and the last snapshot has no list"
    host.check_drops()
    assert all(each.handle.run == "run" for found in host.lists.values() for each in found), "files of another run"
    if needs_base or is_migrated:
        listed = [each.handle.incarnation for found in host.lists.values() for each in found]
        assert {*listed} <= {INCARNATION}, "a restored part, though the list begins with a base"
    return host


def test_a_list_holds_every_capture_up_to_its_cut() -> None:
    """Under aborts, failures, merges and compactions in any order: nothing is lost, doubled or out of order."""
    seen: dict[str, None] = {}
    for seed in range(scaled(2_000)):
        seen.update(walk(GenerationLog, seed).seen)
    assert list(sorted(seen)) == ["compacted", "failed", "merged", "migrated", "sealed"]


def test_a_list_of_steps_holds_every_step_up_to_its_cut() -> None:
    """A step is stored once, whatever becomes of its snapshot, and steps are merged in their sequence."""
    seen: dict[str, None] = {}
    for seed in range(scaled(1_000)):
        seen.update(walk(GenerationLog, seed, PartKind.STEPS).seen)
    assert list(sorted(seen)) == ["compacted", "failed", "several steps in a part"]


class AcknowledgesEarly(GenerationLog):
    """A snapshot is acknowledged before all of its generations are stored."""

    def list_of(self, snapshot_id: int) -> tuple[ListEntry, ...] | None:
        return tuple(each for segment in self._cuts[snapshot_id] for each in segment.entries)


class ListsWhatCameLater(GenerationLog):
    """A snapshot lists the generations that are stored when it is acknowledged."""

    def list_of(self, snapshot_id: int) -> tuple[ListEntry, ...] | None:
        found = super().list_of(snapshot_id)
        return found and tuple(each for segment in self._segments for each in segment.entries)


class ForgetsAborted(GenerationLog):
    """Generations of aborted snapshots are dropped before they are stored."""

    def discard_below(self, snapshot_id: int) -> None:
        super().discard_below(snapshot_id)
        self._segments = [
            each for each in self._segments if each.entries or each.sources or each.snapshot_id >= snapshot_id
        ]


class AdoptsAtOnce(GenerationLog):
    """A compaction changes the lists of snapshots that were cut before."""

    def _stored(self, task: StoreRows | CompactRows, entries: tuple[ListEntry, ...]) -> list[StorageTask | Declined]:
        compaction = self._compaction
        decisions = super()._stored(task, entries)
        if compaction is not None and compaction.is_done:
            for snapshot_id, cut in self._cuts.items():
                if set(compaction.replaced) <= set(cut) and snapshot_id == min(self._cuts):
                    kept = [each for each in cut if each not in compaction.replaced]
                    self._cuts[snapshot_id] = (compaction.result, *kept)
        return decisions


class MergesOverCuts(GenerationLog):
    """Generations are merged although a snapshot needs the first of them alone."""

    def _store_next(self) -> list[StorageTask]:
        cuts, self._cuts = self._cuts, {}
        decisions = super()._store_next()
        self._cuts = {snapshot_id: tuple(each for each in self._segments if each.first <= cut[-1].last) if cut else cut
                      for snapshot_id, cut in cuts.items()}  # fmt: skip
        return decisions


class LosesFailed(GenerationLog):
    """A segment that could not be stored is dropped."""

    def _failed(self, task: MergeRows | StoreRows | CompactRows, reason: str) -> list[StorageTask | Declined]:
        decisions = super()._failed(task, reason)
        self._segments = [each for each in self._segments if each.last != task.last or each.entries or each.sources]
        return decisions


class MergesNewestFirst(GenerationLog):
    """Merged generations are applied in the wrong order."""

    def _store(self, segment: Any) -> MergeRows | StoreRows:
        task = super()._store(segment)
        return replace(task, segments=task.segments[::-1]) if isinstance(task, MergeRows) else task


class MergesRestoredAlone(GenerationLog):
    """Segments that were restored are merged without those before them."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for segment in self._segments:
            segment.is_restored = False


class ListsTheOrigin(GenerationLog):
    """A fork lists the files of the run that it came from."""

    def __post_init__(self) -> None:
        self.run, run = (self.restored[0].handle.run if self.restored else self.run), self.run
        super().__post_init__()
        self.run = run


@pytest.mark.parametrize(
    "mutant",
    [
        AcknowledgesEarly, ListsWhatCameLater, ForgetsAborted, AdoptsAtOnce, MergesOverCuts, LosesFailed,
        MergesNewestFirst, MergesRestoredAlone, ListsTheOrigin,
    ],
)  # fmt: skip
def test_a_log_without_one_of_its_rules_is_found(mutant: type[GenerationLog]) -> None:
    """Each rule of PROTOCOL 11 is needed: without it some walk fails."""
    with pytest.raises((AssertionError, StopIteration)):
        for seed in range(2_000):
            walk(mutant, seed)


def test_sealed_rows_are_stored_once_with_the_next_cut() -> None:
    """Rows that leave memory wait for a cut, and become one segment with all up to it. Later ones wait further."""
    host = Host(GenerationLog(SUBTASK, "run", (), 1_000, choose=pairs))
    for _ in range(3):
        host.seal()
    host.perform(1, fails=False)
    host.perform(0, fails=False)
    assert [type(task) for task in host.tasks] == [EncodeRows], "rows are stored before a cut needs them"
    host.capture(1, changes=True)
    host.seal()
    for task in (EncodeRows, EncodeRows, EncodeRows, MergeRows, StoreRows):
        assert type(host.tasks[0]) is task
        host.perform(0, fails=False)
    host.acknowledge()
    assert (host.files, host.tasks) == ({"StoreRows-1-4-0": (1, 2, 3, 4)}, [])
    assert [(each.handle.first, each.handle.last) for each in host.lists[1]] == [(1, 4)]


def test_what_waits_for_a_failing_store_is_one_segment() -> None:
    """A store that refuses 50 snapshots leaves one merged segment to store, not 50."""
    host = Host(GenerationLog(SUBTASK, "run", (), 1_000, choose=pairs))
    for snapshot_id in range(1, 51):
        host.capture(snapshot_id, changes=True)
        host.perform(0, fails=False)  # encode
        assert host.log.waiting <= 2
        host.perform(0, fails=True)  # store
        assert host.due[snapshot_id] is None, "a snapshot whose rows could not be stored was not declined"
        host.log.discard_below(snapshot_id + 1)
    host.capture(51, changes=False)
    host.perform(0, fails=False)  # merge
    host.perform(0, fails=False)
    host.acknowledge()
    assert list(host.files.values()) == [tuple(range(1, 51))]


def test_a_store_that_hangs_leaves_two_segments_at_most() -> None:
    """While one segment is being stored, those of snapshots that are over wait as encoded rows and are merged next."""
    host = Host(GenerationLog(SUBTASK, "run", (), 1_000, choose=pairs))
    host.capture(1, changes=True)
    host.perform(0, fails=False)
    for snapshot_id in range(2, 30):
        host.log.discard_below(snapshot_id)  # the snapshot before was aborted by its timeout
        host.capture(snapshot_id, changes=True)
        host.perform(len(host.tasks) - 1, fails=False)
    assert [type(task) for task in host.tasks] == [StoreRows]
    for _ in ("store", "merge", "store"):
        host.perform(0, fails=False)
    assert list(host.files.values()) == [(1,), tuple(range(2, 30))]
    host.acknowledge()
    assert list(host.lists) == [29]


def test_a_key_of_another_subtask_declines_every_snapshot_that_needs_its_row() -> None:
    """The rows stay unstored, so a later snapshot without them would lose them in silence."""
    host = Host(GenerationLog(SUBTASK, "run", (), 1_000))
    host.capture(1, changes=True)
    [task] = host.tasks
    host.tasks.clear()
    assert isinstance(task, EncodeRows)
    host.take(host.log.done(task, TaskFailed("the key 'x' is not of this subtask")))
    host.capture(2, changes=False)
    assert host.due == {1: None, 2: None}


def test_a_whole_state_replaces_the_deltas_before_it() -> None:
    """A list of own state begins with the newest whole state, whatever was stored before."""
    log = GenerationLog(SUBTASK, "run", (), 1_000, kind=PartKind.OWN)
    lists = []
    for snapshot_id, is_whole in enumerate([True, False, False, True, False], 1):
        [task] = log.captured_change(snapshot_id, OwnChange(is_whole, (b"change",)))
        assert isinstance(task, StoreRows)
        log.done(task, (entry(f"own-{snapshot_id}", task.first, task.last),))
        found = log.list_of(snapshot_id)
        assert found is not None
        lists.append([(each.handle.first, each.handle.last) for each in found])
        log.forget(snapshot_id)
    assert lists == [
        [(0, 1)], [(0, 1), (2, 2)], [(0, 1), (2, 2), (3, 3)], [(0, 4)], [(0, 4), (5, 5)],
    ]  # fmt: skip


def test_a_snapshot_gets_the_deltas_that_a_later_whole_state_replaces() -> None:
    """An overlapping snapshot still needs the delta of its own cut."""
    log = GenerationLog(SUBTASK, "run", (), 1_000, kind=PartKind.OWN)
    [first] = log.captured_change(1, OwnChange(True, (b"whole",)))
    assert log.captured_change(2, OwnChange(False, (b"delta",))) == []
    assert log.captured_change(3, OwnChange(True, (b"whole",))) == []
    assert isinstance(first, StoreRows)
    [second] = log.done(first, (entry("one", 0, 1),))
    assert isinstance(second, StoreRows)
    [third] = log.done(second, (entry("two", 2, 2),))
    assert isinstance(third, StoreRows)
    log.done(third, (entry("three", third.first, third.last),))
    assert [len(log.list_of(number) or ()) for number in (1, 2, 3)] == [1, 2, 1]


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_delta_that_a_whole_state_has_replaced_may_come_late(is_stored: bool) -> None:
    """Its snapshot was aborted while it was stored, so nothing needs it any more."""
    log = GenerationLog(SUBTASK, "run", (), 1_000, kind=PartKind.OWN)
    [whole] = log.captured_change(1, OwnChange(True, (b"whole",)))
    assert isinstance(whole, StoreRows)
    log.done(whole, (entry("one", 0, 1),))
    [delta] = log.captured_change(2, OwnChange(False, (b"delta",)))
    assert isinstance(delta, StoreRows)
    log.discard_below(3)
    [third] = log.captured_change(3, OwnChange(True, (b"whole",)))
    assert isinstance(third, StoreRows)
    assert (log.done(delta, (entry("two", 2, 2),)) if is_stored else log.done(delta, TaskFailed("away"))) == []
    log.done(third, (entry("three", third.first, third.last),))
    assert [each.handle.path for each in log.list_of(3) or ()] == ["three"]


def test_one_large_inline_segment_does_not_keep_the_others_from_being_merged() -> None:
    """It cannot make room by a merge, so the number of segments decides."""
    log = GenerationLog(SUBTASK, "run", (), 1_000)
    inline, path = b"i" * 900, "merged"
    entries = [ListEntry(replace(handle(f"{number}", number, number), size=5_000), *GROUPS) for number in range(600)]
    entries[0] = ListEntry(replace(entries[0].handle, size=10_000_000), *GROUPS)
    entries[1] = ListEntry(replace(entries[1].handle, size=900, inline=inline, path=None), *GROUPS)
    merges = 0
    for number, each in enumerate(entries):
        found: Sequence[ListEntry] = ()
        tasks = log.captured(number + 1, cast("CapturedRows", object()))
        while tasks:
            task = tasks.pop()
            match task:
                case EncodeRows():
                    tasks += log.done(task, cast("Any", object()))
                case StoreRows():
                    tasks += log.done(task, (each,))
                case CompactRows():
                    merges += 1
                    merged = replace(handle(path, task.first, task.last), size=5_000 * (task.last - task.first))
                    tasks += log.done(task, (ListEntry(merged, *GROUPS),))
                case _:
                    raise AssertionError(task)
        found = log.list_of(number + 1) or ()
        log.forget(number + 1)
    assert merges and 0 < len(found) <= 300


def test_own_segments_behind_restored_ones_are_merged_by_their_own_number() -> None:
    """Where the newest are merged, those are left alone that are not among the newest, own and restored ones."""

    def newest(sizes: Sequence[SegmentSize], inline_bytes_max: int) -> tuple[int, int] | None:
        return (len(sizes) - 2, len(sizes)) if len(sizes) >= 3 else None

    restored = tuple(entry(f"restored-{n}", n, n, incarnation=5) for n in (1, 2))
    host = Host(GenerationLog(SUBTASK, "run", restored, 1_000, choose=newest), captures=2)
    host.files = {"restored-1": (1,), "restored-2": (2,)}
    for snapshot_id in (11, 12, 13):
        host.capture(snapshot_id, changes=True)
        for _ in ("encode", "store"):
            host.perform(0, fails=False)
        host.acknowledge()
    [task] = host.tasks
    assert isinstance(task, CompactRows) and (task.first, task.last, task.is_whole) == (2, 3, False)
    assert [host.files[each.handle.path or ""] for source in task.sources for each in source] == [(4,), (5,)]


def test_a_restored_log_is_not_merged_anew_again_and_again() -> None:
    """The newest parts are merged by themselves where they reach into restored ones. So little is written twice."""
    size = 1_000

    def part(name: str, bytes_: int, first: int, last: int, incarnation: int = INCARNATION) -> ListEntry:
        made = replace(handle(name, first, last, incarnation=incarnation), size=bytes_)
        return ListEntry(replace(made, kind=PartKind.STEPS, groups=None, rows=None), *GROUPS)

    restored = tuple(part(f"old-{number}", 1_000_000 * 2 ** (60 - number), number, number, 6) for number in range(60))
    log = GenerationLog(SUBTASK, "run", restored, 1_000, 7, PartKind.STEPS)
    written, count = 0, 400
    for number in range(1, count + 1):
        tasks = log.captured_change(number, OwnChange(False, (b"step",)))
        while tasks:
            task = tasks.pop()
            assert isinstance(task, StoreRows | CompactRows)
            made = size * (task.last - task.first + 1)
            written += made
            tasks += log.done(task, (part(f"{task.first}-{task.last}", made, task.first, task.last),))
        found = log.list_of(number) or ()
        log.forget(number)
    assert 60 < len(found) <= 130
    assert written < 8 * count * size
