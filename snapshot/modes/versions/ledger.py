"""Ledger of the versions of a subtask's local database: an acknowledgement waits until its version is durable."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from cutline.snapshot.errors import SnapshotAborted
from cutline.snapshot.ids import Subtask
from cutline.snapshot.keyed.versions import PendingVersion
from cutline.snapshot.stored.list_rules import LocalVersion
from cutline.snapshot.subtask.strand import Strand, VersionBegun
from cutline.snapshot.worker.ledger import Declined, Lane, Listed, TaskFailed
from cutline.snapshot.worker.storage_tasks import StorageWork


@dataclass(frozen=True, slots=True)
class AwaitVersion:
    """Wait until a version of the local database is durable. The result is a `LocalVersion`."""

    subtask: Subtask
    version: PendingVersion

    lane: ClassVar[Lane] = Lane.STORE
    strand: ClassVar[Strand] = Strand.VERSIONS
    publishes: ClassVar[int] = 0

    def perform(self, work: StorageWork) -> LocalVersion | TaskFailed:
        """Wait, and let others run meanwhile."""
        version = self.version
        try:
            for seconds in version.waiting():
                work.pause(seconds or 0)
        except SnapshotAborted as error:
            return TaskFailed(str(error))
        return LocalVersion(work.disk, work.run, self.subtask, version.snapshot_id, version.size)


class VersionLedger:
    """The versions of one subtask.

    Parameters
    ----------
    subtask : Subtask
    """

    is_repeated: ClassVar[bool] = False

    def __init__(self, subtask: Subtask) -> None:
        self._subtask = subtask
        #: {snapshot_id: key groups} of snapshots that are not over
        self._groups: dict[int, tuple[int, int]] = {}
        #: {snapshot_id: its version} of versions that are made
        self._versions: dict[int, LocalVersion] = {}

    def captured(self, cut: int | None, change: VersionBegun) -> list[AwaitVersion | Declined]:
        """Wait for the version that a cut has begun."""
        assert cut is not None
        self._groups[cut] = (change.groups.start, change.groups.stop)
        return [AwaitVersion(self._subtask, change.version)]

    def done(self, task: AwaitVersion, result: LocalVersion | TaskFailed) -> list[AwaitVersion | Declined]:
        """Take a version that is durable, or decline its snapshot. A version of a snapshot that is over is dropped."""
        cut = task.version.snapshot_id
        if cut not in self._groups:
            return []
        if isinstance(result, TaskFailed):
            return [Declined(cut, f"{self._subtask} has no version: {result.reason}")]
        self._versions[cut] = result
        return []

    def ready(self, cut: int) -> Listed | None:
        """Return the version of a cut."""
        version = self._versions.get(cut)
        return None if version is None else {"groups": self._groups[cut], "version": version}

    def left(self, cut: int) -> None:
        """Keep the cut until its snapshot is over, because its version may still be made."""

    def settled(self, published: int, below: int) -> list[AwaitVersion]:
        """Forget the snapshots that are over."""
        self._groups = {at: groups for at, groups in self._groups.items() if at >= below}
        self._versions = {at: version for at, version in self._versions.items() if at >= below}
        return []
