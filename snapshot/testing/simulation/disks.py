"""The local disks of simulated workers, which outlive the workers: versions of the databases of subtasks.

Each worker sees one disk. In another stage a worker may see another disk, as on another host.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from zlib import crc32

from cutline.snapshot.errors import RestoreRefused
from cutline.snapshot.ids import Subtask
from cutline.snapshot.keyed.cold_tier import ColdLimits, ColdTier
from cutline.snapshot.keyed.row_store import RowStore, Writer
from cutline.snapshot.stored.list_rules import LocalVersion
from cutline.snapshot.testing.cold_memory import MemoryRowStore

#: few rows, so that short runs seal rows, drop caches and load timers
_LIMITS = ColdLimits(memtable_rows=3, cached_rows=4, checked_keys=1, near_timers=4, loaded_timers=2)


@dataclass(frozen=True, slots=True)
class SimulatedDisk:
    """One disk.

    Parameters
    ----------
    name : str
        Id of the disk.
    run : str
    files : dict
        ``{path: bytes}`` of all disks, read and written.
    """

    name: str
    run: str
    files: dict[str, bytes]

    def tier(self, subtask: Subtask, writer: Writer) -> ColdTier:
        """Make the tier of a subtask, whose database is on this disk. `writer` writes to the database."""

        def keep(snapshot_id: int, version: bytes) -> None:
            self.files[self._path(LocalVersion(self.name, self.run, subtask, snapshot_id, len(version)))] = version

        def open_store(version: LocalVersion | None) -> tuple[RowStore, Writer]:
            return MemoryRowStore(keep, None if version is None else self._read(version)), writer

        return ColdTier(open_store, _LIMITS)

    def prune(self, kept: Collection[int]) -> None:
        """Remove versions of the run that are older than the newest of `kept`, and not of `kept`."""
        for path in [each for each in self.files if each.startswith(f"{self.name}/{self.run}/")]:
            snapshot_id = int(path.rpartition("/")[2])
            if snapshot_id < max(kept) and snapshot_id not in kept:
                del self.files[path]

    def _read(self, version: LocalVersion) -> bytes:
        found = self.files.get(self._path(version))
        if found is None or version.disk != self.name:
            raise RestoreRefused(f"disk {self.name} has no {version}")
        return found

    def _path(self, version: LocalVersion) -> str:
        return f"{version.disk}/{version.run}/{version.subtask}/{version.snapshot_id}"


def disk_name(worker: int, launch: str, disks: int) -> str:
    """Return the id of the disk that a worker of a stage sees, of so many disks."""
    return f"disk-{(worker + crc32(launch.encode())) % disks}"
