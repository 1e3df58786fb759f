"""What a worker has done so far, told to the coordinator about once a second, and the sum of it over all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

#: Seconds between two reports of one worker: fast enough to watch, too slow to cost anything.
PROGRESS_INTERVAL_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class WorkerProgress:
    """Counters of one worker since it was deployed in `incarnation`."""

    worker: int
    incarnation: int
    #: {node: messages that its subtasks here have sent}
    sent: dict[str, int]
    #: {node: messages that its subtasks here have processed}
    processed: dict[str, int]
    #: {node: subtasks here that have ended}
    ended: dict[str, int]
    #: {metric: sum of `Context.increment`}
    metrics: dict[str, float]
    #: {reason: connections that this process refused, in all incarnations}
    refused: dict[str, int]


def summed(reports: Iterable[WorkerProgress]) -> dict[str, Any]:
    """The newest report of each worker, added up: ``{"sent": {node: …}, "processed": …, "ended": …, "metrics": …}``."""
    total: dict[str, dict[str, float]] = {"sent": {}, "processed": {}, "ended": {}, "metrics": {}}
    for report in reports:
        for name, sums in total.items():
            for key, value in getattr(report, name).items():
                sums[key] = sums.get(key, 0) + value
    return total


def all_refused(endpoint: dict[str, int], reports: Iterable[WorkerProgress]) -> dict[str, int]:
    """Connections that the coordinator and the workers refused: ``{reason: count}``."""
    total = Counter(endpoint)
    for report in reports:
        total.update(report.refused)
    return dict(total)
