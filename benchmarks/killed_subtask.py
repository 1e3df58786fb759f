"""``python -m benchmarks.killed_subtask``: the process of a subtask whose state exceeds memory.

Row `number` has version 0 after the fill. Change `n` gives version `n` + 1 to a row that depends on `n` alone. So the
rows of a cut are known from the number of changes before it. The process changes and stores rows until it is killed.
The next process restores the last acknowledged snapshot, and compares every row.
"""

from __future__ import annotations

import pickle
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from struct import Struct
from typing import Any

import numpy as np

from benchmarks.keyed_state_rows import in_slices, key_of
from benchmarks.keyed_subtask import Rows, StoredSubtask, opened
from benchmarks.larger_than_memory import VALUE_BYTES, Progress, read_progress
from cutline.barrier_runtime.worker.task import tune_interpreter
from cutline.state_backends.keyed_state import RocksDBState

#: Rows of one bulk write of the fill, and changes between two turns.
_SLICE_ROWS = 500

_IDENTITY = Struct(">QQ")
_RANDOM = Random(7).randbytes(1 << 20)  # values that no compression makes small


class _Snapshots:
    """Takes snapshots at an interval, and notes what each holds."""

    def __init__(self, subtask: StoredSubtask, folder: Path, deed: str, progress: Progress, interval: float) -> None:
        self._subtask = subtask
        self._file = folder / deed
        self.progress = progress
        #: what the snapshot that is stored holds: rows, changes, and the seconds that the changes took
        self._cut = (0, 0, 0.0)
        self._changes_since = 0.0
        self._interval = interval
        self._next_at = 0.0
        # A thread of its own, because the disk takes milliseconds, and in a run the coordinator does this.
        self._retention = ThreadPoolExecutor(1)

    def filled(self) -> None:
        """Begin to count the seconds of changes."""
        self._changes_since = time.perf_counter()

    def turn(self, filled: int, changes: int) -> None:
        """Do a turn. Take a snapshot if one is due, of a state with so many rows and changes."""
        self._subtask.end_slice()
        progress, record = self.progress, self._subtask.record
        if record is not progress.record:
            before, progress.record = progress.record, record
            progress.filled, progress.changes, progress.change_seconds = self._cut
            progress.snapshots += progress.changes > 0
            self.write()
            self._retention.submit(self._subtask.remove_unlisted, before, record)
        if self._subtask.is_acknowledged and time.monotonic() >= self._next_at:
            self._next_at = time.monotonic() + self._interval
            self._cut = (filled, changes, time.perf_counter() - self._changes_since)
            progress.pauses.append(self._subtask.cut().seconds)

    def write(self) -> None:
        """Let the parent know the progress."""
        unfinished = self._file.with_suffix(".new")
        unfinished.write_bytes(pickle.dumps(self.progress))
        unfinished.rename(self._file)


def _value(number: int, version: int) -> bytes:
    start = (number * 7_919 + version * 104_729) % (len(_RANDOM) - VALUE_BYTES)
    return _IDENTITY.pack(number, version) + _RANDOM[start : start + VALUE_BYTES - _IDENTITY.size]


def _changed_rows(rows: int, start: int, stop: int) -> list[int]:
    """Return the row of each of the changes from `start` to before `stop`."""
    numbers = np.arange(start, stop, dtype=np.uint64) * np.uint64(11_400_714_819_323_198_485)
    found: list[int] = (numbers % np.uint64(rows)).tolist()
    return found


def _fill(folder: Path, rows: int, memory: int, interval: float) -> None:
    with opened(Rows(), RocksDBState(memory, str(folder)), folder / "snapshots") as subtask:
        snapshots = _Snapshots(subtask, folder, "fill", Progress(), interval)
        progress = snapshots.progress
        began = time.perf_counter()
        for some in in_slices(range(rows), _SLICE_ROWS):
            subtask.rows.updateAll([key_of(number) for number in some], [_value(number, 0) for number in some])
            for number in some:
                subtask.register_timer(key_of(number))
            snapshots.turn(some[-1] + 1, 0)
        progress.fill_seconds = time.perf_counter() - began
        snapshots.filled()
        changes = 0
        while True:
            for change, number in enumerate(_changed_rows(rows, changes, changes + _SLICE_ROWS), changes):
                subtask.get_and_update(key_of(number), _value(number, change + 1))
            changes += _SLICE_ROWS
            snapshots.turn(rows, changes)


def _restore(folder: Path, rows: int, memory: int, interval: float) -> None:
    before = read_progress(folder, "fill")
    began = time.perf_counter()
    with opened(Rows(), RocksDBState(memory, str(folder)), folder / "snapshots", before.record) as subtask:
        progress = Progress(restore_seconds=time.perf_counter() - began)
        versions = np.zeros(rows, np.int64)
        for start in range(0, before.changes, 1_000_000):
            stop = min(start + 1_000_000, before.changes)
            versions[_changed_rows(rows, start, stop)] = np.arange(start + 1, stop + 1)
        _require_rows(subtask, versions)
        if subtask.timer_count != rows:
            raise RuntimeError(f"{subtask.timer_count:,} timers were restored instead of {rows:,}")
        subtask.get_and_update(key_of(0), _value(0, 0))
        progress.pauses.append(subtask.cut().seconds)
        subtask.await_stored()
        progress.record, progress.is_done = subtask.record, True
        _Snapshots(subtask, folder, "restore", progress, interval).write()
        time.sleep(3_600)  # the parent kills this process


def _require_rows(subtask: StoredSubtask, versions: Any) -> None:
    found = 0
    for key, value in subtask.rows.items():
        number = int(key.rpartition("-")[2])
        if value != _value(number, int(versions[number])):
            raise RuntimeError(f"the restored row of {key} has not version {versions[number]}")
        found += 1
    if found != len(versions):
        raise RuntimeError(f"{found:,} rows were restored instead of {len(versions):,}")


def _main(deed: str, folder: str, rows: str, _: str, memory: str, interval: str) -> None:
    tune_interpreter()  # as a worker does
    (_fill if deed == "fill" else _restore)(Path(folder), int(rows), int(memory), float(interval))


if __name__ == "__main__":
    _main(*sys.argv[1:])
