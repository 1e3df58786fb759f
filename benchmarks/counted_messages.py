"""A source that says how much it has sent, and is told when to end, for whoever measures a run while it is on.

A file of its own, with few imports: workers that are forked import it.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from benchmarks.keyed_nodes import Messages
from snapshot import END, Context
from snapshot.node import End


class Board:
    """A few numbers in memory that is shared by all who open the same file.

    Parameters
    ----------
    path : Path
        Made if it is not there.
    parallelism : int
        of the source.
    """

    def __init__(self, path: Path, parallelism: int) -> None:
        path.touch()
        with path.open("r+b") as file:
            file.truncate(8 * (parallelism + 1))
        self._numbers = np.memmap(path, np.int64, "r+", shape=(parallelism + 1,))

    @property
    def rounds(self) -> int:
        """Sent by all subtasks."""
        return int(self._numbers[:-1].sum())

    @property
    def all_have_begun(self) -> bool:
        """Each subtask has sent something."""
        return bool(self._numbers[:-1].min() > 0)

    def count(self, index: int) -> None:
        """A subtask has sent one more round."""
        self._numbers[index] += 1

    def end(self) -> None:
        """Tell all subtasks to end."""
        self._numbers[-1] = 1

    @property
    def has_ended(self) -> bool:
        """Subtasks are to end."""
        return bool(self._numbers[-1])


class CountedMessages(Messages):
    """Bursts of (key, value), until the board in `path` says that it is over."""

    def __init__(self, path: Path) -> None:
        super().__init__(math.inf)
        self.path = path

    def open(self, context: Context) -> None:
        super().open(context)
        self.board, self.index = Board(self.path, context.parallelism), context.subtask.index

    def poll(self, context: Context) -> float | End | None:
        wait = super().poll(context)
        self.board.count(self.index)
        return END if self.board.has_ended else wait
