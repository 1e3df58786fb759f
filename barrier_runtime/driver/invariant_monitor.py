"""Judges a graph's invariants on published snapshots. Reads storage, and knows neither workers nor coordinators."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from snapshot.channel.serialization import Codec
from snapshot.errors import CutlineError, RunFailed, SnapshotCorrupt
from snapshot.plan.declarations import Invariant
from snapshot.stored.run_store import RunStore
from snapshot.stored.snapshot import Snapshot

_logger = logging.getLogger("cutline.run")


@dataclass(slots=True)
class _Verdict:
    """The verdict on one invariant. The fields are those of ``run.status["invariants"][name]``."""

    #: whether the invariant holds in the last judged snapshot, or None before the first
    holds: bool | None = None
    #: id of the last judged snapshot, or 0 before the first
    snapshot: int = 0
    #: ids of the snapshots in which the invariant does not hold
    violations: list[int] = field(default_factory=list)
    #: ids of the snapshots that cannot be judged, because they are damaged
    unreadable: list[int] = field(default_factory=list)


class InvariantMonitor:
    """All verdicts of one run. Each snapshot is judged once, in ascending order.

    Parameters
    ----------
    store : RunStore
    codec : Codec
    invariants : mapping of str to callable
    """

    def __init__(self, store: RunStore, codec: Codec, invariants: Mapping[str, Invariant]) -> None:
        self._store = store
        self._codec = codec
        self._invariants = invariants
        self._verdicts = {name: _Verdict() for name in invariants}
        #: id of the newest snapshot that was judged or cannot be judged
        self._newest = 0
        #: id of the snapshot that the last warning named as not judged yet
        self._awaited = 0

    def as_status(self) -> dict[str, dict[str, Any]]:
        """Return the verdicts as plain data, by invariant. May be called on any thread."""
        return {name: asdict(verdict) for name, verdict in self._verdicts.items()}

    def judge(self, snapshot_ids: Iterable[int]) -> None:
        """Judge the published snapshots, given in ascending order, that are not judged yet. Blocks meanwhile.

        When the store fails, leave the snapshot and all later snapshots for the next call. Do not retry damaged data.
        """
        for snapshot_id in snapshot_ids:
            if snapshot_id > self._newest and self._invariants and not self._judge(snapshot_id):
                return

    def _judge(self, snapshot_id: int) -> bool:
        """Judge one snapshot. Return False when it must be judged again."""
        try:
            snapshot = self._store.read_snapshot(snapshot_id, self._codec)
        except FileNotFoundError:
            return True  # because retention removed the snapshot first
        except (OSError, RunFailed) as error:  # RunFailed when the coordinator that keeps the snapshot does not answer
            if snapshot_id != self._awaited:
                self._awaited = snapshot_id
                _logger.warning("run %s: snapshot %d is not judged yet: %s", self._store.run, snapshot_id, error)
            return False
        except CutlineError as error:
            self._newest = snapshot_id
            _logger.warning("run %s: snapshot %d cannot be judged: %s", self._store.run, snapshot_id, error)
            for verdict in self._verdicts.values():
                verdict.unreadable.append(snapshot_id)
            return True
        self._newest = snapshot_id
        for name, holds in self._invariants.items():
            self._judge_one(name, holds, snapshot)
        return True

    def _judge_one(self, name: str, holds: Invariant, snapshot: Snapshot) -> None:
        try:
            is_held, why = bool(holds(snapshot)), "it returned False"
        except (OSError, SnapshotCorrupt, RunFailed) as error:  # because parts are read when the function uses them
            _logger.warning("run %s: invariant %s, snapshot %d: %s", self._store.run, name, snapshot.id, error)
            self._verdicts[name].unreadable.append(snapshot.id)
            return
        except Exception as error:  # noqa: BLE001  # any error of the user's function is a verdict too
            is_held, why = False, f"it raised {type(error).__name__}: {error}"
        verdict = self._verdicts[name]
        verdict.holds, verdict.snapshot = is_held, snapshot.id
        if not is_held:
            verdict.violations.append(snapshot.id)
            run = self._store.run
            _logger.error("run %s: invariant %s does not hold in snapshot %d: %s", run, name, snapshot.id, why)
