"""Folders on the local disk that live no longer than the process that made them.

A folder is owned by whoever locks its file `owner`. The system unlocks the file when the process ends, however the
process ends. So a folder whose file can be locked is left over, and the next process that makes a folder removes it::

    <parent>/owners                  locked while folders are made or removed
    <parent>/<name>.<process>.<n>/owner    locked by the owner
    <parent>/<name>.<process>.<n>/data/    what the owner keeps there
"""

from __future__ import annotations

import fcntl
import itertools
import os
import shutil
from pathlib import Path
from typing import Final

_OWNER: Final = "owner"

#: numbers that keep the folders of one process apart
_NUMBERS = itertools.count()


class ScratchFolder:
    """An empty folder, removed by `close` or, after the end of its process, by the next process.

    Parameters
    ----------
    parent : Path
        Folder of all scratch folders. Made if absent.
    name : str
        Beginning of the folder's name. Says whose the folder is.

    Raises
    ------
    OSError
        if the disk refuses.
    """

    def __init__(self, parent: Path, name: str) -> None:
        parent.mkdir(parents=True, exist_ok=True)
        with open(parent / "owners", "w") as everyone:
            fcntl.flock(everyone, fcntl.LOCK_EX)
            _remove_left_over(parent)
            self._folder = parent / f"{name}.{os.getpid()}.{next(_NUMBERS)}"
            self._folder.mkdir()
            self._lock = open(self._folder / _OWNER, "w")  # noqa: SIM115
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        #: empty folder that the owner may fill
        self.path = self._folder / "data"
        self.path.mkdir()

    def close(self) -> None:
        """Remove the folder with all that it holds. May be called again."""
        if not self._lock.closed:
            shutil.rmtree(self._folder, ignore_errors=True)  # because the next process removes what is left
            self._lock.close()


def _remove_left_over(parent: Path) -> None:
    for folder in sorted(parent.iterdir()):
        if folder.is_dir() and _has_no_owner(folder):
            shutil.rmtree(folder, ignore_errors=True)


def _has_no_owner(folder: Path) -> bool:
    try:
        with open(folder / _OWNER, "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # the folder is being removed by its owner
        return False
    return True
