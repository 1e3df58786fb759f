"""Rates of reading and writing keyed state by one thread, beside a dict and a bare RocksDB that do the same.

Each key and each value is a new object, made before the clock runs. A rate counts the clock of the wall, waits of the
subtask included. The first quarter of a round is not counted, because it fills the caches that a cut leaves empty.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from benchmarks.keyed_state_rows import bulk_of, in_slices, pairs_of, uniform, write_rows
from benchmarks.keyed_subtask import KeyedState, Rows, StoredSubtask, Sums, opened
from benchmarks.result import Figures, metric, paired_ratio
from cutline.snapshot.subtask.limits import SLICE_MESSAGES_MAX
from cutline.state_backends.keyed_state import RocksDBState
from cutline.state_backends.rocksdb import RocksDBMemory

#: Rows of one write of the bare RocksDB.
_BATCH_ROWS = 500

#: Updates of one slice, or of one bulk call.
Work = Sequence[Any]


class Load(NamedTuple):
    """Which rows are read and written, and how."""

    #: rows of the state
    rows: int
    #: rows that are updated
    updated_rows: int
    #: updates of a round
    updates: int
    #: ``key``: get and update one by one; ``bulk``: in bulk; ``blind``: update in bulk, without get
    access: str


class Rate(NamedTuple):
    """Updates per second."""

    per_second: float
    #: per second of processor time of the subtask's thread, which says more on a crowded machine
    per_processor_second: float


class Step(NamedTuple):
    """Functions that do the updates, and end a slice of them."""

    #: does the updates of a slice or of a bulk call
    update: Callable[[Any], None]
    #: called after each slice
    end_slice: Callable[[], None]


def measured(load: Load, tier: KeyedState, folder: Path, repeats: int) -> Figures:
    """Return the metrics and ratios of a value state with `load`."""
    with opened(Rows(), tier, folder) as subtask, _bare(load, tier, folder) as bare:
        ours, theirs = list[Rate](), list[Rate]()
        for start in range(0, load.rows, load.rows // 8):
            write_rows(subtask, range(start, min(start + load.rows // 8, load.rows)), 0)
            subtask.discard_changes()
        for number in range(repeats):
            work = _work(load, number)
            ours.append(_rate(_step_of(subtask, load.access), work, load.updates))
            subtask.discard_changes()
            theirs.append(_rate(bare, work, load.updates))
    name = "bare_rocksdb" if isinstance(tier, RocksDBState) else "bare_dict"
    return _figures(ours, theirs, name)


def measured_sums(load: Load, tier: KeyedState, folder: Path, repeats: int) -> Figures:
    """Return the metrics and ratios of a sum in bulk, of integer keys."""
    with opened(Sums(), tier, folder) as subtask:
        ours, theirs, bare = list[Rate](), list[Rate](), _SumsInDict()
        every = np.arange(load.rows)
        for step in (Step(lambda some: subtask.rows.addAll(*some), subtask.end_slice), Step(bare.add, _no_end)):
            _rate(step, [(some, np.ones(len(some), np.int64)) for some in in_slices(every)], load.rows)
        for number in range(repeats):
            chance = np.random.default_rng(number)
            keys, values = chance.integers(0, load.rows, load.updates), chance.integers(0, 1000, load.updates)
            work = [(pa.array(k), pa.array(v)) for k, v in zip(in_slices(keys), in_slices(values), strict=True)]
            subtask.discard_changes()
            ours.append(_rate(Step(lambda some: subtask.rows.addAll(*some), subtask.end_slice), work, load.updates))
            theirs.append(_rate(Step(bare.add, _no_end), work, load.updates))
        some = list(range(0, load.rows, max(1, load.rows // 1000)))
        if subtask.rows.getAll(some) != [bare.rows[key] for key in some]:
            raise RuntimeError("the sums of the state are not those of the dict")
    return _figures(ours, theirs, "bare_dict")


def _figures(ours: list[Rate], theirs: list[Rate], name: str) -> Figures:
    metrics = {}
    for prefix, rates in (("", ours), (f"{name}_", theirs)):
        metrics[f"{prefix}updates_per_s"] = metric("updates/s", [rate.per_second for rate in rates])
        processor = [rate.per_processor_second for rate in rates]
        metrics[f"{prefix}updates_per_processor_s"] = metric("updates/s", processor)
    return metrics, {name: paired_ratio([rate.per_second for rate in ours], [rate.per_second for rate in theirs])}


def _work(load: Load, number: int) -> Work:
    numbers = uniform(load.updated_rows, load.updates, number)
    if load.access == "key":
        return [pairs_of(some, number + 1) for some in in_slices(numbers, SLICE_MESSAGES_MAX)]
    return [bulk_of(some, number + 1) for some in in_slices(numbers)]


def _rate(step: Step, work: Work, updates: int) -> Rate:
    """Return updates per second, without the first quarter."""
    gc.collect()
    update, end_slice = step
    first = len(work) // 4
    for some in work[:first]:
        update(some)
        end_slice()
    processor_began, began = time.thread_time(), time.perf_counter()
    for some in work[first:]:
        update(some)
        end_slice()
    seconds, processor_seconds = time.perf_counter() - began, time.thread_time() - processor_began
    counted = updates * (len(work) - first) / len(work)
    return Rate(counted / seconds, counted / processor_seconds)


def _no_end() -> None:
    pass


# ---------------------------------------------------------------- the state of a node


def _step_of(subtask: StoredSubtask, access: str) -> Step:
    context, state = subtask.context, subtask.rows

    def one_by_one(pairs: Any) -> None:
        context.has_key = True
        for key, value in pairs:
            context.key = key
            state.get()
            state.update(value)
        context.key, context.has_key = None, False

    def in_bulk(columns: Any) -> None:
        keys, values = columns
        state.getAll(keys)
        state.updateAll(keys, values)

    def blind(columns: Any) -> None:
        state.updateAll(*columns)

    return Step({"key": one_by_one, "bulk": in_bulk, "blind": blind}[access], subtask.end_slice)


# ---------------------------------------------------------------- the same without a state


@contextmanager
def _bare(load: Load, tier: KeyedState, folder: Path) -> Iterator[Step]:
    if not isinstance(tier, RocksDBState):
        rows: dict[str, str] = {}
        for some in in_slices(range(load.rows)):
            rows.update(pairs_of(some, 0))
        yield Step(_in_dict(rows, load.access), _no_end)
        return
    import rocksdict  # at the first use only, as in a worker

    database = rocksdict.Rdict(str(folder / "bare"), RocksDBMemory(tier.memory // 2).options())
    try:
        step = _in_rocksdb(database, load.access)
        blind = _in_rocksdb(database, "blind")
        for some in in_slices(range(load.rows)):
            blind(bulk_of(some, 0))
        yield Step(step, _no_end)
    finally:
        database.close()


def _in_dict(rows: dict[str, str], access: str) -> Callable[[Any], None]:
    def one_by_one(pairs: Any) -> None:
        get = rows.get
        for key, value in pairs:
            get(key)
            rows[key] = value

    def in_bulk(columns: Any) -> None:
        keys, values = columns
        list(map(rows.get, keys))
        rows.update(zip(keys, values, strict=True))

    return one_by_one if access == "key" else in_bulk


def _in_rocksdb(database: Any, access: str) -> Callable[[Any], None]:
    import rocksdict

    options = rocksdict.WriteOptions()
    options.disable_wal = True  # type: ignore[method-assign,assignment]  # a property, whatever the stub says

    def one_by_one(pairs: Any) -> None:
        get, put = database.get, database.put
        for key, value in pairs:
            encoded = key.encode()
            get(encoded)
            put(encoded, value.encode(), options)

    def blind(columns: Any) -> None:
        for some in in_slices(list(zip(*columns, strict=True)), _BATCH_ROWS):
            batch = rocksdict.WriteBatch(raw_mode=True)
            for key, value in some:
                batch.put(key.encode(), value.encode())
            database.write(batch, options)

    def in_bulk(columns: Any) -> None:
        database.get([key.encode() for key in columns[0]])
        blind(columns)

    return {"key": one_by_one, "bulk": in_bulk, "blind": blind}[access]


class _SumsInDict:
    """Sums of columns in a plain dict."""

    def __init__(self) -> None:
        self.rows: dict[int, int] = {}

    def add(self, columns: Any) -> None:
        """Add the values of a column to the sums of the keys of another column."""
        rows, (keys, values) = self.rows, columns
        for key, value in zip(keys.tolist(), values.tolist(), strict=True):
            rows[key] = rows.get(key, 0) + value
