"""Versions of local databases: hard links that no later work changes, and that live as long as they are listed."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cutline.snapshot.errors import RestoreRefused, SnapshotAborted, SnapshotCorrupt, StateError
from cutline.snapshot.ids import Subtask
from cutline.snapshot.keyed.cold_tier import ColdLimits, ColdTier
from cutline.snapshot.keyed.kinds import StateKind
from cutline.snapshot.keyed.row_store import RowStore, Writer
from cutline.snapshot.keyed.segment import Segment
from cutline.snapshot.keyed.versions import PendingVersion, VersionedState, decode_states, encode_states
from cutline.snapshot.stored.certificate import LocalVersion
from cutline.state_backends.local_versions import LocalVersions, UnfinishedVersion
from cutline.state_backends.rocksdb import Database, RocksDBMemory
from cutline.state_backends.writer_thread import WriterThread
from tests.snapshot.keyed.keyed_subtask import KeyedSubtask

SUBTASK = Subtask("node", 3)


@pytest.fixture
def versions(tmp_path: Path) -> LocalVersions:
    """Versions of a run whose name is no name of a folder."""
    return LocalVersions(tmp_path, "a/run..of mine")


def _version(versions: LocalVersions, snapshot_id: int) -> LocalVersion:
    return LocalVersion(versions.disk, "a/run..of mine", SUBTASK, snapshot_id, 9)


def _make(versions: LocalVersions, snapshot_id: int, content: bytes = b"rows") -> None:
    """A version with one table, and a file that a database would change."""
    unfinished = versions.begin(str(SUBTASK), snapshot_id)
    unfinished.database.mkdir()
    (unfinished.database / "1.sst").write_bytes(content)
    (unfinished.database / "CURRENT").write_bytes(content)
    unfinished.finish(b"states")


def _has(versions: LocalVersions, snapshot_id: int, to: Path) -> bool:
    try:
        versions.restore(_version(versions, snapshot_id), to / str(snapshot_id))
    except RestoreRefused:
        return False
    return True


def test_a_disk_has_one_id(tmp_path: Path) -> None:
    """For all runs and workers, also later; another disk has another."""
    one = LocalVersions(tmp_path / "one", "run").disk
    assert one == LocalVersions(tmp_path / "one", "other").disk
    assert one != LocalVersions(tmp_path / "two", "run").disk


def test_a_restored_database_changes_no_version(versions: LocalVersions, tmp_path: Path) -> None:
    """Its tables are links, which nobody changes, and all else are copies."""
    _make(versions, 7)
    for place in ("one", "two"):
        to = tmp_path / place
        assert versions.restore(_version(versions, 7), to) == b"states"
        assert (to / "CURRENT").read_bytes() == b"rows" and (to / "1.sst").stat().st_nlink >= 2
        (to / "CURRENT").write_bytes(b"changed")
        (to / "1.sst").unlink()


def test_versions_go_with_the_last_snapshot_that_lists_them(versions: LocalVersions, tmp_path: Path) -> None:
    """Newer ones stay, because their snapshots may still be published. Unfinished ones go when they are old."""
    for snapshot_id in (3, 6, 9, 12):
        _make(versions, snapshot_id)
    versions.begin(str(SUBTASK), 4)
    versions.begin(str(SUBTASK), 15)
    assert versions.prune((6, 9)) == 2
    assert [each for each in (3, 6, 9, 12) if _has(versions, each, tmp_path)] == [6, 9, 12]
    assert versions.prune((6, 9)) == 0
    assert LocalVersions(tmp_path, "another run").prune((99,)) == 0


def test_a_version_that_is_gone_is_named(versions: LocalVersions, tmp_path: Path) -> None:
    """With the folder where it should be, and the ways out. An unfinished one is none."""
    versions.begin(str(SUBTASK), 5)
    with pytest.raises(RestoreRefused, match=r"has no version 5 of node\[3\]: .* is gone. Restore an older snapshot"):
        versions.restore(_version(versions, 5), tmp_path / "to")


def test_states_of_a_version_are_read_as_written() -> None:
    """Damaged ones are refused by the name of the version."""
    states = [VersionedState("v", StateKind.VALUE, 0, False), VersionedState("#timers", StateKind.TIMERS, 1, True)]
    assert decode_states(encode_states(states), "version") == states
    for damaged in (b"", b"\x91\x91\x01", b"\xc1", encode_states(states)[:-1]):
        with pytest.raises(SnapshotCorrupt, match="the version 7: its states cannot be read"):
            decode_states(damaged, "the version 7")


# ---------------------------------------------------------------- with a database


class Disk:
    """Opens tiers whose databases are on one disk."""

    def __init__(self, folder: Path) -> None:
        pytest.importorskip("rocksdict")
        self.versions = LocalVersions(folder, "run")
        self.folder = folder / "databases"
        self.memory = RocksDBMemory(8 * 1024 * 1024)
        self.subtasks: list[KeyedSubtask] = []

    def _open(self, version: LocalVersion | None) -> tuple[RowStore, Writer]:
        restore = None if version is None else partial(self.versions.restore, version)
        begin = partial(self.versions.begin, str(SUBTASK))
        database = Database(self.memory, self.folder, "1-node-3", begin, restore)
        return database, WriterThread("1-node-3", lambda: None)

    def unopened(self, version: LocalVersion | None = None, segments: Sequence[Segment] = ()) -> KeyedSubtask:
        """A subtask that has asked for no state."""
        tier = ColdTier(self._open, ColdLimits(memtable_rows=50, cached_rows=60, checked_keys=1))
        subtask = KeyedSubtask(lambda: tier, segments, stores_rows=False)
        self.subtasks.append(subtask)
        if version is not None:
            subtask.states.restore((), subtask.context.now, version=version)
        return subtask

    def subtask(self, version: LocalVersion | None = None) -> Any:
        """A subtask, and a state of each kind."""
        subtask = self.unopened(version)
        states = (subtask.value(), subtask.value("vt", 9.0), subtask.list(), subtask.map())
        subtask.states.opened()
        return subtask, states

    def version(self, subtask: KeyedSubtask, snapshot_id: int) -> LocalVersion:
        """Make a version of what a subtask has now."""
        assert subtask.capture() is None
        pending = subtask.states.begin_version(snapshot_id)
        _wait(pending)
        return LocalVersion(self.versions.disk, "run", SUBTASK, snapshot_id, 9)


def _wait(pending: PendingVersion) -> None:
    waited = threading.Event()
    for seconds in pending.waiting():
        waited.wait(seconds)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    """An empty disk, whose databases are closed afterwards."""
    made = Disk(tmp_path)
    yield made
    for each in made.subtasks:
        each.states.close()


def _write(made: Any, keys: range, value: int) -> None:
    subtask, (plain, timed, some, words) = made
    for key in keys:
        with subtask.key(key):
            plain.update(value)
            timed.update(value)
            some.appendValue(value)
            words.updateValue(value, key)


def _rows(made: Any) -> list[Any]:
    return [list(state.items()) for state in made[1]]


def test_a_version_has_the_rows_of_its_cut(disk: Disk) -> None:
    """In memtables, in the cache and in the store; whatever was written behind the cut, here or in a restored one."""
    made = disk.subtask()
    _write(made, range(120), 1)
    cut = _rows(made)
    version = disk.version(made[0], 10)
    _write(made, range(60, 200), 2)
    made[1][0].clearAll(range(20))
    later, newer = _rows(made), disk.version(made[0], 20)
    restored = disk.subtask(version)
    assert _rows(restored) == cut
    _write(restored, range(300), 3)
    disk.version(restored[0], 30)
    assert _rows(disk.subtask(version)) == cut
    assert _rows(disk.subtask(newer)) == later


def test_a_version_knows_states_that_no_node_asks_for(disk: Disk) -> None:
    """Because a later program may ask for them, with the kind and the times that their rows have."""
    before = KeyedSubtask()
    kept = before.map("kept", 9.0)
    with before.key("a"):
        kept.updateValue("b", 1)
    segment = before.capture_segment()
    assert segment is not None
    without = disk.unopened(segments=[segment])
    without.states.opened()
    after = disk.unopened(disk.version(without, 10))
    assert list(after.map("kept").items()) == [("a", {"b": 1})]
    after.context.now = 9.0
    assert list(after.map("kept").items()) == []


def test_a_version_that_cannot_be_made_aborts_its_snapshot(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the database and the cause. The run goes on, and the next version is made."""
    made = disk.subtask()
    _write(made, range(10), 1)
    monkeypatch.setattr(UnfinishedVersion, "finish", _full)
    made[0].capture()
    pending = made[0].states.begin_version(10)
    with pytest.raises(SnapshotAborted, match=r"1-node-3: cannot make a version of the database .* No space left"):
        _wait(pending)
    monkeypatch.undo()
    assert _rows(disk.subtask(disk.version(made[0], 20))) == _rows(made)


def _full(*_: object) -> Any:
    raise OSError(28, "No space left on device")


def test_a_closed_subtask_makes_no_version() -> None:
    """Who waits for one is told."""
    pending = PendingVersion(7)
    tier = ColdTier(lambda _: (_ for _ in ()).throw(StateError("no database")))
    tier._pending.append(pending)
    tier.close()
    with pytest.raises(SnapshotAborted, match="its subtask was closed"):
        _wait(pending)


def test_rows_in_memory_have_no_versions() -> None:
    """The error says which setting has."""
    with pytest.raises(StateError, match=r"keyedState=RocksDBState\(\)"):
        KeyedSubtask().states.begin_version(7)
