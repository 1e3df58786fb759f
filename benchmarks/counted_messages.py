"""A source that says in a file how much it has sent, for whoever measures a run while it is on.

A file of its own, with few imports: workers that are forked import it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.keyed_nodes import Messages
from snapshot import Context


class CountedMessages(Messages):
    """Bursts of (key, value).

    Parameters
    ----------
    seconds : float
        for which it sends.
    counters : Path
        `counters_in`, of its parallelism.
    """

    def __init__(self, seconds: float, counters: Path) -> None:
        super().__init__(seconds)
        self.path = counters

    def open(self, context: Context) -> None:
        super().open(context)
        self.counters = counters_in(self.path, context.parallelism)

    def send_round(self, context: Context) -> None:
        super().send_round(context)
        self.counters[context.subtask.index] += 1


def counters_in(path: Path, parallelism: int) -> npt.NDArray[np.int64]:
    """The rounds that each subtask has sent: memory that is shared by all who open the file."""
    path.touch()
    if not path.stat().st_size:
        with path.open("r+b") as file:
            file.truncate(8 * parallelism)
    return np.memmap(path, np.int64, "r+", shape=(parallelism,))
