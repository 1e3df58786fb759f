"""Settings that say where the rows of keyed state are while a run is active. Both tiers write the same snapshots.

Must not import RocksDB, because settings are made in the driver and are unpickled in every worker.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from cutline.snapshot.errors import GraphError
from cutline.snapshot.ids import Subtask
from cutline.snapshot.keyed.cold_tier import ColdLimits, ColdTier
from cutline.snapshot.keyed.heap import HeapTier
from cutline.snapshot.keyed.row_spool import MemorySpool, RowSpool
from cutline.snapshot.keyed.row_store import RowStore, Writer
from cutline.snapshot.keyed.tier import Tier
from cutline.snapshot.stored.list_rules import LocalVersion
from cutline.state_backends.local_versions import LocalVersions
from cutline.state_backends.rocksdb import Database, RocksDBMemory, is_installed
from cutline.state_backends.row_spool import FileSpool
from cutline.state_backends.writer_thread import WriterThread

#: least memory, in bytes: with less, a database of each subtask would flush after each few rows
MEMORY_BYTES_MIN: Final = 16 * 1024 * 1024

#: Part of the memory that is RocksDB's cache. Python objects of the subtasks take the rest.
_CACHE_DIVISOR: Final = 2

#: folder of the databases below the folder that is set
_FOLDER: Final = "cutline-keyed-state"


@dataclass(frozen=True, slots=True)
class HeapState:
    """Keep all rows in the memory of the workers. Fast, and 200 bytes a row beside key and value."""

    @property
    def fits_memory(self) -> bool:
        """Whether all rows of a worker are in its memory."""
        return True

    def check(self) -> None:
        """Check what can be checked before a run starts."""

    def tiers(
        self, incarnation: int, subtasks: int, wake: Callable[[], None], versions: LocalVersions | None = None
    ) -> Callable[[Subtask], Tier]:
        """Return the function that makes the tier of a subtask. See `RocksDBState.tiers`."""
        return lambda _: HeapTier()

    def spool(self, incarnation: int) -> RowSpool:
        """Return where encoded rows of this worker wait until they are stored."""
        return MemorySpool()


@dataclass(frozen=True, slots=True)
class RocksDBState:
    """Keep rows in a RocksDB database of each subtask, on the local disk, and a bounded part of them in memory.

    The databases are caches: they are deleted at the end, and only snapshots are restored, or versions in mode
    ``persistentState``. Needs
    ``pip install 'cutline[rocksdb]'``.

    Raises
    ------
    ValueError
        if `memory` is too small.
    """

    #: bytes that the rows of all subtasks of a worker may take in memory
    memory: int = 512 * 1024 * 1024
    #: folder on a local disk of every worker, or None for the folder of temporary files
    folder: str | None = None

    @property
    def fits_memory(self) -> bool:
        """Whether all rows of a worker are in its memory."""
        return False

    def __post_init__(self) -> None:
        if type(self.memory) is not int or self.memory < MEMORY_BYTES_MIN:
            raise ValueError(f"memory is {self.memory!r}, and must be at least {MEMORY_BYTES_MIN:,} bytes a worker")

    def check(self) -> None:
        """Check what can be checked before a run starts. Opens no database, because workers are forked later.

        Raises
        ------
        GraphError
            if `rocksdict` is not installed here.
        """
        if not is_installed():
            raise GraphError(
                "keyedState=RocksDBState() needs rocksdict: pip install 'cutline[rocksdb]' here and where the workers "
                "run, or use keyedState=HeapState()"
            )

    def tiers(
        self, incarnation: int, subtasks: int, wake: Callable[[], None], versions: LocalVersions | None = None
    ) -> Callable[[Subtask], Tier]:
        """Return the function that makes the tier of a subtask, in the worker. Opens no database yet.

        Parameters
        ----------
        incarnation : int
        subtasks : int
            Number of subtasks in the worker that share its memory.
        wake : callable
            Called on another thread when a subtask has to call `Tier.turn`.
        versions : LocalVersions, optional
            Where versions of the databases are, on the disk of `folder`.
        """
        memory = RocksDBMemory(self.memory // _CACHE_DIVISOR)
        limits = ColdLimits().within(self.memory // _CACHE_DIVISOR // max(1, subtasks))

        def tier_of(subtask: Subtask) -> ColdTier:
            name = f"{incarnation}-{subtask.node}-{subtask.index}".replace("/", "_")

            def open_store(version: LocalVersion | None) -> tuple[RowStore, Writer]:
                begin = None if versions is None else partial(versions.begin, str(subtask))
                restore = None if versions is None or version is None else partial(versions.restore, version)
                return Database(memory, self._parent, name, begin, restore), WriterThread(name, wake)

            return ColdTier(open_store, limits)

        return tier_of

    def spool(self, incarnation: int) -> RowSpool:
        """Return where encoded rows of this worker wait until they are stored."""
        return FileSpool(self._parent, f"{incarnation}-waiting")

    @property
    def _parent(self) -> Path:
        if self.folder is not None:
            return Path(self.folder) / _FOLDER
        return Path(tempfile.gettempdir()) / f"{_FOLDER}-{os.getuid()}"  # because each user owns what is in it
