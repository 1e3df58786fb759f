"""A tier with a bounded part of the rows in memory, and all older rows in a store of bytes.

Owns when changed rows leave memory. Must not know how the store keeps rows, nor which thread writes to it.

::

    write ─> live and dirty ─ seal ─> memtables ─ encoded once ─ writer ─> store
                                                       └──────── storage ─> rows that wait for the next snapshot
    read  <─ live <──────────<─ dirty <─ memtables, newest first <─ store

`live` is a cache of whole keys, and is dropped whole when it is full. A memtable is read-only. It leaves the read path
and is emptied after the writer has applied it, and leaves memory after storage has its encoded rows too. While
`WAITING_MAX` memtables wait for the writer, or `HELD_MAX` are in memory, the subtask gets no further event. So memory
is bounded without snapshots, and while the store of snapshots hangs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from sys import getsizeof
from typing import Any, Final

from cutline.snapshot.channel.output_buffer import BackpressureFlag
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.errors import StateError
from cutline.snapshot.keyed.cold_expiry import ExpiredRows
from cutline.snapshot.keyed.cold_restore import ingested_rows
from cutline.snapshot.keyed.cold_rows import CachedRows
from cutline.snapshot.keyed.cold_timers import ColdTimers
from cutline.snapshot.keyed.encoding import emptying, encoding_tables
from cutline.snapshot.keyed.memtable import Memtable, MemtableGate
from cutline.snapshot.keyed.restored_rows import RestoredRows
from cutline.snapshot.keyed.row_keys import EXPIRIES_START, TIMERS_START
from cutline.snapshot.keyed.row_store import BUSY_SECONDS, Job, RowStore, Writer
from cutline.snapshot.keyed.rows import CapturedRows, DirtyRows, DirtyTable, StateSpec
from cutline.snapshot.keyed.segment import Segment
from cutline.snapshot.keyed.table import StateTable
from cutline.snapshot.keyed.tier import KeyedTimers, TakeDirty
from cutline.snapshot.keyed.versions import LocalVersion, PendingVersion, VersionedState, decode_states, encode_states
from cutline.snapshot.plan.topology import KEY_GROUPS

#: Rows whose size is measured at a check.
_SAMPLED_ROWS: Final = 16

#: Entries of a list that are freed together.
_FREED_ENTRIES: Final = 1_000

#: bytes of a row beside its key and its value: its places in `live` and in `dirty`
_ROW_BYTES: Final = 200

#: bytes of a changed timer: in the changed rows, and in a heap
_TIMER_BYTES: Final = 500

_NEAR_TIMERS_MIN: Final = 1_024


@dataclass(frozen=True, slots=True)
class ColdLimits:
    """What one subtask may hold in memory."""

    #: changed rows, and their bytes, at which they are sealed as a memtable
    memtable_rows: int = 262_144
    memtable_bytes: int = 64 * 1024 * 1024
    #: cached rows, and their bytes, at which the cache is dropped
    cached_rows: int = 262_144
    cached_bytes: int = 64 * 1024 * 1024
    #: admitted keys between two checks of these limits inside a hook
    checked_keys: int = 1_024
    #: keyed timers in memory that are in the store too
    near_timers: int = 16_384
    #: timers that are read from the store together; 256 take some 0.3 ms
    loaded_timers: int = 256

    def within(self, bytes_max: int) -> ColdLimits:
        """Return limits for a subtask that may hold `bytes_max`: five memtables and a cache of two."""
        share = max(1, bytes_max // 7)
        return replace(
            self,
            memtable_bytes=min(self.memtable_bytes, share),
            cached_bytes=2 * share,
            cached_rows=max(1, 2 * share // _ROW_BYTES),
            near_timers=max(_NEAR_TIMERS_MIN, min(self.near_timers, share // _TIMER_BYTES)),
        )


class ColdTier:
    """The tier of one subtask. See `Tier`.

    Parameters
    ----------
    open_store : callable
        Opens the store, empty or as a version of it was, and starts its writer. Called at the first use, in the process
        of the subtask.
    limits : ColdLimits
    """

    has_turns = True
    has_columns = False

    def __init__(
        self, open_store: Callable[[LocalVersion | None], tuple[RowStore, Writer]], limits: ColdLimits | None = None
    ) -> None:
        self._open_store = open_store
        self._limits = limits or ColdLimits()
        self._opened: tuple[RowStore, Writer] | None = None
        self._tables: list[StateTable] = []
        self._cached: list[CachedRows] = []
        self._timers: KeyedTimers | None = None
        self._take: TakeDirty = tuple
        self._gate = MemtableGate(BackpressureFlag())
        #: {name of a state: the state in the store}, also of states that were restored and that no node asks for
        self._states: dict[str, VersionedState] = {}
        #: versions that are not made yet
        self._pending: list[PendingVersion] = []
        #: memtables in the read path, oldest first
        self.memtables: list[Memtable] = []
        #: changed rows since the last capture that are sealed, in their sequence
        self._interval: list[DirtyRows] = []
        self._admitted = 0
        self._expired = ExpiredRows()

    # ---------------------------------------------------------------- assembly

    def bind(self, take: TakeDirty, backpressure: BackpressureFlag) -> None:
        """See `Tier`."""
        self._take, self._gate = take, MemtableGate(backpressure)

    def open_state(self, table: StateTable, rows: RestoredRows) -> None:
        """See `Tier`."""
        rows.check_kind(table.spec.name, table.spec.kind)
        cached = CachedRows(table, self, self.number_of(table.spec))
        if table.is_timed:
            self._note_timed(table.spec.name)
        table.attach(cached)
        self._tables.append(table)
        self._cached.append(cached)

    def open_timers(self, timers: KeyedTimers, rows: RestoredRows) -> None:
        """See `Tier`."""
        self._timers = timers
        timers.attach(
            ColdTimers(
                self, self._limits.near_timers, self._limits.loaded_timers, is_restored=self._opened is not None,
                discard=lambda heap: self._open()[1].submit(_freeing(heap)),
            )
        )  # fmt: skip

    @property
    def store(self) -> RowStore:
        """The store of the subtask, opened at the first use."""
        return self._open()[0]

    def _open(self) -> tuple[RowStore, Writer]:
        if self._opened is None:
            self._opened = self._open_store(None)
        return self._opened

    def number_of(self, spec: StateSpec) -> int:
        """Return the number of a state in the store."""
        state = self._states.get(spec.name)
        if state is None:
            state = self._states[spec.name] = VersionedState(spec.name, spec.kind, len(self._states), is_timed=False)
        return state.number

    def _note_timed(self, name: str) -> None:
        self._states[name] = replace(self._states[name], is_timed=True)

    def close(self) -> None:
        """See `Tier`."""
        for version in self._pending:
            version.failure = "its subtask was closed"
        if self._opened is not None:
            store, writer = self._opened
            writer.close()
            store.close()

    # ---------------------------------------------------------------- restore

    def restore(self, rows: RestoredRows) -> None:
        """See `Tier`. Called once, before any other use of the store, in which newer rows replace older ones."""
        if rows.version is not None:
            self._restore_version(rows, rows.version)
        for segment in rows.each():
            for _ in self._adding(segment, rows.now):
                pass  # nobody else computes meanwhile
        for name in self._states:
            if rows.has_expiries(name):
                self._note_timed(name)

    def _restore_version(self, rows: RestoredRows, version: LocalVersion) -> None:
        self._opened = self._open_store(version)
        states = decode_states(self.store.states, f"the version {version.snapshot_id} of {version.subtask}")
        self._states = {state.name: state for state in states}
        rows.know(states)
        for first, _ in islice(self.store.scan(EXPIRIES_START, TIMERS_START), 1):
            self._expired.listed(first)

    # ---------------------------------------------------------------- writes

    def admitted(self) -> None:
        """Note a key that is written and was not cached. Seal and drop what exceeds the limits, once in a while."""
        self._admitted += 1
        if self._admitted >= self._limits.checked_keys:
            self._admitted = 0
            self._check_limits()

    @property
    def is_due(self) -> bool:
        """See `Tier`."""
        if self._opened is None:
            return False
        has_passed = any(memtable.is_applied for memtable in self.memtables[:1]) or bool(self._interval)
        return has_passed or self._gate.can_open or self._expired.is_due(self._now()) or self._opened[1].has_failed

    def turn(self) -> None:
        """See `Tier`. Seal, drop, remove applied memtables from the read path, and expired rows from the store."""
        if self._opened is not None:
            self._opened[1].check()  # because nothing is submitted any more while memtables wait for the writer
        self._check_limits()
        self.collect()
        now = self._now()
        if self._expired.is_due(now):
            self._open()[1].submit(self._expired.removing(self.store, now))

    def _now(self) -> float:
        return self._tables[0].context.now if self._tables else float("-inf")

    def _check_limits(self) -> None:
        rows = 0 if self._timers is None else self._timers.changed_rows
        bytes_, cached, cached_bytes = rows * _TIMER_BYTES, 0, 0
        for table, cache in zip(self._tables, self._cached, strict=True):
            size = _row_bytes(table)
            changed, held = cache.changed_rows(), cache.held_rows()
            rows, bytes_ = rows + changed, bytes_ + changed * size
            cached, cached_bytes = cached + held, cached_bytes + held * size
        if rows >= self._limits.memtable_rows or bytes_ >= self._limits.memtable_bytes:
            self.seal()
        if cached >= self._limits.cached_rows or cached_bytes >= self._limits.cached_bytes:
            for cache in self._cached:
                cache.drop()

    def seal(self) -> None:
        """Make a memtable of the changed rows, and give the memtable to the writer."""
        taken = self._take()
        tables = tuple(table for table in taken if isinstance(table, DirtyTable))
        self._interval += [table for table in taken if not isinstance(table, DirtyTable)]  # a node keeps these itself
        if not tables:
            return
        for cache in self._cached:
            cache.sealed()
        captured = CapturedRows(self._now(), range(KEY_GROUPS), tables)
        memtable = Memtable(tables, encoding_tables(captured, Codec()))
        self.memtables.append(memtable)
        self._gate.add(memtable)
        self._interval.append(memtable)
        self._open()[1].submit(self._applying(memtable))
        self._gate.update(len(self.memtables))

    def _applying(self, memtable: Memtable) -> Job:
        segment = yield from memtable.encoding()
        while self.store.is_busy:
            yield BUSY_SECONDS
        yield from self._adding(segment, segment.now)
        memtable.applied()

    def _adding(self, segment: Segment, now: float) -> Job:
        """Add the rows of a segment to the store."""
        rows = ingested_rows(segment, [self.number_of(spec) for spec in segment.states], now)
        yield from self.store.ingest(rows.parts)
        if rows.first_index_row is not None:
            self._expired.listed(rows.first_index_row)

    def capture(self) -> tuple[DirtyRows, ...]:
        """See `Tier`. Memtables that were sealed since the last call are part of the rows."""
        self.seal()
        return self.take_sealed()

    def take_sealed(self) -> tuple[DirtyRows, ...]:
        """See `Tier`."""
        taken, self._interval = self._interval, []
        return tuple(taken)

    def begin_version(self, snapshot_id: int) -> PendingVersion:
        """See `Tier`."""
        version = PendingVersion(snapshot_id)
        self._pending = [each for each in self._pending if not each.is_over]
        self._pending.append(version)
        self._open()[1].submit(self._making(version, encode_states(tuple(self._states.values()))))
        return version

    def _making(self, version: PendingVersion, states: bytes) -> Job:
        try:
            version.size = yield from self.store.make_version(version.snapshot_id, states)
        except StateError as error:
            version.failure = str(error)  # the snapshot is aborted, and the run goes on
        else:
            version.is_made = True

    def collect(self) -> None:
        """Remove applied memtables from the read path, unless a hook may iterate over them."""
        while self.memtables and self.memtables[0].is_applied and not self._is_iterated():
            for table in self.memtables.pop(0).tables:
                self._open()[1].submit(emptying(table))
        self._gate.update(len(self.memtables))

    def _is_iterated(self) -> bool:
        return any(
            iteration.moment == table.context.moment() for table in self._tables for iteration in table.iterations
        )

    # ---------------------------------------------------------------- reads

    @property
    def has_memtables(self) -> bool:
        """Whether memtables are in the read path."""
        return bool(self.memtables)

    def changed_tables(self, name: str) -> Iterator[DirtyTable]:
        """Yield the rows of a state in memtables, newest first."""
        for memtable in reversed(self.memtables):
            table = memtable.by_name.get(name)
            if table is not None:
                yield table


def _freeing(heap: list[Any]) -> Job:
    """Free a list in small steps, because the interpreter's lock is held meanwhile."""
    while heap:
        del heap[-_FREED_ENTRIES:]
        yield None


def _row_bytes(table: StateTable) -> int:
    """Return the bytes of a row in memory, by a sample of the rows that were cached last."""
    sizes = [
        getsizeof(key) + (sum(map(getsizeof, _sampled(rows))) if isinstance(rows, dict | list) else getsizeof(rows))
        for key, rows in _last(table.live)
    ]
    rows = max(1, sum(len(rows) if isinstance(rows, dict | list) else 1 for _, rows in _last(table.live)))
    return _ROW_BYTES + sum(sizes) // rows


def _last(live: dict[Any, Any]) -> list[tuple[Any, Any]]:
    newest = reversed(live.items())
    return [pair for _, pair in zip(range(_SAMPLED_ROWS), newest)]  # noqa: B905  # the sample is shorter


def _sampled(rows: dict[Any, Any] | list[Any]) -> list[Any]:
    return list(rows.values()) if isinstance(rows, dict) else rows
