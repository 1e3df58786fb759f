"""Output and input survive the loss of power, and each fsync that they need is missed where it is left out."""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from cutline import FileSystemBackend
from cutline.barrier_runtime.dataframes import log_writing
from cutline.barrier_runtime.dataframes.input_log import LogFile, find_log, place_of
from cutline.barrier_runtime.dataframes.log_writing import write_partition
from cutline.barrier_runtime.dataframes.nodes import ParquetSink
from cutline.snapshot.errors import SnapshotCorrupt
from cutline.snapshot.ids import Subtask
from tests.barrier_runtime.dataframes.power import Power
from tests.barrier_runtime.hand_context import HandContext

_CONTEXT = HandContext(Subtask("out"))
_SCHEMA = pa.schema([("id", pa.int64())])
_ROWS = list(range(100))
_names = itertools.count()


def _opened(folder: Path) -> ParquetSink:
    sink = ParquetSink(str(folder / "deep" / "out"), "id LONG")
    sink.open(_CONTEXT)
    return sink


def _visible(folder: Path) -> list[int]:
    found: list[int] = ds.dataset(str(folder / "deep" / "out"), format="parquet").to_table()["id"].to_pylist()
    return found


def _sink_loses(power: Power, folder: Path) -> bool:
    """Return whether rows are lost by a loss of power after `prepareCommit`, or after `commit`."""
    root = folder / f"{next(_names)}"
    root.mkdir()
    sink = _opened(root)
    for row in _ROWS:
        sink.onMessage((row,), _CONTEXT)
    prepared = sink.prepareCommit(1)
    after_prepare = power.survivors(root, folder / f"{next(_names)}")
    sink.commit(1, prepared)
    after_commit = power.survivors(root, folder / f"{next(_names)}")
    try:
        restored = _opened(after_prepare)
        restored.commit(1, prepared)
        return _visible(after_prepare) != _ROWS or _visible(after_commit) != _ROWS
    except (SnapshotCorrupt, FileNotFoundError):
        return True


def _rows_in_found_folders(power: Power, folder: Path) -> list[int]:
    """Return the rows that survive in folders which another instance made and did not sync."""
    root = folder / f"{next(_names)}"
    root.mkdir()
    out = root / "deep" / "out"
    FileSystemBackend(str(out)).put_if_absent("part-of-another-run", [b""])
    for each in (out / "_staging", *(out / "_staging" / place for place in ("run", "run/out", "run/out/0"))):
        each.mkdir()
    sink = _opened(root)
    for row in _ROWS:
        sink.onMessage((row,), _CONTEXT)
    prepared = sink.prepareCommit(1)
    assert prepared["staged"].startswith("_staging/run/out/0/"), "the folders above are the sink's"
    survived = power.survivors(root, folder / f"{next(_names)}")
    found: list[int] = pq.read_table(survived / "deep" / "out" / prepared["staged"])["id"].to_pylist()
    return found


def _repeated_commit_loses(power: Power, folder: Path) -> bool:
    """Return whether rows are lost that another instance renamed and did not sync, and that `commit` found there."""
    root = folder / f"{next(_names)}"
    root.mkdir()
    sink = _opened(root)
    sink.onMessage((1,), _CONTEXT)
    prepared = sink.prepareCommit(1)
    out = root / "deep" / "out"
    os.rename(out / prepared["staged"], out / prepared["published"])
    sink.commit(1, prepared)
    return _visible(power.survivors(root, folder / f"{next(_names)}")) != [1]


def _log_loses(power: Power, folder: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Return whether a log whose manifest is there lacks a row after a loss of power."""
    root = folder / f"{next(_names)}"
    root.mkdir()

    def write_files(df: object, schema: pa.Schema, path: str) -> tuple[LogFile, ...]:
        parts = (pa.record_batch([_ROWS[50 * number :][:50]], schema) for number in range(2))
        return tuple(file for part in parts for file in write_partition([part], schema, path))

    monkeypatch.setattr(log_writing, "_write_files", write_files)
    log_writing._try_to_complete(None, _SCHEMA, place_of(str(root), "run", "node"))  # type: ignore[arg-type]
    early, late = (folder / f"{next(_names)}" for _ in range(2))
    found = [_logged(survived) for survived in (power.survivors_early(root, early), power.survivors(root, late))]
    return found != [_ROWS, _ROWS]


def _logged(root: Path) -> list[int] | None:
    """Return the rows of the log below `root`, or None if there is no whole log."""
    log = find_log(place_of(str(root), "run", "node"))
    if log is None:
        return None
    try:
        return [row for each in log.row_groups for _, batch in log.read(each) for row in batch["id"].to_pylist()]
    except (SnapshotCorrupt, OSError):
        return None


#: Functions of the sink and of the log that sync.
_SINK_SYNCS = ["finish", "prepare", "publish", "_enter_folder"]
_LOG_SYNCS = ["finish", "_keep_files", "_try_to_complete"]


def test_prepared_and_committed_rows_survive_the_power(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a snapshot holds as prepared can be committed, and what was committed is visible."""
    with Power(monkeypatch) as power:
        assert not _sink_loses(power, tmp_path)
        assert not _repeated_commit_loses(power, tmp_path)
    assert sorted(filter(None, power.callers)) == sorted(_SINK_SYNCS), "a sync came or went: it needs a mutant here"


def test_a_sink_syncs_the_folders_that_it_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The instance that made a folder may have died before its sync."""
    with Power(monkeypatch) as power:
        assert _rows_in_found_folders(power, tmp_path) == _ROWS


@pytest.mark.parametrize("dropped", _SINK_SYNCS)
def test_each_sync_of_the_sink_is_needed(dropped: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Teeth: without any one sync, rows are lost."""
    with Power(monkeypatch, dropped) as power:
        assert _sink_loses(power, tmp_path)


def test_a_commit_syncs_what_it_finds_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Teeth: the instance that renamed the file may have died before its sync."""
    with Power(monkeypatch, "publish") as power:
        assert _repeated_commit_loses(power, tmp_path)


def test_a_completed_log_survives_the_power(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A manifest is a promise that all rows can be read again, even if the disk stores its name early."""
    with Power(monkeypatch, early="manifest") as power:
        assert not _log_loses(power, tmp_path, monkeypatch)
    assert sorted(filter(None, power.callers)) == sorted(_LOG_SYNCS), "a sync came or went: it needs a mutant here"


@pytest.mark.parametrize("dropped", _LOG_SYNCS)
def test_each_sync_of_the_log_is_needed(dropped: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Teeth: without any one sync, rows of a completed log are lost."""
    with Power(monkeypatch, dropped, early="manifest") as power:
        assert _log_loses(power, tmp_path, monkeypatch)
