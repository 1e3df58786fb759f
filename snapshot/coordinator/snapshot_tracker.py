"""What the coordinator does about snapshots: triggers them, collects their parts, closes them, answers orders.

Between the book, which keeps count, and the workers, who are told. Must not know the run's phases, nor who may
publish: it is asked only while the run may, and hands a whole snapshot back as a manifest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from snapshot.coordinator.control import (
    AnnouncePublished,
    AnswerSnapshotRequest,
    DiscardSnapshotsBelow,
    EndComponent,
    SnapshotAcknowledged,
    TriggerSnapshot,
)
from snapshot.coordinator.events import CloseRequest
from snapshot.coordinator.outbox import Outbox
from snapshot.coordinator.pending_snapshot import Initiator, PendingSnapshot, SnapshotPolicy, SnapshotRequest
from snapshot.coordinator.snapshot_table import SnapshotTable
from snapshot.coordinator.termination import ended_components, is_final
from snapshot.coordinator.worker_registry import WorkerRegistry
from snapshot.ids import Subtask
from snapshot.plan.topology import Topology
from snapshot.stored.certificate import problems
from snapshot.stored.manifest import Manifest
from snapshot.stored.topology_record import record_of_topology

#: Subtasks, or problems, that a reason names; the first few tell what is wrong, thousands would hide it.
_NAMED_MAX = 5


class SnapshotTracker:
    """The snapshots of one life of a coordinator.

    Parameters
    ----------
    run : str
    topology : Topology
    placement : mapping of Subtask to int
        Number of the worker of each subtask.
    policy : SnapshotPolicy
    registry : WorkerRegistry
    outbox : Outbox
    """

    def __init__(
        self,
        run: str,
        topology: Topology,
        placement: Mapping[Subtask, int],
        policy: SnapshotPolicy,
        registry: WorkerRegistry,
        outbox: Outbox,
    ) -> None:
        self.table = SnapshotTable(policy, len(topology.subtasks), outbox.epoch_offset)
        #: (id, reason) of those that were given up, in order
        self.aborted: list[tuple[int, str]] = []
        self._run = run
        self._topology = topology
        self._placement = placement
        self._registry = registry
        self._outbox = outbox
        #: {snapshot_id: what is to be written}; exactly those that are being published
        self._manifests: dict[int, Manifest] = {}
        #: nodes of the cycles that were told, in this incarnation, that they are over
        self._ended_components: list[tuple[str, ...]] = []

    # ---------------------------------------------------------------- between two incarnations

    def take_block(self, claim: int, history: Sequence[int]) -> None:
        """A claim was taken, which found `history` published: its ids are used from now on (PROTOCOL 3.2)."""
        self.table.take_block(claim, history, self._outbox.now)

    def give_up_all(self, reason: str) -> None:
        """The data goes. What waits to be published stays undecided: the next listing tells (PROTOCOL 7.6)."""
        for snapshot in self.table.collecting():
            self.aborted.append((snapshot.snapshot_id, reason))
        self.table.give_up_all(reason, self._outbox.now)
        self._manifests.clear()
        self._ended_components.clear()

    def announce_min_snapshot_id(self) -> None:
        """Tell everybody which snapshots are over (PROTOCOL 3.4)."""
        self._outbox.broadcast(DiscardSnapshotsBelow(self._registry.incarnation, self.table.min_snapshot_id))

    def announce(self, snapshot_id: int, *, is_last: bool = False) -> None:
        """Tell everybody that `snapshot_id` is published."""
        self._outbox.broadcast(
            AnnouncePublished(self._registry.incarnation, snapshot_id, self.table.min_snapshot_id, is_last)
        )

    # ---------------------------------------------------------------- triggering

    def add_request(self, request: SnapshotRequest) -> None:
        """Somebody in the driver waits for a snapshot."""
        unknown = [s for s in request.initiators or () if s not in self._placement]
        if unknown:
            self.refuse(request, f"there is no {unknown[0]}")
        else:
            self.table.requests.append(request)

    def trigger_requested(self) -> None:
        """Start what the driver waits for, as far as there is room."""
        while self.table.requests and self.table.has_room:
            first = self.table.requests[0]
            self._trigger(Initiator.REQUEST, self._able(first.initiators or ()), first)

    def trigger_idle(self) -> None:
        """Start one because all is quiet."""
        self._trigger(Initiator.IDLE, ())

    def trigger_due(self) -> None:
        """Start one if its time has come."""
        due = self.table.trigger_at()
        if due is not None and self._outbox.now >= due:
            self._trigger(Initiator.INTERVAL, ())

    def ask(self, subtask: Subtask, incarnation: int, *, may_start: bool) -> None:
        """A node called `requestSnapshot`; policy may refuse (PROTOCOL 3.1)."""
        starts = may_start and self.table.may_ask(self._outbox.now)
        if starts:
            able = self._able((subtask,))
            self._trigger(Initiator.NODE, able)
            if able:
                return  # the trigger is the answer
        self._outbox.send(self._placement[subtask], AnswerSnapshotRequest(incarnation, subtask))

    def _able(self, wanted: Iterable[Subtask]) -> tuple[Subtask, ...]:
        """PROTOCOL 4.2: who has aligned inputs cannot initiate; the request is passed to those who can."""
        inputs = {subtask: self._topology.inputs_of(subtask) for subtask in wanted}
        # All edges into one node agree (PROTOCOL 4.1), so the first answers for all.
        return tuple(s for s, c in inputs.items() if not c or not self._topology.edge_of(c[0]).alignment.aligned)

    def _trigger(self, why: Initiator, initiators: tuple[Subtask, ...], *requests: SnapshotRequest) -> None:
        snapshot = self.table.open(self._outbox.now, requests, why)
        # PROTOCOL 3.5: whom the initiators do not reach, the graph's own initiators do.
        reached = dict.fromkeys(self._topology.reachable(initiators))
        everybody = (*initiators, *(s for s in self._topology.initiators() if s not in reached))
        by_worker: dict[int, list[Subtask]] = {}
        for subtask in dict.fromkeys(everybody):
            by_worker.setdefault(self._placement[subtask], []).append(subtask)
        running = self.table.running_below(snapshot.snapshot_id)
        for worker, subtasks in by_worker.items():
            at = (self._registry.incarnation, snapshot.snapshot_id)
            self._outbox.send(worker, TriggerSnapshot(*at, tuple(subtasks), running, self.table.min_snapshot_id))

    # ---------------------------------------------------------------- collecting and publishing

    def acknowledge(self, message: SnapshotAcknowledged) -> PendingSnapshot | None:
        """One subtask's part is durable; the snapshot when that was the last one."""
        return self.table.acknowledge(message.snapshot_id, message.record, message.timings, self._outbox.now)

    def problems(self, snapshot: PendingSnapshot) -> str:
        """What is wrong with a whole snapshot; "" when its cut is exact (PROTOCOL 2)."""
        topology = self._topology
        records = list(snapshot.records.values())
        return "; ".join(
            problems(topology.channels, topology.subtasks, records, self._registry.incarnation)[:_NAMED_MAX]
        )

    def begin_publish(self, snapshot: PendingSnapshot, claim: int) -> None:
        """Make the manifest of a whole snapshot; from now on only the store can end it (PROTOCOL 7.6)."""
        now = self._outbox.now
        for lower in self.table.collecting():
            # Publication goes up only, so whatever this one overtook is over.
            if lower.snapshot_id < snapshot.snapshot_id:
                reason = f"snapshot {snapshot.snapshot_id} was whole first"
                self.table.close_superseded(lower.snapshot_id, snapshot.snapshot_id, reason, now)
                self.aborted.append((lower.snapshot_id, reason))
        snapshot.is_publishing = True
        records = tuple(snapshot.records[subtask] for subtask in self._topology.subtasks)
        self._manifests[snapshot.snapshot_id] = Manifest(
            run=self._run,
            snapshot_id=snapshot.snapshot_id,
            incarnation=self._registry.incarnation,
            claim=claim,
            timestamp=snapshot.started_at + self._outbox.epoch_offset,
            duration=now - snapshot.started_at,
            final=is_final(records),
            pinned=snapshot.pinned,
            topology=record_of_topology(self._topology),
            records=records,
        )

    def manifest(self, snapshot_id: int) -> Manifest:
        """Of a snapshot that is being published."""
        return self._manifests[snapshot_id]

    def mark_published(self, snapshot_id: int) -> tuple[Manifest, list[SnapshotRequest]]:
        """It is published; `announce` it. Returns what it is, and the orders that it met."""
        snapshot = self.table.close_published(snapshot_id, self._outbox.now)
        for request in snapshot.requests:
            self._outbox.put(CloseRequest(request.request_id, snapshot_id, ""))
        return self._manifests.pop(snapshot_id), snapshot.requests

    def end_components(self, manifest: Manifest) -> None:
        """Tell the cycles that a published snapshot shows to be over; each once."""
        for part in ended_components(self._topology, manifest.records):
            if part.nodes not in self._ended_components:
                self._ended_components.append(part.nodes)
                self._outbox.broadcast(EndComponent(self._registry.incarnation, part.nodes))

    # ---------------------------------------------------------------- giving up

    def abort(self, snapshot_id: int, reason: str) -> None:
        """Give one up. Its orders are answered; who takes part is told by `announce_min_snapshot_id`."""
        self._manifests.pop(snapshot_id, None)
        self.aborted.append((snapshot_id, reason))
        for request in self.table.close_failed(snapshot_id, reason, self._outbox.now).requests:
            self.refuse(request, f"snapshot {snapshot_id}: {reason}")

    def why_overdue(self, snapshot: PendingSnapshot) -> str:
        """A deadline names who is missing."""
        missing = snapshot.missing(self._topology.subtasks)
        who = ", ".join(str(subtask) for subtask in missing[:_NAMED_MAX])
        seconds = self.table.policy.timeout
        return f"not whole after {seconds:g} s; {len(missing)} of {len(self._topology.subtasks)} are missing: {who}"

    def expire_requests(self, phase: str) -> None:
        """Answer those who have waited long enough for a snapshot to begin."""
        for request in self.table.expire_requests(self._outbox.now):
            self.refuse(request, f"none could be started in time; the run is {phase}")

    def close(self, reason: str) -> None:
        """The run has ended: nobody needs to wait any more."""
        self.give_up_all(reason)
        self.table.end(self._outbox.now)
        for request in self.table.take_requests():
            self.refuse(request, reason)

    def refuse(self, request: SnapshotRequest, reason: str) -> None:
        """Answer an order with the reason why there is no snapshot."""
        self._outbox.put(CloseRequest(request.request_id, None, reason))
