"""A subtask with keyed state, and the storage of its worker, without a run.

The parts are those of a worker: machine, tier, generation logs, storage threads, backend. The benchmark is in place of
links, coordinator and loop. The thread that owns a `StoredSubtask` is the subtask's thread.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa

from cutline import Context, FileSystemBackend, Graph, Node, Source
from cutline.barrier_runtime.worker.uploads import Storage
from cutline.snapshot.assembly import assemble, ledgers_of
from cutline.snapshot.channel.frame import Marker
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.coordinator.control import Deploy, RestoredSubtask, SnapshotAcknowledged, SnapshotDeclined
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.keyed.encoding import emptying
from cutline.snapshot.keyed.keyed_states import SWEPT_MAX
from cutline.snapshot.keyed.segment import Segment
from cutline.snapshot.plan.compiled_graph import build
from cutline.snapshot.stored.certificate import SubtaskRecord
from cutline.snapshot.stored.contribution import Contribution
from cutline.snapshot.stored.keyed_state import read_segments
from cutline.snapshot.stored.run_store import RunStore
from cutline.snapshot.subtask.environment import SubtaskEnvironment
from cutline.snapshot.subtask.events import MarkerArrived, Started
from cutline.snapshot.subtask.limits import SubtaskLimits
from cutline.snapshot.subtask.machine import SubtaskMachine
from cutline.snapshot.subtask.restored import RestoredChannels
from cutline.snapshot.subtask.strand import ChangeCaptured
from cutline.snapshot.worker.acknowledgements import Acknowledgements, LedgerDecisions
from cutline.snapshot.worker.events import PartsRead, PartsStored, PartsUnreadable, Performed
from cutline.snapshot.worker.generations import CompactRows, StoreRows
from cutline.snapshot.worker.ledger import CollectorTask, Task, TaskFailed
from cutline.snapshot.worker.restored_parts import RestoredParts
from cutline.snapshot.worker.upload_batcher import PendingUpload
from cutline.state_backends.keyed_state import HeapState, RocksDBState

KeyedState = HeapState | RocksDBState

#: Seconds after which rows of the state `expiring` expire.
EXPIRY_SECONDS = 3600.0

_RUN = "keyed-state"
_SUBTASK = Subtask("state")
_CHANNEL = ChannelId(Subtask("source"), _SUBTASK)

#: Columns of the batches that `Sums` would receive.
_SCHEMA = pa.schema([pa.field("key", pa.int64()), pa.field("value", pa.int64())])

#: Seconds after which a step of storage counts as hanging.
_DEADLINE_S = 600.0

#: Seconds between two turns of a subtask that waits.
_TURN_SECONDS = 0.001


class _NoSource(Source):
    def poll(self, context: Context) -> Any:
        raise AssertionError("the source of this graph does not run")


class Rows(Node):
    """A node with one value for each key, and timers."""

    def open(self, context: Context) -> None:
        self.rows = context.getValueState("rows")
        self.expiring = context.getValueState("expiring", ttl=EXPIRY_SECONDS)

    def onMessage(self, message: Any, context: Context) -> None:
        raise AssertionError("the benchmark calls the state itself")

    def onTimer(self, at: float, context: Context) -> None:
        raise AssertionError("no timer of the benchmark is due")


class Sums(Node):
    """A node with one sum for each key, of batches only."""

    def open(self, context: Context) -> None:
        self.rows = context.getReducingState("rows", "sum")

    def onBatch(self, batch: Any, context: Context) -> None:
        raise AssertionError("the benchmark calls the state itself")


class Pause(NamedTuple):
    """How long a cut took."""

    seconds: float
    #: of the subtask's thread, which no other process and no other thread makes longer
    processor_seconds: float


@dataclass(frozen=True, slots=True)
class Written:
    """Bytes of rows in files, envelopes included."""

    #: of each segment that a snapshot has added
    deltas: list[int]
    #: of each segment that compaction has made
    merged: list[int]

    def clear(self) -> None:
        """Begin to count anew."""
        self.deltas.clear()
        self.merged.clear()


class StoredSubtask:
    """A subtask with keyed state, and the storage of its worker.

    Parameters
    ----------
    node : Node
        With an attribute `rows`, its state, once the node is open.
    tier : HeapState or RocksDBState
    folder : Path
        Where snapshots are stored.
    record : SubtaskRecord or None
        What to restore, or None for a fresh subtask.
    """

    def __init__(self, node: Node, tier: KeyedState, folder: Path, record: SubtaskRecord | None = None) -> None:
        #: what the last acknowledged snapshot has stored
        self.record = record
        self.written = Written([], [])
        #: seconds from the cut to the acknowledgement of the last snapshot
        self.stored_seconds = 0.0
        self._woken = threading.Event()
        self._store = RunStore(FileSystemBackend(folder), _RUN)
        compiled = build(_graph(node), "unaligned")
        self._storage = Storage(self._store, self._woken.set, tier, compiled, codec=Codec())
        self._incarnation = 1 if record is None else record.incarnation + 1
        self._snapshot_id = 0 if record is None else record.state.snapshot_id
        self._cut_at = 0.0
        #: tasks and uploads that storage has not finished
        self._pending = 0
        #: messages to the coordinator that were not handled
        self._messages: deque[Any] = deque()
        environment = _environment(self._incarnation, tier.tiers(self._incarnation, 1, self._woken.set))
        assembled = assemble(_SUBTASK, compiled, environment, RestoredChannels())
        self._keyed, self._timers = assembled.core.keyed, assembled.core.timers
        self._machine = SubtaskMachine(assembled)
        parts = self._read()
        now = time.time()
        inline_bytes_max, machines = self._store.backend.inline_bytes_max, {_SUBTASK: self._machine}
        ledgers = ledgers_of(parts.deploy, _RUN, machines, inline_bytes_max)
        self._acknowledgements = Acknowledgements(self._incarnation, ledgers)
        self._machine.restore(parts.restored(parts.deploy.subtasks[0], _RUN), now)
        self._machine.step(Started(), now)
        #: the state of the node
        self.rows: Any = self._machine.node.rows  # type: ignore[attr-defined]

    @property
    def context(self) -> Any:
        """The context of the node, whose current key the caller sets."""
        return self._machine.context

    def close(self) -> None:
        """End the threads, and give up the rows."""
        self._machine.close()
        self._storage.close()

    # ---------------------------------------------------------------- the loop

    def turn(self) -> None:
        """Do what a worker's loop does in a turn without a message."""
        self._machine.run(time.time(), 0)
        self._take_reports()
        self._take_results()

    def end_slice(self) -> None:
        """Do what a worker's loop does after a slice of messages. Wait while the subtask gets no further event."""
        self.turn()
        while self._machine.backpressure.closed:
            self._wait()

    def cut(self) -> Pause:
        """Take a snapshot. Return for how long the subtask paused. Storing begins."""
        self._snapshot_id += 1
        marker = Marker(self._snapshot_id, self._snapshot_id, 0, aligned=False)
        now = time.time()
        self._cut_at, processor_began = time.perf_counter(), time.thread_time()
        self._machine.step(MarkerArrived(_CHANNEL, marker), now)
        processor_seconds = time.thread_time() - processor_began
        paused = Pause(time.perf_counter() - self._cut_at, processor_seconds)
        self._take_reports()
        return paused

    def _take_reports(self) -> None:
        for report in self._machine.take_reports():
            match report:
                case ChangeCaptured():
                    self._perform(self._acknowledgements.captured(report))
                case Contribution():
                    self._pending += 1
                    self._storage.upload((PendingUpload(report, time.monotonic()),), self._incarnation)
                case _:
                    raise RuntimeError(f"the subtask reports {report}")

    @property
    def is_storing(self) -> bool:
        """True while storage works for a snapshot, or compacts. `turn` takes its results."""
        return self._pending > 0

    @property
    def is_acknowledged(self) -> bool:
        """True when the last snapshot is stored. Compaction may work on."""
        return self._snapshot_id == (0 if self.record is None else self.record.state.snapshot_id)

    def await_stored(self) -> None:
        """Wait until all is stored, compaction included."""
        while self.is_storing:
            self._wait()

    def remove_unlisted(self, before: SubtaskRecord | None, record: SubtaskRecord | None) -> None:
        """Remove the files that `before` lists and `record` does not, as retention does. Safe from any thread."""
        if before is not None and record is not None:
            kept = {handle.path for handle in record.all_handles}
            gone = {handle.path for handle in before.all_handles} - kept
            self._store.backend.delete(*sorted(path for path in gone if path is not None))

    def _wait(self) -> None:
        self._woken.wait(_TURN_SECONDS)
        self._woken.clear()
        self.turn()

    def _take_results(self) -> None:
        while (finished := self._storage.take()) is not None:
            self._pending -= 1
            match finished:
                case PartsStored(messages):
                    self._perform(self._acknowledgements.parts_stored(messages))
                case Performed(_, task, result) if not isinstance(task, CollectorTask):
                    self._note_written(task, result)
                    self._perform(self._acknowledgements.done(task, result))
                case _:
                    raise RuntimeError(f"storage has finished {finished}")

    def _note_written(self, task: Task, result: Any) -> None:
        if isinstance(task, StoreRows | CompactRows) and not isinstance(result, TaskFailed):
            sizes = self.written.merged if isinstance(task, CompactRows) else self.written.deltas
            sizes.append(sum(entry.handle.size for entry in result))

    def _perform(self, decisions: LedgerDecisions) -> None:
        for task in decisions.tasks:
            self._pending += 1
            self._storage.perform(task, self._incarnation)
        for message in decisions.messages:
            match message:
                case SnapshotAcknowledged():
                    self.record = message.record
                    self.stored_seconds = time.perf_counter() - self._cut_at
                    self._acknowledgements.settled(0, message.snapshot_id + 1)
                case SnapshotDeclined():
                    raise RuntimeError(message.reason)

    def segments(self, record: SubtaskRecord) -> Iterator[Segment]:
        """Return the rows that a snapshot needs, oldest first."""
        return read_segments(record.rows or (), self._store.read_part)

    def discard_changes(self) -> None:
        """Forget which rows have changed, because no snapshot follows."""
        captured = self._keyed.capture(time.time())
        for table in () if captured is None else captured.tables:
            if table.release():
                for _ in emptying(table):
                    pass

    # ---------------------------------------------------------------- what a hook would do

    def get_and_update(self, key: Any, value: Any) -> None:
        """Read and write the row of one key, as a hook with this key does."""
        self.context.key, self.context.has_key = key, True
        self.rows.get()
        self.rows.update(value)
        self.context.key, self.context.has_key = None, False

    def expire_soon(self, key: Any) -> None:
        """Write a row that expires."""
        self.context.key, self.context.has_key = key, True
        self._machine.node.expiring.update(1)  # type: ignore[attr-defined]
        self.context.key, self.context.has_key = None, False

    def register_timer(self, key: Any) -> None:
        """Register a timer that is not due during a benchmark."""
        self.context.key, self.context.has_key = key, True
        self.context.registerTimer(self.context.now + 1_000 * EXPIRY_SECONDS)
        self.context.key, self.context.has_key = None, False

    @property
    def timer_count(self) -> int:
        """Number of registered timers."""
        return sum(1 for _ in self._timers.each())

    def sweep_seconds(self, rows: int) -> list[float]:
        """Let as many rows of `expire_soon` expire. Return the seconds of each turn that removes some.

        Processor time, because a turn waits for nobody.
        """
        found, now = [], time.time() + 2 * EXPIRY_SECONDS
        for _ in range(rows // SWEPT_MAX + 1):
            began = time.thread_time()
            self._machine.run(now, 0)
            found.append(time.thread_time() - began)
        return found

    # ---------------------------------------------------------------- restore

    def _read(self) -> RestoredParts:
        """Read what is restored, as a worker does."""
        record = self.record
        state = None if record is None else record.state
        rows = () if record is None else record.rows or ()
        restored = RestoredSubtask(_SUBTASK, state, (), (), (), rows=rows)
        self._storage.read(Deploy(self._incarnation, (restored,), has_more=False))
        until = time.monotonic() + _DEADLINE_S
        while (finished := self._storage.take()) is None:
            if not self._woken.wait(max(0.0, until - time.monotonic())):
                raise RuntimeError("the parts of the snapshot were not read")
            self._woken.clear()
        match finished:
            case PartsRead(parts):
                return parts
            case PartsUnreadable(_, error):
                raise error
            case _:
                raise RuntimeError(f"storage has finished {finished}")


def _graph(node: Node) -> Graph:
    graph = Graph(_RUN).add("source", _NoSource()).add("state", node)
    if isinstance(node, Sums):
        return graph.connect("source", "state", key="key", schema=_SCHEMA)
    return graph.connect("source", "state", key=str)


def _environment(incarnation: int, tier_of: Callable[[Subtask], Any]) -> SubtaskEnvironment:
    logger = logging.LoggerAdapter(logging.getLogger("benchmarks.keyed_state"), {})
    return SubtaskEnvironment(
        run=_RUN, incarnation=incarnation, codec=Codec(), limits=SubtaskLimits(), spill_of=lambda _: None,
        logger_of=lambda _: logger, chance_of=lambda _: Random(1), stopwatch=time.monotonic, tier_of=tier_of,
    )  # fmt: skip


@contextmanager
def opened(node: Node, tier: KeyedState, folder: Path, record: SubtaskRecord | None = None) -> Iterator[StoredSubtask]:
    """Open a subtask, and close it at the end."""
    subtask = StoredSubtask(node, tier, folder, record)
    try:
        yield subtask
    finally:
        subtask.close()
