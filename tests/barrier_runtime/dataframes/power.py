"""Real files of which only what was synced survives: names by their folder's fsync, bytes by their own."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from types import FrameType, TracebackType
from typing import Self

import pytest

import cutline.barrier_runtime.dataframes as package

_PACKAGE = os.path.dirname(str(package.__file__))


class Power:
    """Watches each fsync of this process. Used as a context manager.

    Parameters
    ----------
    monkeypatch : pytest.MonkeyPatch
    dropped : str, optional
        Function of `barrier_runtime.dataframes` whose fsync has no effect: a mutant without that line.
    early : str, optional
        A file's name that the disk stores of its own accord, before its folder is synced and without the names beside.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, dropped: str = "", early: str = "") -> None:
        #: {function of the package that synced: None}
        self.callers: dict[str, None] = {}
        self._dropped = dropped
        self._monkeypatch = monkeypatch
        #: {inode of a folder: {durable name: inode}}
        self._names: dict[int, dict[str, int]] = {}
        #: the durable names at the moment before the folder of `early` was synced first, with that name
        self._names_early: dict[int, dict[str, int]] = {}
        self._early = early
        #: {inode of a file: durable bytes}
        self._bytes: dict[int, bytes] = {}
        #: descriptors that keep every inode from being used again
        self._kept: list[int] = []

    def __enter__(self) -> Self:
        self._patch = self._monkeypatch.context()
        self._patch.__enter__().setattr(os, "fsync", self._sync)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._patch.__exit__(kind, error, at)
        for descriptor in self._kept:
            os.close(descriptor)

    def survivors(self, root: Path, target: Path) -> Path:
        """Write to `target` what a loss of power leaves of `root` now. `root` itself is durable."""
        self._copy_folder(root.stat().st_ino, target, self._names)
        return target

    def survivors_early(self, root: Path, target: Path) -> Path:
        """Write to `target` what a loss of power left of `root` before the folder of `early` was synced."""
        self._copy_folder(root.stat().st_ino, target, self._names_early)
        return target

    def _copy_folder(self, inode: int, target: Path, durable: dict[int, dict[str, int]]) -> None:
        target.mkdir()
        for name, each in durable.get(inode, {}).items():
            if each in self._bytes:
                (target / name).write_bytes(self._bytes[each])
            elif each in self._folders:
                self._copy_folder(each, target / name, durable)
            else:
                (target / name).touch()

    @property
    def _folders(self) -> dict[int, None]:
        return dict.fromkeys(os.fstat(each).st_ino for each in self._kept if stat.S_ISDIR(os.fstat(each).st_mode))

    def _sync(self, descriptor: int) -> None:
        caller = _caller(sys._getframe())
        self.callers.setdefault(caller)
        inode = os.fstat(descriptor).st_ino
        self._kept.append(os.dup(descriptor))
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if caller and caller == self._dropped:
            return
        if os.path.isdir(path):
            if self._early in os.listdir(path) and not self._names_early:
                self._names_early = {folder: dict(names) for folder, names in self._names.items()}
                self._names_early.setdefault(inode, {})[self._early] = os.stat(f"{path}/{self._early}").st_ino
            self._names[inode] = {}
            for entry in os.scandir(path):
                self._names[inode][entry.name] = entry.inode()
                if entry.is_dir():
                    self._kept.append(os.open(entry.path, os.O_RDONLY))
        else:
            self._bytes[inode] = Path(path).read_bytes()


def _caller(frame: FrameType | None) -> str:
    """Return the innermost function of the package, or "" for a sync of a backend."""
    while frame is not None:
        if frame.f_code.co_filename.startswith(_PACKAGE):
            return frame.f_code.co_name
        frame = frame.f_back
    return ""
