"""What a run is told to be, where it stands, and how it ended: the words that the coordinator shares with its shell."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from snapshot.coordinator.pending_snapshot import SnapshotPolicy
from snapshot.coordinator.restart_policy import RestartPolicy
from snapshot.plan.topology import Topology


class Phase(Enum):
    """Where the run stands; the diagram is in `snapshot.coordinator.machine`."""

    CLAIMING = "claiming"
    GATHERING = "gathering"
    READING = "reading"
    RESTORING = "restoring"
    CONNECTING = "connecting"
    RUNNING = "running"
    FINISHING = "finishing"
    ENDED = "ended"


#: Phases in which workers hold data of the current incarnation, so that losing one means rolling back.
DEPLOYED = (Phase.RESTORING, Phase.CONNECTING, Phase.RUNNING, Phase.FINISHING)


class Outcome(Enum):
    """How it ended, for this life of the coordinator."""

    FINISHED = "finished"
    STOPPED = "stopped"
    FAILED = "failed"
    #: another submission took the run
    FENCED = "fenced"
    #: a newer life of the same submission took over: this one leaves, the run goes on
    SUPERSEDED = "superseded"


@dataclass(frozen=True)
class RunSettings:
    """What the driver decided for a run."""

    run: str
    topology: Topology
    worker_count: int
    policy: SnapshotPolicy
    restart_policy: RestartPolicy
    #: newest snapshots that retention keeps, besides the pinned
    retained: int
    #: names of `snapshot.coordinator.recovery.ALLOWANCES`
    allow: tuple[str, ...]
    #: (run, snapshot_id) that a fork starts from while it has no snapshot of its own
    forked_from: tuple[str, int] | None
    #: seconds for all workers to register, after which the stage is given up
    gathering_timeout: float
    #: seconds for the missing ones to come back when others of the stage are there: a task forks a new worker at once
    regathering_timeout: float
