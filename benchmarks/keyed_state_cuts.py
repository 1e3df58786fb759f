"""Cuts of keyed state: how long a subtask pauses, what storage stops, how much is stored, how fast it is restored.

Between two cuts rows change in bulk. After each cut the subtask's thread does nothing but turns until all is stored, so
that each stop of this thread is one of storage. The first snapshot holds all rows, and is not counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.keyed_state_rows import KEY_BYTES, VALUE_BYTES, add_rows, chosen, key_of, pairs_of, write_rows
from benchmarks.keyed_subtask import KeyedState, Pause, Rows, StoredSubtask, Sums, opened
from benchmarks.loop_stops import Stop, stops_while
from benchmarks.result import Figures, Metric, metric, metric_of_samples, paired_ratio
from benchmarks.snapshot import baseline_write_bytes_per_second
from cutline.snapshot.keyed.segment import Segment
from cutline.snapshot.stored.certificate import SubtaskRecord

#: Snapshots whose bytes `bytes_changed_300` counts; a quick run has fewer. With 1 % each, compaction merges the deltas
#: into the base once.
COMPACTED_SNAPSHOTS = 300

#: Rows that are compared after a restore.
_COMPARED_ROWS = 1_000

#: Seconds after each snapshot in which the same loop runs without storage.
_QUIET_SECONDS = 0.005

#: A row of so many expires, and one of so many keys has a timer, after the last snapshot.
_ROWS_PER_EXPIRING = 20


class Change(NamedTuple):
    """Rows that change between two cuts."""

    #: rows of the state
    rows: int
    #: part of the rows that changes
    share: float
    #: how often each of these rows is written
    times: int
    snapshots: int


def measured(change: Change, tier: KeyedState, folder: Path, restores: int, *, is_columns: bool = False) -> Figures:
    """Return the metrics and ratios of a value state, or of a sum of batches."""
    taken = _Taken(change, is_columns)
    with opened(Sums() if is_columns else Rows(), tier, folder) as subtask:
        taken.fill(subtask)
        for number in range(1, change.snapshots + 1):
            taken.take(subtask, number, folder)
        record = subtask.record
        assert record is not None
        if not is_columns:
            taken.stops.append(_stops_of_expiries(subtask, change.rows // _ROWS_PER_EXPIRING))
        files, rows = _bare_files(subtask.segments(record), folder)
        ratios = taken.ratios(subtask)
    ours, theirs = [], []
    for _ in range(restores):
        ours.append(rows / taken.restore_seconds(tier, folder, record))
        theirs.append(rows / _bare_restore_seconds(files))
    metrics = {
        "pause_ms": metric("ms", [pause.seconds * 1e3 for pause in taken.pauses]),
        "pause_processor_ms": metric("ms", [pause.processor_seconds * 1e3 for pause in taken.pauses]),
        "loop_stop_ms": _milliseconds(taken.stops, "milliseconds"),
        "loop_stop_processor_ms": _milliseconds(taken.stops, "processor_milliseconds"),
        "loop_stop_without_storage_ms": _milliseconds(taken.quiet_stops, "milliseconds"),
        "stored_bytes_per_s": metric("bytes/s", taken.rates),
        "bare_write_bytes_per_s": metric("bytes/s", taken.bare_rates),
        "restored_rows_per_s": metric("rows/s", ours),
        "bare_restored_rows_per_s": metric("rows/s", theirs),
    }
    ratios["bare_write"] = paired_ratio(taken.rates, taken.bare_rates)
    ratios["bare_dict"] = paired_ratio(ours, theirs)
    return metrics, ratios


def _milliseconds(runs: list[list[Stop]], name: str) -> Metric:
    return metric_of_samples("ms", [[getattr(stop, name) for stop in stops] for stops in runs if stops] or [[0.0]])


class _Taken:
    """The figures of the snapshots of one subtask, and what its rows hold."""

    def __init__(self, change: Change, is_columns: bool) -> None:
        self._change = change
        self._is_columns = is_columns
        self._write: Callable[[StoredSubtask, Sequence[int], int], None] = add_rows if is_columns else write_rows
        #: version of each row, or its sum
        self._versions: npt.NDArray[np.int64] = np.zeros(change.rows, np.int64)
        self.pauses: list[Pause] = []
        #: stops after each cut, and those without any work of storage
        self.stops: list[list[Stop]] = []
        self.quiet_stops: list[list[Stop]] = []
        #: bytes per second from a cut to its acknowledgement, and of a plain write and fsync of as many bytes
        self.rates: list[float] = []
        self.bare_rates: list[float] = []

    def fill(self, subtask: StoredSubtask) -> None:
        """Write all rows, and store the first snapshot."""
        self._write(subtask, range(self._change.rows), 0)
        subtask.cut()
        subtask.await_stored()
        subtask.written.clear()

    def take(self, subtask: StoredSubtask, number: int, folder: Path) -> None:
        """Change rows, and take a snapshot."""
        numbers = chosen(self._change.rows, self._change.share, number)
        for time_ in range(self._change.times):
            version = number * self._change.times + time_
            self._write(subtask, np.random.default_rng(version).permutation(numbers).tolist(), version)
            self._versions[numbers] = self._versions[numbers] + version if self._is_columns else version
        before = subtask.record
        self.pauses.append(subtask.cut())
        self.stops.append(stops_while(lambda: subtask.is_storing, subtask.turn))
        until = time.perf_counter() + _QUIET_SECONDS
        self.quiet_stops.append(stops_while(lambda: time.perf_counter() < until, subtask.turn))
        size = subtask.written.deltas[-1]
        self.rates.append(size / subtask.stored_seconds)
        self.bare_rates.append(baseline_write_bytes_per_second(folder, size))
        subtask.remove_unlisted(before, subtask.record)

    def ratios(self, subtask: StoredSubtask) -> dict[str, float]:
        """Return bytes stored to bytes of keys and values of the rows that have changed."""
        if self._is_columns:
            return {}
        changed = round(self._change.rows * self._change.share) * (KEY_BYTES + VALUE_BYTES)
        deltas = subtask.written.deltas[: self._change.snapshots]
        found = {"bytes_changed": median(deltas) / changed}
        if self._change.share < 1:
            found["bytes_changed_300"] = (sum(deltas) + sum(subtask.written.merged)) / (changed * len(deltas))
        return found

    def restore_seconds(self, tier: KeyedState, folder: Path, record: SubtaskRecord) -> float:
        """Read and restore a snapshot, and compare some rows. Return the seconds until the subtask may run."""
        began = time.perf_counter()
        with opened(Sums() if self._is_columns else Rows(), tier, folder, record) as subtask:
            seconds = time.perf_counter() - began
            numbers = chosen(self._change.rows, min(1.0, _COMPARED_ROWS / self._change.rows), 0)
            expected = [self._expected(number) for number in numbers]
            keys = numbers if self._is_columns else [key_of(number) for number in numbers]
            if subtask.rows.getAll(keys) != expected:
                raise RuntimeError("the restored rows are not those of the snapshot")
        return seconds

    def _expected(self, number: int) -> Any:
        version = int(self._versions[number])
        return version if self._is_columns else pairs_of([number], version)[0][1]


def _stops_of_expiries(subtask: StoredSubtask, count: int) -> list[Stop]:
    """Return the stops by timers, by rows with a time-to-live, and by their sweep."""
    for number in range(count):
        subtask.expire_soon(key_of(number))
        subtask.register_timer(key_of(number))
        if number % 1_000 == 0:
            subtask.end_slice()
    subtask.cut()
    stops = stops_while(lambda: subtask.is_storing, subtask.turn)
    return stops + [Stop(seconds * 1e3, seconds * 1e3) for seconds in subtask.sweep_seconds(count)]


# ---------------------------------------------------------------- the same bytes without a state


def _bare_files(segments: Iterable[Segment], folder: Path) -> tuple[list[Path], int]:
    """Write the keys and values of all segments to Arrow files. Return the files and the number of rows."""
    files, count = list[Path](), 0
    for number, segment in enumerate(segments):
        columns = {name: segment.rows.column(name) for name in ("key", "value")}
        files.append(folder / f"bare-{number}.arrow")
        batch = pa.RecordBatch.from_pydict(columns)
        with pa.ipc.new_stream(str(files[-1]), batch.schema) as stream:
            stream.write_batch(batch)
        count += segment.rows.num_rows
    return files, count


def _bare_restore_seconds(files: Iterable[Path]) -> float:
    """Read Arrow files, and build a dict of their rows. Return the seconds."""
    began = time.perf_counter()
    rows: dict[bytes, bytes] = {}
    for path in files:
        with pa.ipc.open_stream(path.read_bytes()) as stream:
            for batch in stream:
                rows.update(zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True))
    seconds = time.perf_counter() - began
    assert rows
    return seconds
