"""A simulated run with one rule taken away: its coordinator, its fence, its workers or its machines are mutants."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cutline.snapshot.assembly import assemble
from cutline.snapshot.channel.rerouting import ReroutedCount
from cutline.snapshot.coordinator import recovery
from cutline.snapshot.coordinator.deployment import Deployment, DeploymentResult
from cutline.snapshot.coordinator.fence import Fence
from cutline.snapshot.coordinator.fence_events import FenceEffect
from cutline.snapshot.coordinator.machine import CoordinatorMachine
from cutline.snapshot.coordinator.pending_snapshot import PendingSnapshot
from cutline.snapshot.coordinator.snapshot_table import SnapshotTable
from cutline.snapshot.coordinator.termination import RunTermination
from cutline.snapshot.failed_event import FailedEvent
from cutline.snapshot.stored.history import Claim
from cutline.snapshot.subtask.events import ControlEvent, MinSnapshotIdRaised
from cutline.snapshot.subtask.machine import SubtaskMachine
from cutline.snapshot.subtask.restored import RestoredChannels
from cutline.snapshot.testing.simulation.worker import Worker
from cutline.snapshot.testing.steps import Store
from cutline.snapshot.worker.upload_batcher import PendingUpload

Patch = pytest.MonkeyPatch


class EagerWorker(Worker):
    """Acknowledges its parts when it begins to store them."""

    def _upload(self, upload: PendingUpload, incarnation: int) -> None:
        store = super()._upload
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(self._store.backend, "put_alone", lambda path, chunks: True)
            store(upload, incarnation)
        self.uploads.once(Store(upload.taken.subtask, upload.taken.snapshot_id), lambda: store(upload, incarnation))


class ReceivesFromEverybody(Deployment):
    """Takes what is said of any incarnation for what is said of the present one."""

    def restored(
        self, worker: int, incarnation: int, rerouted: tuple[ReroutedCount, ...] = ()
    ) -> DeploymentResult | None:
        return super().restored(worker, self._registry.incarnation, rerouted)

    def connected(self, worker: int, incarnation: int) -> DeploymentResult | None:
        return super().connected(worker, self._registry.incarnation)

    def failed(
        self, worker: int, incarnation: int, reason: str, failed_event: FailedEvent | None
    ) -> DeploymentResult | None:
        return super().failed(worker, self._registry.incarnation, reason, failed_event)


class IncarnationIgnored(CoordinatorMachine):
    """Without PROTOCOL 6.1 in the coordinator."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._deployment.__class__ = ReceivesFromEverybody


class TakesAnyFrame(Worker):
    """Without PROTOCOL 6.1 among workers: frames go to whoever has the channel, in whatever incarnation."""

    def is_connected(self, incarnation: int) -> bool:
        return self.is_alive and bool(self.data.hosts)

    def check_peers(self) -> None:
        pass  # nor is a connection lost that was never of one incarnation


class UsesIdsAgain(SnapshotTable):
    """Gives the id of an aborted snapshot to the next one."""

    def close_failed(self, snapshot_id: int, reason: str, now: float) -> PendingSnapshot:
        self.ids._next_id = min(self.ids._next_id, snapshot_id)
        return super().close_failed(snapshot_id, reason, now)


class IdReused(CoordinatorMachine):
    """Without PROTOCOL 3.2."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._tracker.table.__class__ = UsesIdsAgain


class NeverDiscards(SnapshotTable):
    """Says of no snapshot that it is over."""

    @property
    def min_snapshot_id(self) -> int:
        return 0


class MinSnapshotIdNotSent(CoordinatorMachine):
    """Without PROTOCOL 3.4."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._tracker.table.__class__ = NeverDiscards


class DropsPrepared(SubtaskMachine):
    """Discards what was prepared for snapshots that were aborted: PROTOCOL 8, read plainly."""

    def step(self, event: ControlEvent, now: float) -> None:
        if isinstance(event, MinSnapshotIdRaised):
            values = self._prepared._values
            for at, (snapshot_id, _) in enumerate(values):
                if snapshot_id < event.min_snapshot_id:
                    values[at] = (snapshot_id, None)
        super().step(event, now)


class NeverChecks(Fence):
    """Without PROTOCOL 7.2."""

    def _on_claim_checked(self, holder: Claim | None) -> list[FenceEffect]:
        return super()._on_claim_checked(None)


class ForgetsTheStop(CoordinatorMachine):
    """A rollback forgets that the run is to stop."""

    def _roll_back(self, reason: str, failed_event: FailedEvent | None = None) -> None:
        self._termination = RunTermination(self.settings.topology.subtasks)
        super()._roll_back(reason, failed_event)


def counters_restarted(patch: Patch) -> None:
    """Without PROTOCOL 6.2."""

    def mutant(subtask: Any, compiled: Any, environment: Any, restored: RestoredChannels) -> Any:
        return assemble(subtask, compiled, environment, RestoredChannels({}, restored.frames, {}))

    patch.setattr("cutline.snapshot.testing.simulation.host.assemble", mutant)


def parts_swapped(patch: Patch) -> None:
    """The parts of a channel are restored in the wrong order (PROTOCOL 1.3, channel state)."""
    plan = recovery.plan_restore

    def mutant(*args: Any) -> list[Any]:
        return [replace(start, channel_parts=start.channel_parts[::-1]) for start in plan(*args)]

    patch.setattr("cutline.snapshot.coordinator.deployment.plan_restore", mutant)
