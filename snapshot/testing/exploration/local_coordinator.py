"""The coordinator, as the exploration steps it: the real snapshot tracker, and the starts of a rollback.

Owns when snapshots are started, given up and published, each as an event that may come at any time. The snapshot
tracker makes all decisions. Every complete snapshot is checked here against the log of what really happened.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import assert_never

from cutline.snapshot.assembly import cut_start_of
from cutline.snapshot.coordinator import control
from cutline.snapshot.coordinator.events import SendToWorker
from cutline.snapshot.coordinator.outbox import Outbox
from cutline.snapshot.coordinator.pending_snapshot import PendingSnapshot, SnapshotPolicy, SnapshotRequest
from cutline.snapshot.coordinator.recovery import fresh_start, plan_restore
from cutline.snapshot.coordinator.snapshot_tracker import SnapshotTracker
from cutline.snapshot.coordinator.worker_registry import WorkerRegistry
from cutline.snapshot.ids import Subtask
from cutline.snapshot.plan.compiled_graph import CompiledGraph
from cutline.snapshot.stored.manifest import Manifest
from cutline.snapshot.testing.checking.verdict import CheckFailed
from cutline.snapshot.testing.exploration.cut_check import CheckedCuts, check_cut, check_invariants, check_order
from cutline.snapshot.testing.exploration.fingerprint import fingerprint
from cutline.snapshot.testing.exploration.local_states import Said, View
from cutline.snapshot.testing.exploration.node_log import LoggedCut
from cutline.snapshot.testing.exploration.subtask_events import SubtaskContribution, SubtaskOrigin


@dataclass(frozen=True, slots=True)
class Begun:
    """All workers have registered for the first time."""


@dataclass(frozen=True, slots=True)
class ReportReceived:
    """A subtask's report arrived."""

    report: SubtaskContribution | control.SnapshotDeclined | control.SnapshotAskedFor


@dataclass(frozen=True, slots=True)
class Requested:
    """The next snapshot is requested."""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """The time of a snapshot is over."""

    snapshot_id: int


@dataclass(frozen=True, slots=True)
class Written:
    """The first manifest that waits is written to the store."""


@dataclass(frozen=True, slots=True)
class AllLost:
    """Every worker was lost, which causes a rollback."""


CoordinatorEvent = Begun | ReportReceived | Requested | GivenUp | Written | AllLost


@dataclass(frozen=True, slots=True)
class Wishes:
    """The events of an exploration besides messages."""

    #: for each snapshot the subtasks that start it; empty: the initiators that the graph implies
    snapshots: tuple[tuple[Subtask, ...], ...]
    #: number of snapshots that may be given up
    aborts: int


class LocalCoordinator:
    """A coordinator that no crash ends.

    Parameters
    ----------
    compiled : CompiledGraph
    run : str
    wishes : Wishes
    seen : dict
        Situations, to which those that occur are added.
    checked : CheckedCuts
    """

    def __init__(
        self, compiled: CompiledGraph, run: str, wishes: Wishes, seen: dict[str, None], checked: CheckedCuts
    ) -> None:
        self._compiled = compiled
        topology = compiled.topology
        self._wishes = wishes
        self._seen = seen
        self._checked = checked
        self._requested = 0
        self._aborts_left = wishes.aborts
        self._cuts: dict[int, dict[Subtask, LoggedCut]] = {}
        self._initiators: dict[int, int] = {}
        #: ids of complete snapshots, in the order in which their manifests are written
        self._publishing: list[int] = []
        #: ids of the snapshots that this incarnation published
        self._published: list[int] = []
        #: the snapshot that the last event completed, or None
        self._whole: PendingSnapshot | None = None
        self._newest: tuple[Manifest, dict[Subtask, LoggedCut]] | None = None
        self._registry = WorkerRegistry(len(topology.subtasks), "")
        for number in range(len(topology.subtasks)):
            self._registry.register(control.WorkerRegistered(number, "", 0, b"", 0))
        self._outbox = Outbox(self._registry, 0.0)
        policy = SnapshotPolicy(
            interval=None, timeout=1.0, min_pause=0.0, max_concurrent=max(1, len(wishes.snapshots)),
            tolerable_failures=wishes.aborts,
        )  # fmt: skip
        placement = {subtask: number for number, subtask in enumerate(topology.subtasks)}
        self._tracker = SnapshotTracker(
            run, topology, placement, policy, self._registry, self._outbox, cut_start_of(topology)
        )

    # ---------------------------------------------------------------- events

    def step(self, event: CoordinatorEvent) -> list[Said]:
        """Take one event, and return the messages: each is for the subtask of its worker."""
        self._whole = None
        match event:
            case Begun():
                self._begin_incarnation()
            case ReportReceived(report):
                self._take(report)
            case Requested():
                self._request()
            case GivenUp(snapshot_id):
                self._aborts_left -= 1
                self._abort(snapshot_id, "its time is over")
            case Written():
                self._publish(self._publishing.pop(0))
            case AllLost():
                self._roll_back()
            case _:
                assert_never(event)
        subtasks = self._compiled.topology.subtasks
        return [(subtasks[e.worker], e.message) for e in self._outbox.take() if isinstance(e, SendToWorker)]

    def _take(self, report: SubtaskContribution | control.SnapshotDeclined | control.SnapshotAskedFor) -> None:
        match report:
            case SubtaskContribution():
                self._acknowledge(report)
            case control.SnapshotDeclined(_, snapshot_id, _, reason):
                if snapshot_id in self._tracker.table.pending:
                    self._abort(snapshot_id, reason)
            case control.SnapshotAskedFor(incarnation, subtask):
                self._tracker.ask(subtask, incarnation, may_start=True)
            case _:
                assert_never(report)

    def _acknowledge(self, contribution: SubtaskContribution) -> None:
        snapshot_id, record = contribution.acknowledged.snapshot_id, contribution.acknowledged.record
        pending = self._tracker.table.pending.get(snapshot_id)
        if pending is None:
            return
        if record.subtask in pending.records:
            raise CheckFailed("completeness", f"{record.subtask} hands out snapshot {snapshot_id} twice")
        self._cuts.setdefault(snapshot_id, {})[record.subtask] = contribution.cut
        self._initiators[snapshot_id] = self._initiators.get(snapshot_id, 0) + contribution.initiated
        whole = self._tracker.acknowledge(contribution.acknowledged)
        if whole is None:
            return
        self._tracker.begin_publish(whole, self._registry.incarnation)
        self._publishing.append(snapshot_id)
        self._whole = whole
        self._forget_settled()

    def check(self) -> None:
        """Check a newly complete snapshot: first the order of cuts, then its certificate, then the logged cuts."""
        if self._whole is None:
            return
        snapshot_id = self._whole.snapshot_id
        manifest, cuts = self._tracker.manifests[snapshot_id], self._cuts[snapshot_id]
        check_order(snapshot_id, [*self._published, *self._publishing[:-1]], cuts)
        if self._initiators[snapshot_id] > 1:
            self._seen["several initiators of one snapshot"] = None
        cut = (manifest.incarnation, manifest.records, _sorted(cuts))
        if cut in self._checked.sound:
            return
        wrong = self._tracker.problems(self._whole, None)
        if wrong:
            raise CheckFailed("certificate", f"snapshot {snapshot_id}: {wrong}")
        check_cut(self._compiled.topology, manifest, cuts, self._checked.codec)
        check_invariants(manifest, self._compiled.invariants, self._checked.codec)
        self._checked.sound[cut] = None

    def _request(self) -> None:
        initiators = self._wishes.snapshots[self._requested]
        self._requested += 1
        self._tracker.add_request(SnapshotRequest(self._requested, pinned=False, initiators=initiators, deadline=None))
        self._tracker.trigger_requested()

    def _abort(self, snapshot_id: int, reason: str) -> None:
        self._tracker.abort(snapshot_id, reason)
        self._tracker.announce_min_snapshot_id()
        self._forget_settled()
        self._seen["snapshot given up"] = None

    def _publish(self, snapshot_id: int) -> None:
        manifest, _ = self._tracker.mark_published(snapshot_id)
        self._tracker.announce(snapshot_id)
        self._published.append(snapshot_id)
        self._newest = (manifest, self._cuts[snapshot_id])
        self._tracker.end_components(manifest)
        self._forget_settled()

    def _forget_settled(self) -> None:
        pending = self._tracker.table.pending
        self._cuts = {s: cuts for s, cuts in self._cuts.items() if s in pending}
        self._initiators = {s: count for s, count in self._initiators.items() if s in pending}

    # ---------------------------------------------------------------- rollback

    def _roll_back(self) -> None:
        if self._tracker.table.collecting():
            self._seen["crash during a snapshot"] = None
        if self._publishing:
            self._seen["crash between the last part and the manifest"] = None
        self._seen["restart afresh" if self._newest is None else "restart from a snapshot"] = None
        self._tracker.give_up_all("all workers were lost")
        self._publishing.clear()
        self._published.clear()
        self._forget_settled()
        self._begin_incarnation()

    def _begin_incarnation(self) -> None:
        # PROTOCOL 7.1: every rollback takes the next claim.
        self._registry.incarnation += 1
        self._tracker.take_block(self._registry.incarnation, ())
        self._outbox.broadcast(control.StartProcessing(self._registry.incarnation))

    def starts(self) -> tuple[SubtaskOrigin, ...]:
        """Return the origin of each subtask, as if a rollback came now."""
        at = self._registry.incarnation
        if self._newest is None:
            return tuple(
                SubtaskOrigin(at, start) for start in fresh_start(self._compiled.topology, self._compiled.partitions)
            )
        manifest, cuts = self._newest
        return tuple(
            SubtaskOrigin(at, start, cuts[start.subtask])
            for start in plan_restore(self._compiled.topology, manifest, (), self._compiled.partitions)
        )

    # ---------------------------------------------------------------- states

    def key(self) -> Hashable:
        """Return a key of mutable state. Acknowledgements are a set, because manifests have the topology's order."""
        table = self._tracker.table
        pending = tuple(
            (snapshot_id, snapshot.is_publishing, _sorted(snapshot.records), _sorted(self._cuts.get(snapshot_id, {})))
            for snapshot_id, snapshot in table.pending.items()
        )
        newest = None
        if self._newest is not None:
            manifest, cuts = self._newest
            newest = (manifest.snapshot_id, manifest.incarnation, manifest.records, _sorted(cuts))
        # The cycles whose end was announced follow from the newest manifest, which shows them over, or ended.
        rest = (
            self._requested,
            self._aborts_left,
            self._initiators,
            self._publishing,
            self._published,
            table.min_snapshot_id,
        )
        result = (self._registry.incarnation, self._tracker.aborted, table.failures_in_a_row, table.requests.waiting)
        return (pending, newest, fingerprint((rest, result)))

    def view(self) -> View[CoordinatorEvent]:
        """Return the events that are possible here."""
        own: list[tuple[str, CoordinatorEvent]] = []
        if self._publishing:
            own.append((f"coordinator: the manifest of {self._publishing[0]} is written", Written()))
        faults: list[tuple[str, CoordinatorEvent]] = []
        if self._requested < len(self._wishes.snapshots) and self._tracker.table.has_room:
            faults.append(("coordinator: triggers the next snapshot", Requested()))
        if self._aborts_left:
            faults += [
                (f"coordinator: gives up {s.snapshot_id}", GivenUp(s.snapshot_id))
                for s in self._tracker.table.collecting()
            ]
        return View(tuple(own), tuple(faults), is_open=True, unsettled=self._unsettled())

    def _unsettled(self) -> str:
        missing = [
            f"snapshot {s.snapshot_id} of {', '.join(map(str, s.missing(self._compiled.topology.subtasks)))}"
            for s in self._tracker.table.collecting()
        ]
        return f"the coordinator waits for {'; '.join(missing)}" if missing else ""


def _sorted(by_subtask: Mapping[Subtask, Hashable]) -> Hashable:
    return tuple(sorted(by_subtask.items(), key=lambda item: item[0]))
