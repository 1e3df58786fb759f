"""Trigger the coordinator's snapshots, collect their parts, close them, and answer snapshot requests.

The tracker connects the snapshot table with the workers. The run's phases and the right to publish are outside: the
coordinator calls the tracker only while snapshots are allowed. A complete snapshot becomes a manifest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from cutline.snapshot.coordinator.bounded_history import BoundedHistory
from cutline.snapshot.coordinator.control import (
    AnnouncePublished,
    AnswerSnapshotRequest,
    ClockAnswered,
    DiscardSnapshotsBelow,
    EndComponent,
    SnapshotAcknowledged,
    TriggerSnapshot,
)
from cutline.snapshot.coordinator.cut_start import CutStart
from cutline.snapshot.coordinator.events import CloseRequest
from cutline.snapshot.coordinator.outbox import Outbox
from cutline.snapshot.coordinator.pending_snapshot import Initiator, PendingSnapshot, SnapshotPolicy, SnapshotRequest
from cutline.snapshot.coordinator.snapshot_table import SnapshotTable
from cutline.snapshot.coordinator.termination import ended_components, is_final
from cutline.snapshot.coordinator.worker_registry import WorkerRegistry
from cutline.snapshot.ids import Subtask
from cutline.snapshot.plan.topology import Topology
from cutline.snapshot.stored.certificate import problems
from cutline.snapshot.stored.list_rules import Lists, Made, list_problems_since
from cutline.snapshot.stored.manifest import Manifest
from cutline.snapshot.stored.topology_record import record_of_topology

#: subtasks, or problems, that a reason names, because thousands of names would hide the cause
_NAMED_MAX = 5


class SnapshotTracker:
    """Track the snapshots of one coordinator instance.

    Parameters
    ----------
    run : str
    topology : Topology
    placement : mapping of Subtask to int
        Number of the worker of each subtask.
    policy : SnapshotPolicy
    registry : WorkerRegistry
    outbox : Outbox
    cut_start : CutStart
    """

    def __init__(
        self,
        run: str,
        topology: Topology,
        placement: Mapping[Subtask, int],
        policy: SnapshotPolicy,
        registry: WorkerRegistry,
        outbox: Outbox,
        cut_start: CutStart,
    ) -> None:
        if not cut_start.is_triggered:
            policy = replace(policy, interval=None)
        count, multiple = len(topology.subtasks), topology.row.multiple
        self.table = SnapshotTable(policy, count, outbox.epoch_offset, multiple, topology.aggregates)
        self.cut_start = cut_start
        #: (id, reason) of the aborted snapshots, in order
        self.aborted: BoundedHistory[tuple[int, str]] = BoundedHistory()
        self._run = run
        self._topology = topology
        self._placement = placement
        self._registry = registry
        self._outbox = outbox
        #: {snapshot_id: manifest to write} of exactly the snapshots that are being published
        self.manifests: dict[int, Manifest] = {}
        #: ids of snapshots whose manifest was being written at a rollback; the next listing decides (PROTOCOL 7.6)
        self.undecided: tuple[int, ...] = ()
        #: nodes of the cycles to which `EndComponent` was sent in this incarnation
        self._ended_components: list[tuple[str, ...]] = []

    # ---------------------------------------------------------------- between two incarnations

    def take_block(self, claim: int, history: Sequence[int]) -> None:
        """Use the ids of a new claim, which found `history` published (PROTOCOL 3.2, blocks of ids)."""
        self.table.take_block(claim, history, self._outbox.now)
        self.undecided = ()

    def give_up_all(self, reason: str) -> None:
        """Abort all incomplete snapshots. Complete snapshots stay undecided until the next listing (PROTOCOL 7.6)."""
        for snapshot in self.table.collecting():
            self.aborted = self.aborted.add((snapshot.snapshot_id, reason))
        self.table.give_up_all(reason, self._outbox.now)
        self.undecided += tuple(self.manifests)
        self.manifests.clear()
        self._ended_components.clear()

    def announce_min_snapshot_id(self) -> None:
        """Send the minimum snapshot id to all workers (PROTOCOL 3.4, minimum id)."""
        self._outbox.broadcast(DiscardSnapshotsBelow(self._registry.incarnation, self.table.min_snapshot_id))

    def announce(self, snapshot_id: int, *, is_last: bool = False) -> None:
        """Send the publication of `snapshot_id` to all workers."""
        self._outbox.broadcast(
            AnnouncePublished(self._registry.incarnation, snapshot_id, self.table.min_snapshot_id, is_last)
        )

    # ---------------------------------------------------------------- triggering

    def add_request(self, request: SnapshotRequest) -> None:
        """Add a snapshot request of the driver. Refuse unknown initiators."""
        unknown = [s for s in request.initiators or () if s not in self._placement]
        if unknown:
            self.refuse(request, f"there is no {unknown[0]}")
        else:
            self.table.requests.waiting.append(request)

    def trigger_requested(self) -> None:
        """Start the requested snapshots, as far as there is room."""
        while self.table.requests.waiting and self.table.has_room:
            first = self.table.requests.waiting[0]
            self._trigger(Initiator.REQUEST, self._able(first.initiators or ()), first)

    def trigger_idle(self) -> None:
        """Start a snapshot because all workers are idle."""
        self._trigger(Initiator.IDLE, ())

    def trigger_due(self) -> None:
        """Start a timed snapshot if the snapshot is due."""
        due = self.table.trigger_at()
        if due is not None and self._outbox.now >= due:
            self._trigger(Initiator.INTERVAL, ())

    def ask(self, subtask: Subtask, incarnation: int, *, may_start: bool) -> None:
        """Answer a node's `requestSnapshot`. The policy may refuse the snapshot (PROTOCOL 3.1, ids)."""
        starts = may_start and self.table.may_ask(self._outbox.now)
        if starts:
            able = self._able((subtask,))
            self._trigger(Initiator.NODE, able)
            if able:
                return  # because the trigger is the answer
        self._outbox.send(self._placement[subtask], AnswerSnapshotRequest(incarnation, subtask))

    def _able(self, wanted: Iterable[Subtask]) -> tuple[Subtask, ...]:
        """Return the `wanted` subtasks without aligned inputs, because only these may initiate (PROTOCOL 4.2)."""
        inputs = {subtask: self._topology.inputs_of(subtask) for subtask in wanted}
        # The first edge is enough, because all edges into one node have the same alignment (PROTOCOL 4.1, aligned).
        return tuple(s for s, c in inputs.items() if not c or not self._topology.edge_of(c[0]).alignment.aligned)

    def _trigger(self, why: Initiator, initiators: tuple[Subtask, ...], *requests: SnapshotRequest) -> None:
        snapshot = self.table.open(self._outbox.now, requests, why)
        exchange = self.cut_start.begin(self._registry.incarnation, snapshot.snapshot_id)
        if exchange is None:
            self._start(snapshot, initiators)
            return
        snapshot.start_until = self._outbox.now + min(exchange.seconds_max, self.table.policy.timeout)
        for worker in dict.fromkeys(self._placement[subtask] for subtask in exchange.asked):
            self._outbox.send(worker, exchange.question)

    def answered(self, message: ClockAnswered) -> None:
        """Take the answer of a subtask to the question before a snapshot. Start the snapshot after the last answer."""
        snapshot = self.table.pending.get(message.snapshot_id)
        announcement = None if snapshot is None else self.cut_start.receive(message)
        if snapshot is not None and announcement is not None:
            snapshot.start_until = None
            self._outbox.broadcast(announcement)
            self._start(snapshot, ())

    def _start(self, snapshot: PendingSnapshot, initiators: tuple[Subtask, ...]) -> None:
        by_worker: dict[int, list[Subtask]] = {}
        for subtask in self.cut_start.initiators(initiators):
            by_worker.setdefault(self._placement[subtask], []).append(subtask)
        running = self.table.running_below(snapshot.snapshot_id)
        for worker, subtasks in by_worker.items():
            at = (self._registry.incarnation, snapshot.snapshot_id)
            self._outbox.send(worker, TriggerSnapshot(*at, tuple(subtasks), running, self.table.min_snapshot_id))

    # ---------------------------------------------------------------- collecting and publishing

    def acknowledge(self, message: SnapshotAcknowledged) -> PendingSnapshot | None:
        """Record the durable part of one subtask. Return the snapshot after the last part, else None."""
        return self.table.acknowledge(message.snapshot_id, message.record, message.timings, self._outbox.now)

    def problems(self, snapshot: PendingSnapshot, lists_before: Mapping[Subtask, Lists] | None) -> str:
        """Return the problems of a complete snapshot, or "" if its cut is exact (PROTOCOL 2).

        Parameters
        ----------
        snapshot : PendingSnapshot
        lists_before : mapping of Subtask to Lists, or None
            As for `list_problems_since`. None: unknown, so nothing is compared.
        """
        topology, incarnation = self._topology, self._registry.incarnation
        records = list(snapshot.records.values())
        found = problems(
            topology.channels, topology.subtasks, records, incarnation,
            run=self._run, former_names=topology.former_names,
        )  # fmt: skip
        if lists_before is not None:
            lists = {record.subtask: record.lists for record in records}
            found += list_problems_since(lists_before, lists, Made(self._run, incarnation))
        return "; ".join(found[:_NAMED_MAX])

    def begin_publish(self, snapshot: PendingSnapshot, claim: int) -> None:
        """Make the manifest of a complete snapshot. From now on only the store may end the snapshot (PROTOCOL 7.6)."""
        now = self._outbox.now
        for lower in self.table.collecting():
            # Close overtaken snapshots, because snapshots are published in ascending order only.
            if lower.snapshot_id < snapshot.snapshot_id:
                reason = f"snapshot {snapshot.snapshot_id} was whole first"
                self.table.close_superseded(lower.snapshot_id, snapshot.snapshot_id, reason, now)
                self.aborted = self.aborted.add((lower.snapshot_id, reason))
        snapshot.is_publishing = True
        records = tuple(snapshot.records[subtask] for subtask in self._topology.subtasks)
        self.manifests[snapshot.snapshot_id] = Manifest(
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
            recovery=snapshot.recovery,
        )

    def mark_published(self, snapshot_id: int) -> tuple[Manifest, list[SnapshotRequest]]:
        """Close a published snapshot. Return its manifest and its requests. The caller must call `announce` next."""
        snapshot = self.table.close_published(snapshot_id, self._outbox.now)
        for request in snapshot.requests:
            self._outbox.put(CloseRequest(request.request_id, snapshot_id, ""))
        return self.manifests.pop(snapshot_id), snapshot.requests

    def end_components(self, manifest: Manifest) -> None:
        """Send `EndComponent` once for each cycle that has terminated in a published snapshot."""
        for part in ended_components(self._topology, manifest.records):
            if part.nodes not in self._ended_components:
                self._ended_components.append(part.nodes)
                self._outbox.broadcast(EndComponent(self._registry.incarnation, part.nodes))

    # ---------------------------------------------------------------- giving up

    def abort(self, snapshot_id: int, reason: str) -> None:
        """Abort a snapshot, and refuse its requests. `announce_min_snapshot_id` reports the abort to the workers."""
        self.manifests.pop(snapshot_id, None)
        self.aborted = self.aborted.add((snapshot_id, reason))
        for request in self.table.close_failed(snapshot_id, reason, self._outbox.now).requests:
            self.refuse(request, f"snapshot {snapshot_id}: {reason}")

    def why_overdue(self, snapshot: PendingSnapshot) -> str:
        """Return the reason of a timeout, with the missing subtasks."""
        if snapshot.start_until is not None:
            return self.cut_start.who_is_late(_NAMED_MAX)
        missing = snapshot.missing(self._topology.subtasks)
        who = ", ".join(str(subtask) for subtask in missing[:_NAMED_MAX])
        seconds = self.table.policy.timeout
        return f"not whole after {seconds:g} s; {len(missing)} of {len(self._topology.subtasks)} are missing: {who}"

    def expire_requests(self, phase: str) -> None:
        """Refuse the requests whose deadline has passed before a snapshot began."""
        for request in self.table.requests.take_expired(self._outbox.now):
            self.refuse(request, f"none could be started in time; the run is {phase}")

    def close(self, reason: str) -> None:
        """Abort all snapshots and refuse all requests, because the run has ended."""
        self.give_up_all(reason)
        self.table.end(self._outbox.now)
        for request in self.table.requests.take_all():
            self.refuse(request, reason)

    def refuse(self, request: SnapshotRequest, reason: str) -> None:
        """Refuse a snapshot request, with the reason."""
        self._outbox.put(CloseRequest(request.request_id, None, reason))
