"""Log what a subtask does, where a restore repeats it. `SubtaskLog` keeps no log, as in modes without one."""

from __future__ import annotations

from cutline.snapshot.subtask.listener import Listener
from cutline.snapshot.subtask.restored import Restored


class SubtaskLog(Listener):
    """The log of a subtask that has none."""

    #: run that began the log, which is stored with the state; None without a log
    run: str | None = None

    def restoring(self, restored: Restored) -> None:
        """Hold a restored log, or begin one for a fresh node. Called before the node restores its state."""

    def go_on(self, run: str, snapshot_id: int) -> None:
        """Go on after restored state. `run` began the log of the steps up to the state of `snapshot_id`."""

    def opened(self) -> None:
        """Called after `open`."""

    def started(self) -> None:
        """Called before `onStart` of a fresh node."""
