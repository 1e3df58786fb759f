"""The histories of a run over all its coordinator instances, as the driver has received them.

A coordinator keeps its histories in memory, so they end with its process. The driver lives as long as the run. So the
driver keeps what any status has held, and completes each later status. A restart or an aborted snapshot may be missing
only when the coordinator died before the driver's next query of the status.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, TypeAlias

from cutline.snapshot.coordinator.bounded_history import HISTORY_MAX, BoundedHistory

_History: TypeAlias = BoundedHistory[Mapping[str, Any]]

#: {key of a history in the status: key of its count}
COUNT_KEYS: Mapping[str, str] = {"restarts": "restartCount", "aborted": "abortedCount"}


def history_of(status: Mapping[str, Any], key: str) -> _History:
    """Return a history of a run's status or progress report."""
    return BoundedHistory(status[COUNT_KEYS[key]], tuple(status[key]))


class RunHistories:
    """Histories of one run. Methods may be called on any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        #: monotonic seconds at which the newest known coordinator instance was started
        self._start = float("-inf")
        #: histories of the coordinator instances before the newest
        self._earlier: dict[str, _History] = {key: BoundedHistory() for key in COUNT_KEYS}
        #: histories of the newest coordinator instance
        self._present: dict[str, _History] = dict(self._earlier)

    def complete(self, status: dict[str, Any]) -> None:
        """Note the histories of a coordinator's status. Put the histories of the whole run in their place.

        Statuses may arrive in any order, because several threads query the coordinator.
        """
        with self._lock:
            start = status["coordinator_start"]
            if start > self._start:
                self._start = start
                self._earlier = {key: self._whole(key) for key in COUNT_KEYS}
                self._present = {key: BoundedHistory() for key in COUNT_KEYS}
            for key, count_key in COUNT_KEYS.items():
                if start == self._start:
                    self._present[key] = _advanced(self._present[key], history_of(status, key))
                whole = self._whole(key)
                status[key], status[count_key] = list(whole.newest), whole.count

    def _whole(self, key: str) -> _History:
        return self._earlier[key].then(self._present[key])


def _advanced(known: _History, found: _History) -> _History:
    """Return the longer of two states of one history, with the known entries themselves.

    Entries are shared, because a hundred progress reports are kept, each with a hundred entries.
    """
    if found.count <= known.count:
        return known
    return BoundedHistory(found.count, (*known.newest, *found.since(known.count))[-HISTORY_MAX:])
