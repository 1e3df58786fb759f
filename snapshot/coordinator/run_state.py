"""Settings, phases and outcomes of a run, which the coordinator shares with its shell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from cutline.snapshot.coordinator.pending_snapshot import SnapshotPolicy
from cutline.snapshot.coordinator.restart_policy import RestartPolicy
from cutline.snapshot.plan.topology import Topology


class Phase(Enum):
    """Phase of the run. The diagram is in `snapshot.coordinator.machine`."""

    CLAIMING = "claiming"
    GATHERING = "gathering"
    READING = "reading"
    RESTORING = "restoring"
    CONNECTING = "connecting"
    REPLAYING = "replaying"
    RUNNING = "running"
    FINISHING = "finishing"
    ENDED = "ended"


#: phases in which workers hold data of the current incarnation, so that losing a worker causes a rollback
DEPLOYED = (Phase.RESTORING, Phase.CONNECTING, Phase.REPLAYING, Phase.RUNNING, Phase.FINISHING)


class Outcome(Enum):
    """End of the run, for this coordinator instance."""

    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"
    #: another submission took the run
    FENCED = "fenced"
    #: a newer instance of the same submission took the run: this instance exits, and the run continues
    SUPERSEDED = "superseded"


@dataclass(frozen=True)
class RunSettings:
    """Settings of the driver for a run."""

    run: str
    topology: Topology
    #: {source: names that its `partitions` hook listed at the submission}
    partitions: Mapping[str, tuple[str, ...]]
    worker_count: int
    policy: SnapshotPolicy
    restart_policy: RestartPolicy
    #: number of newest snapshots that retention keeps, besides pinned snapshots
    retained: int
    #: names of `snapshot.coordinator.recovery.ALLOWANCES`
    allow: tuple[str, ...]
    #: (run, snapshot_id) from which a fork starts while the fork has no own snapshot; None without a fork
    forked_from: tuple[str, int] | None
    #: seconds for all workers to register; then the coordinator gives up the stage
    gathering_timeout: float
    #: seconds for missing workers to register again while other workers are there, because tasks fork workers at once
    regathering_timeout: float
