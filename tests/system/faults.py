"""Faults that the system tests inject: nodes that fail on schedule, and storage that waits or fails on demand."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.live import DEADLINE_S
from benchmarks.numbered_nodes import Relay
from cutline import Context, FileSystemBackend, Node
from cutline.state_backends.disk import Disk

#: seconds between two reads of a file that holds a write
_POLL_S = 0.01


class Faults:
    """Faults that fire once each, in order. Files note which have fired, because they survive restarts."""

    def __init__(self, folder: Path, schedule: tuple[str, ...]) -> None:
        self.folder, self.schedule = folder, schedule

    def fire(self, name: str) -> bool:
        """Whether `name` is due. Only one caller gets True, and that caller must fail."""
        if name not in self.schedule:
            return False
        earlier = self.schedule[: self.schedule.index(name)]
        if any(not (self.folder / fault).exists() for fault in earlier):
            return False
        try:
            (self.folder / name).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def fired(self) -> list[str]:
        """The faults that have fired, in the order of the schedule."""
        return [fault for fault in self.schedule if (self.folder / fault).exists()]


class Shaky(Relay):
    """Passes every message on, except when a fault is due.

    Faults between messages wait until this instance has seen a published snapshot. So there is a snapshot to go back
    to, and progress between two faults.
    """

    def __init__(self, faults: Faults) -> None:
        super().__init__()
        self.faults = faults
        self.published = False

    def onPublished(self, snapshotId: int) -> None:
        self.published = True

    def onMessage(self, message: Any, context: Context) -> None:
        if self.published:
            if self.faults.fire("onMessage"):
                raise RuntimeError("scheduled: onMessage")
            if self.faults.fire("kill"):
                os.kill(os.getpid(), signal.SIGKILL)
        super().onMessage(message, context)

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        if self.faults.fire("snapshotState"):
            raise RuntimeError("scheduled: snapshotState")
        return super().snapshotState(snapshotId, timestamp)

    def restoreState(self, state: Any) -> None:
        if self.faults.fire("restoreState"):
            raise RuntimeError("scheduled: restoreState")
        super().restoreState(state)

    def close(self) -> None:
        if self.faults.fire("close"):
            raise RuntimeError("scheduled: close")


class Gate(Node):
    """Lets records enter a ring, go round `laps` times, and leave."""

    def __init__(self, laps: int) -> None:
        self.laps = laps

    def onMessage(self, message: Any, context: Context) -> None:
        assert context.sender is not None
        if context.sender.node == "numbers":
            context.send((self.laps, message), "ring")
        elif message[0] > 1:
            context.send((message[0] - 1, message[1]), "ring")
        else:
            context.send(message[1], "ledger")


class HeldBackend(FileSystemBackend):
    """Waits before or after a write that a file ``hold-before`` or ``hold-after`` names. Touches ``held`` meanwhile."""

    def __init__(self, root: Path, signs: Path) -> None:
        super().__init__(root, inlineBytesMax=0)
        self.signs = signs

    def _put_if_absent(self, path: str, chunks: Sequence[memoryview]) -> bool:
        self._hold(self.signs / "hold-before", path)
        won = super()._put_if_absent(path, chunks)
        self._hold(self.signs / "hold-after", path)
        return won

    def _hold(self, sign: Path, path: str) -> None:
        end = time.monotonic() + DEADLINE_S
        while _names(sign, path) and time.monotonic() < end:
            (self.signs / "held").touch()
            threading.Event().wait(_POLL_S)


def _names(sign: Path, path: str) -> bool:
    """Whether the file exists and names `path`, by one read, because the test may remove the file at any time."""
    try:
        return sign.read_text() in path
    except FileNotFoundError:
        return False


class DimDisk(Disk):
    """Fails to read manifests while `fault` is set. Copies of the disk made at submit read well.

    `fault` is "" (none), "error" (the read fails) or "damage" (a bit is flipped).
    """

    def __init__(self) -> None:
        self.fault = ""

    def read(self, path: str, offset: int = 0, size: int | None = None) -> bytes:
        data = super().read(path, offset, size)
        fault = self.fault if path.endswith(".manifest") else ""
        if fault == "error":
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        return data[:-1] + bytes([data[-1] ^ 1]) if fault == "damage" else data
