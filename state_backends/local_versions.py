"""Versions of the local databases of one run, on a disk that stays (PROTOCOL 12.17, versions).

A version is a folder of hard links to the files of a database, so it takes no space while the database has the files::

    <folder>/cutline-versions/disk                          id of the disk
    <folder>/cutline-versions/<run>/<subtask>/<snapshot>/   db/, and `states`: what the rows are of

Knows files, and not what a version is for. Which versions count is decided by the manifests alone.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Collection
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Final
from urllib.parse import quote

from cutline.snapshot.errors import RestoreRefused
from cutline.snapshot.stored.list_rules import LocalVersion

_FOLDER: Final = "cutline-versions"
_DISK: Final = "disk"
_DATABASE: Final = "db"
_STATES: Final = "states"
#: suffix of RocksDB's files of sorted rows
_TABLE: Final = ".sst"

#: end of the name of a folder that is being made or removed
_UNFINISHED: Final = ".unfinished"


class LocalVersions:
    """The versions in one folder.

    Parameters
    ----------
    folder : Path
        Folder on a local disk. Made if absent.
    run : str
        Run whose versions are made and pruned.
    """

    def __init__(self, folder: Path, run: str) -> None:
        self._folder = folder / _FOLDER
        self._run = run

    @cached_property
    def disk(self) -> str:
        """The id of the disk, which the first worker gives it.

        Raises
        ------
        OSError
            if the disk refuses.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / _DISK
        mine = self._folder / f"{uuid.uuid4().hex}{_UNFINISHED}"
        if not path.exists():
            mine.write_text(uuid.uuid4().hex[:12])
            _sync(mine)
            with suppress(FileExistsError):  # another worker of this disk was first
                os.link(mine, path)  # exclusive, and never half written
            mine.unlink()
            _sync(self._folder)
        return path.read_text()

    def begin(self, subtask: str, snapshot_id: int) -> UnfinishedVersion:
        """Begin a version of a subtask's database."""
        return UnfinishedVersion(self._folder / _name(self._run) / _name(subtask) / str(snapshot_id))

    def restore(self, version: LocalVersion, to: Path) -> bytes:
        """Make a database of a version's files in the folder `to`. Return what its rows are of.

        Tables are linked, because they never change. All else is copied, because work on the database changes it.

        Raises
        ------
        RestoreRefused
            if the disk has no such version.
        OSError
            if the disk refuses.
        """
        path = self._path_of(version)
        to.mkdir()
        for each in (path / _DATABASE).iterdir():
            if each.suffix == _TABLE:
                os.link(each, to / each.name)
            else:
                shutil.copyfile(each, to / each.name)
        return (path / _STATES).read_bytes()

    def prune(self, kept: Collection[int]) -> int:
        """Remove versions of the run that are older than the newest of `kept`, and not of `kept`.

        Returns
        -------
        int
            Number of removed versions. Another worker of this disk may remove the same.
        """
        removed = 0
        for of_subtask in (self._folder / _name(self._run)).glob("*"):
            for path in of_subtask.iterdir():
                is_unfinished = path.name.endswith(_UNFINISHED)
                snapshot_id = int(path.name.removesuffix(_UNFINISHED))
                if snapshot_id >= max(kept) or (snapshot_id in kept and not is_unfinished):
                    continue
                gone = path if is_unfinished else path.with_name(f"{path.name}{_UNFINISHED}")
                if not is_unfinished:
                    path.rename(gone)
                shutil.rmtree(gone, ignore_errors=True)  # what is left is removed the next time
                removed += 1
        return removed

    def _path_of(self, version: LocalVersion) -> Path:
        path = self._folder / _name(version.run) / _name(str(version.subtask)) / str(version.snapshot_id)
        if not path.is_dir():
            raise RestoreRefused(
                f"run {version.run!r}: disk {version.disk} has no version {version.snapshot_id} of {version.subtask}: "
                f"{path} is gone. Restore an older snapshot, or, where the run was made with copy=True, give another "
                "folder"
            )
        return path


class UnfinishedVersion:
    """A version that is being made.

    Parameters
    ----------
    path : Path
        Folder of the version when it is whole.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unfinished = path.with_name(f"{path.name}{_UNFINISHED}")
        shutil.rmtree(self._unfinished, ignore_errors=True)  # of a worker that was killed
        self._unfinished.mkdir(parents=True)
        #: folder to make, for the files of the database
        self.database = self._unfinished / _DATABASE

    def finish(self, states: bytes) -> int:
        """Make the version durable. `states` says what its rows are of. Return the bytes of its database.

        Raises
        ------
        OSError
            if the disk refuses.
        """
        path = self._unfinished / _STATES
        path.write_bytes(states)
        for each in (path, self._unfinished):
            _sync(each)
        self._unfinished.rename(self._path)
        for folder in (self._path.parent, self._path.parent.parent, self._path.parent.parent.parent):
            _sync(folder)
        return sum(each.stat().st_size for each in (self._path / _DATABASE).iterdir())


def _name(text: str) -> str:
    return quote(text, safe=" ").replace(".", "%2E")


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
