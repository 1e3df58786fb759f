"""Measure keyed state in one thread of one process: rates, cuts, bytes in snapshots, restores. Both tiers.

Neither Spark nor Ray is needed. The parts are those of a worker (`benchmarks.keyed_subtask`). Keys have 13 bytes and
values 100. Each case on a tier has a process of its own.

* ``case=rows``: rates by ``access``, and cuts by ``changed``, the part of the rows that changes between two cuts.
* ``case=columns``: sums of batches with integer keys, which the heap keeps in columns.
* ``case=five_times``: every row is written five times between two cuts.
* ``case=beyond_cache``: more rows than RocksDB's cache holds.
* ``case=larger_than_memory``: `benchmarks.larger_than_memory`.

The ratios `bare_dict` and `bare_rocksdb` compare with a plain dict and a plain RocksDB, which do the same in turn. For
a restore `bare_dict` compares with reading the same bytes and building a dict of them. `bytes_changed` is the bytes of
one stored generation, over the bytes of keys and values that have changed. `bytes_changed_300` is that of 300
snapshots, with all that compaction has written.
"""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Iterator, Mapping
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from benchmarks import keyed_state_cuts, keyed_state_rates, larger_than_memory
from benchmarks.keyed_state_cuts import COMPACTED_SNAPSHOTS, Change
from benchmarks.keyed_state_rates import Load
from benchmarks.keyed_subtask import KeyedState
from benchmarks.processes import at_one_time
from benchmarks.result import Figures, Result
from benchmarks.run_size import Cases, Configuration, RunSize, show_progress
from benchmarks.session import Place
from cutline.state_backends.keyed_state import MEMORY_BYTES_MIN, HeapState, RocksDBState

#: The case that starts its own processes, because it kills them.
_OWN_PROCESSES = "larger_than_memory"

#: Seconds of all configurations of one process, on a crowded machine.
_PROCESS_SECONDS_MAX = 3_600.0

#: Rows that are updated again and again with ``keys=hot``.
_HOT_ROWS = 20_000

#: Updates of a round for each second of the run's size, by tier and access.
_UPDATES_PER_S = {
    ("heap", "key"): 400_000,
    ("heap", "bulk"): 400_000,
    ("rocksdb", "key"): 100_000,
    ("rocksdb", "bulk"): 120_000,
    ("rocksdb", "blind"): 240_000,
}

_MIB = 1024 * 1024


class Case(NamedTuple):
    """Parameters of one configuration. None: the parameter does not matter."""

    case: str
    tier: str
    keys: str
    access: str | None = None
    changed: float | None = None

    @property
    def process(self) -> str:
        """Name of the process that measures the case, or `_OWN_PROCESSES`."""
        return self.case if self.case == _OWN_PROCESSES else f"{self.case} on {self.tier}"


CASES = (
    Case("rows", "heap", "hot", "key"),
    Case("rows", "heap", "uniform", "key"),
    Case("rows", "heap", "uniform", "bulk"),
    Case("rows", "heap", "uniform", changed=0.01),
    Case("rows", "heap", "uniform", changed=1.0),
    Case("columns", "heap", "uniform", "bulk"),
    Case("columns", "heap", "uniform", changed=0.01),
    Case("columns", "heap", "uniform", changed=1.0),
    Case("five_times", "heap", "uniform", changed=1.0),
    Case("rows", "rocksdb", "hot", "key"),
    Case("rows", "rocksdb", "uniform", "key"),
    Case("rows", "rocksdb", "uniform", "bulk"),
    Case("rows", "rocksdb", "uniform", changed=0.01),
    Case("rows", "rocksdb", "uniform", changed=1.0),
    Case("five_times", "rocksdb", "uniform", changed=1.0),
    Case("beyond_cache", "rocksdb", "uniform", "key"),
    Case("beyond_cache", "rocksdb", "uniform", "blind"),
    Case("larger_than_memory", "rocksdb", "uniform"),
)
#: At least one case of each kind, tier and access.
QUICK_CASES = (
    Case("rows", "heap", "hot", "key"),
    Case("rows", "heap", "uniform", changed=0.01),
    Case("columns", "heap", "uniform", "bulk"),
    Case("columns", "heap", "uniform", changed=1.0),
    Case("five_times", "heap", "uniform", changed=1.0),
    Case("rows", "rocksdb", "uniform", "key"),
    Case("rows", "rocksdb", "uniform", "bulk"),
    Case("rows", "rocksdb", "uniform", changed=0.01),
    Case("beyond_cache", "rocksdb", "uniform", "blind"),
    Case("larger_than_memory", "rocksdb", "uniform"),
)


def configurations(size: RunSize) -> Cases:
    """Return one case for each rate and each kind of cut, and one for a state that exceeds memory."""
    return {case: {**case._asdict(), **size.configuration()} for case in size.choose(CASES, QUICK_CASES)}


def measure(cases: Cases, size: RunSize, place: Place) -> Iterator[Result]:
    """Yield one result for each case."""
    with tempfile.TemporaryDirectory(prefix="cutline-benchmark-", ignore_cleanup_errors=True) as folder:
        for process, together in groupby(cases.items(), lambda pair: pair[0].process):
            of_process = dict(together)
            if process == _OWN_PROCESSES:
                for configuration in of_process.values():
                    show_progress("keyed-state", configuration, 1, 1)
                    yield Result("keyed-state", configuration, larger_than_memory.measured(_size(size), Path(folder)))
            else:
                [results] = at_one_time([(results_of, (of_process, size, folder))], _PROCESS_SECONDS_MAX)
                yield from results


def results_of(cases: Mapping[Case, Configuration], size: RunSize, folder: str) -> list[Result]:
    """Measure cases in this process, one after another."""
    results = []
    for case, configuration in cases.items():
        show_progress("keyed-state", configuration, 1, 1)
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            results.append(Result("keyed-state", configuration, *_figures(case, size, Path(scratch))))
        gc.collect()
    return results


def _figures(case: Case, size: RunSize, folder: Path) -> Figures:
    tier = _tier(case, size, folder)
    if case.changed is not None:
        is_columns = case.case == "columns"
        return keyed_state_cuts.measured(_change(case, size), tier, folder, size.repeats, is_columns=is_columns)
    measured = keyed_state_rates.measured_sums if case.case == "columns" else keyed_state_rates.measured
    return measured(_load(case, size), tier, folder, size.repeats)


def _tier(case: Case, size: RunSize, folder: Path) -> KeyedState:
    if case.tier == "heap":
        return HeapState()
    if case.case == "beyond_cache":
        return RocksDBState(size.choose(256 * _MIB, MEMORY_BYTES_MIN), str(folder))
    return RocksDBState(folder=str(folder))


def _load(case: Case, size: RunSize) -> Load:
    assert case.access is not None
    rows = size.choose(2_000_000, 50_000)
    if case.case == "beyond_cache":
        rows = size.choose(8_000_000, 50_000)
    elif case.tier == "rocksdb":
        rows = size.choose(1_000_000, 50_000)  # which fit RocksDB's cache, but not the rows that Python keeps
    per_second = 400_000 if case.keys == "hot" else _UPDATES_PER_S[case.tier, case.access]
    updated_rows = min(_HOT_ROWS, rows) if case.keys == "hot" else rows
    return Load(rows, updated_rows, round(per_second * size.seconds), case.access)


def _change(case: Case, size: RunSize) -> Change:
    assert case.changed is not None
    if case.case == "five_times":
        return Change(size.choose(1_000_000, 20_000), case.changed, 5, size.choose(2, 1))
    rows = size.choose(2_000_000, 50_000)
    is_whole = case.changed == 1.0
    return Change(rows, case.changed, 1, size.choose(3, 2) if is_whole else size.choose(COMPACTED_SNAPSHOTS, 10))


def _size(size: RunSize) -> larger_than_memory.Size:
    if size.quick:
        return larger_than_memory.Size(10_000, 1024 * _MIB, MEMORY_BYTES_MIN, 0.2, 100.0)
    return larger_than_memory.Size(8_000_000, 2 * 1024 * _MIB, 512 * _MIB, 1.0, 3_600.0)
