"""The coordinator's store of a run's trace: undecoded chunks of workers, and the coordinator's own events.

The store is bounded and in memory, so a killed coordinator loses the trace. Must not know the contents of a chunk.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from cutline.barrier_runtime import clock
from cutline.barrier_runtime.tracing.chunks import RARE_EVENTS_MAX, TraceChunk, WorkerTrace, frequent_events_max
from cutline.snapshot.coordinator.control import Deploy
from cutline.snapshot.coordinator.events import Effect, SendToWorker
from cutline.snapshot.coordinator.machine import CoordinatorMachine, Outcome
from cutline.snapshot.ids import Subtask
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.trace_events import Event, Kind

#: characters kept of a reason: of its first line, without a traceback
REASON_CHARACTERS_MAX = 200


@dataclass(frozen=True, slots=True)
class KeptTrace:
    """The kept trace, in the form that is sent to the driver."""

    chunks: tuple[TraceChunk, ...]
    #: events of the run, in order
    events: tuple[Event, ...]
    #: True when no more events can come, unless workers register again
    is_whole: bool


class TraceStore:
    """Keeps the newest events of each subtask and of the run.

    Parameters
    ----------
    topology : Topology
    """

    def __init__(self, topology: Topology) -> None:
        self._frequent_events_max = frequent_events_max(topology)
        #: {(subtask, frequent): the newest chunks}
        self._rings: dict[tuple[Subtask, bool], _Ring] = {}
        self._events: deque[Event] = deque(maxlen=RARE_EVENTS_MAX)
        # The coordinator's values at the last `collect`.
        #: {id of a started snapshot, not known to be published: its incarnation}
        self._started: dict[int, int] = {}
        self._aborted_count = 0
        self._restart_count = 0
        self._incarnation = 0
        self._deployed = 0
        self._outcome: Outcome | None = None

    def take(self, trace: WorkerTrace) -> None:
        """Keep the chunks that a worker sent."""
        for chunk in trace.chunks:
            key = (chunk.subtask, chunk.is_frequent)
            if key not in self._rings:
                self._rings[key] = _Ring(self._frequent_events_max if chunk.is_frequent else RARE_EVENTS_MAX)
            self._rings[key].add(chunk)

    def collect(self, coordinator: CoordinatorMachine, effects: Iterable[Effect]) -> None:
        """Note the events of a coordinator's step, and the deployments among its `effects`."""
        for snapshot_id in [each for each in coordinator.history if each in self._started]:
            self._note(Kind.PUBLISHED, self._started.pop(snapshot_id), snapshot_id)
        for restart in coordinator.restarts.since(self._restart_count):
            self._note(Kind.FAILED, self._incarnation, text=restart.reason)
        if self._outcome is None and coordinator.outcome is Outcome.FAILED:
            self._note(Kind.FAILED, self._incarnation, text=coordinator.reason)
        for snapshot_id, reason in coordinator.aborted.since(self._aborted_count):
            self._note(Kind.ABORTED, self._incarnation, snapshot_id, reason)
        for snapshot_id in coordinator.pending:
            self._started.setdefault(snapshot_id, coordinator.incarnation)
        self._aborted_count, self._restart_count = coordinator.aborted.count, coordinator.restarts.count
        self._incarnation, self._outcome = coordinator.incarnation, coordinator.outcome
        for effect in effects:
            if isinstance(effect, SendToWorker) and isinstance(effect.message, Deploy):
                self._note_deployed(effect.message)

    def kept(self, *, is_whole: bool) -> KeptTrace:
        """Return all kept chunks and events. May be called on any thread."""
        chunks = [chunk for ring in list(self._rings.values()) for chunk in tuple(ring.chunks)]
        return KeptTrace(tuple(chunks), tuple(self._events), is_whole)

    def _note_deployed(self, deploy: Deploy) -> None:
        """Note the deployment of an incarnation, at its first `Deploy` message."""
        if deploy.incarnation > self._deployed:
            self._deployed = deploy.incarnation
            # Cleared only now, because until now the store could report a given-up snapshot as published.
            self._started.clear()
            states = [restored.state for restored in deploy.subtasks if restored.state is not None]
            self._note(Kind.DEPLOYED, deploy.incarnation, states[0].snapshot_id if states else 0)

    def _note(self, kind: Kind, incarnation: int, snapshot_id: int = 0, text: str = "") -> None:
        line = text.partition("\n")[0][:REASON_CHARACTERS_MAX]
        self._events.append(Event(clock.now(), kind, incarnation, None, snapshot_id=snapshot_id, text=line))


class _Ring:
    """The newest chunks of one subtask and sort: as few as hold `events_max` events, or all if they hold fewer."""

    def __init__(self, events_max: int) -> None:
        self.chunks: deque[TraceChunk] = deque()
        self._events_max = events_max
        self._event_count = 0

    def add(self, chunk: TraceChunk) -> None:
        """Keep a chunk. Drop the oldest chunks while the remaining chunks hold enough events."""
        self.chunks.append(chunk)
        self._event_count += chunk.event_count
        while self._event_count - self.chunks[0].event_count >= self._events_max:
            self._event_count -= self.chunks.popleft().event_count
