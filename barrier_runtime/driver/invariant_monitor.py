"""Judges a graph's invariants on published snapshots. Reads storage, and knows neither workers nor coordinators.

The functions are the user's, and may hang, raise or exit. So none runs on the run's monitor::

    Run's monitor --ids--> InvariantQueue --ids--> InvariantMonitor --snapshot--> one thread for each invariant
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any, NamedTuple

from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.coordinator.bounded_history import BoundedHistory
from cutline.snapshot.errors import RunFailed, SnapshotCorrupt
from cutline.snapshot.plan.declarations import Invariant
from cutline.snapshot.stored.run_store import RunStore
from cutline.snapshot.stored.snapshot import Snapshot

#: Seconds that an invariant may take for one snapshot. Long, because it may read gigabytes of state.
DEADLINE_SECONDS = 60.0

#: characters of an error's text that a verdict keeps
_REASON_CHARACTERS_MAX = 2000

_logger = logging.getLogger("cutline.run")


@dataclass(slots=True)
class _Verdict:
    """The verdict on one invariant."""

    #: whether the invariant holds in the last judged snapshot, or None before the first
    holds: bool | None = None
    #: id of the last judged snapshot, or 0 before the first
    snapshot: int = 0
    #: why the invariant does not hold in the last judged snapshot, or "" when the invariant holds
    reason: str = ""
    #: ids of the snapshots in which the invariant does not hold
    violations: BoundedHistory[int] = field(default_factory=BoundedHistory)
    #: ids of the snapshots that cannot be judged, because they are damaged, or the invariant hangs in an earlier one
    unreadable: BoundedHistory[int] = field(default_factory=BoundedHistory)

    def as_status(self) -> dict[str, Any]:
        """Return the verdict as plain data."""
        return {
            "holds": self.holds,
            "snapshot": self.snapshot,
            "reason": self.reason,
            "violations": list(self.violations.newest),
            "violationCount": self.violations.count,
            "unreadable": list(self.unreadable.newest),
            "unreadableCount": self.unreadable.count,
        }


class _Outcome(NamedTuple):
    """The outcome of one call of an invariant."""

    #: whether the invariant holds, or None when the snapshot cannot be read
    holds: bool | None
    #: why the invariant does not hold, or why the snapshot cannot be read
    reason: str


class _InvariantThread:
    """Calls one invariant, always on the same thread.

    The thread is a daemon, because a hanging invariant must not outlive the process.

    Parameters
    ----------
    name : str
    holds : callable
    """

    def __init__(self, name: str, holds: Invariant) -> None:
        self._holds = holds
        self._calls: SimpleQueue[tuple[Snapshot, Future[_Outcome]] | None] = SimpleQueue()
        #: the last call, or None before the first
        self._last: Future[_Outcome] | None = None
        threading.Thread(target=self._serve, name=f"cutline-invariant-{name}", daemon=True).start()

    @property
    def is_hanging(self) -> bool:
        """True while the invariant has not returned from the last call."""
        return self._last is not None and not self._last.done()

    def call(self, snapshot: Snapshot) -> _Outcome:
        """Call the invariant, and wait for its outcome until the deadline."""
        assert not self.is_hanging
        outcome: Future[_Outcome] = Future()
        self._last = outcome
        self._calls.put((snapshot, outcome))
        if wait([outcome], DEADLINE_SECONDS).done:
            return outcome.result()
        return _Outcome(False, f"it did not return within {DEADLINE_SECONDS:g} s")

    def close(self) -> None:
        """End the thread as soon as the invariant has returned."""
        self._calls.put(None)

    def _serve(self) -> None:
        while (call := self._calls.get()) is not None:
            snapshot, outcome = call
            outcome.set_result(self._judge(snapshot))

    def _judge(self, snapshot: Snapshot) -> _Outcome:
        try:
            return _Outcome(True, "") if self._holds(snapshot) else _Outcome(False, "it returned False")
        except (OSError, SnapshotCorrupt, RunFailed) as error:  # because parts are read when the function uses them
            return _Outcome(None, _text(error))
        except BaseException as error:  # noqa: BLE001  # whatever the user's function raises is a verdict, SystemExit too
            return _Outcome(False, f"it raised {type(error).__name__}: {_text(error)}")


class InvariantMonitor:
    """All verdicts of one run. Each snapshot is judged once, in ascending order. `close` must follow, once.

    Parameters
    ----------
    store : RunStore
    codec : Codec
    invariants : mapping of str to callable
    """

    def __init__(self, store: RunStore, codec: Codec, invariants: Mapping[str, Invariant]) -> None:
        self._store = store
        self._codec = codec
        self._threads = {name: _InvariantThread(name, holds) for name, holds in invariants.items()}
        #: guards the fields of the verdicts
        self._lock = threading.Lock()
        self._verdicts = {name: _Verdict() for name in invariants}
        #: id of the newest snapshot that was judged or cannot be judged
        self._newest = 0
        #: id of the snapshot that the last warning named as not judged yet
        self._awaited = 0

    def as_status(self) -> dict[str, dict[str, Any]]:
        """Return the verdicts as plain data, by invariant. May be called on any thread."""
        with self._lock:
            return {name: verdict.as_status() for name, verdict in self._verdicts.items()}

    def judge(self, snapshot_ids: Iterable[int]) -> None:
        """Judge the published snapshots, given in ascending order, that are not judged yet. Blocks meanwhile.

        When the store fails, leave the snapshot and all later snapshots for the next call. Do not retry damaged data.
        Each call of an invariant ends by `DEADLINE_SECONDS`.
        """
        for snapshot_id in snapshot_ids:
            if snapshot_id > self._newest and self._threads and not self._judge(snapshot_id):
                return

    def close(self) -> None:
        """End the threads of all invariants that return."""
        for thread in self._threads.values():
            thread.close()

    def _judge(self, snapshot_id: int) -> bool:
        """Judge one snapshot. Return False when it must be judged again."""
        try:
            snapshot = self._store.read_snapshot(snapshot_id, self._codec)
        except FileNotFoundError:
            return True  # because retention removed the snapshot first
        except (OSError, RunFailed) as error:  # RunFailed when the coordinator that keeps the snapshot does not answer
            if snapshot_id != self._awaited:
                self._awaited = snapshot_id
                _logger.warning("run %s: snapshot %d is not judged yet: %s", self._store.run, snapshot_id, error)
            return False
        except Exception as error:  # noqa: BLE001  # damaged data is not read again, whatever its reading raises
            self._newest = snapshot_id
            _logger.warning("run %s: snapshot %d cannot be judged: %s", self._store.run, snapshot_id, _text(error))
            with self._lock:
                for verdict in self._verdicts.values():
                    verdict.unreadable = verdict.unreadable.add(snapshot_id)
            return True
        self._newest = snapshot_id
        for name, thread in self._threads.items():
            if thread.is_hanging:
                outcome = _Outcome(None, "it has not returned from an earlier snapshot")
            else:
                outcome = thread.call(snapshot)
            self._note(name, snapshot_id, outcome)
        return True

    def _note(self, name: str, snapshot_id: int, outcome: _Outcome) -> None:
        run, reason = self._store.run, outcome.reason
        with self._lock:
            verdict = self._verdicts[name]
            if outcome.holds is None:
                verdict.unreadable = verdict.unreadable.add(snapshot_id)
            else:
                verdict.holds, verdict.snapshot, verdict.reason = outcome.holds, snapshot_id, reason
            if outcome.holds is False:
                verdict.violations = verdict.violations.add(snapshot_id)
        if outcome.holds is None:
            _logger.warning("run %s: invariant %s cannot judge snapshot %d: %s", run, name, snapshot_id, reason)
        elif not outcome.holds:
            _logger.error("run %s: invariant %s does not hold in snapshot %d: %s", run, name, snapshot_id, reason)


class InvariantQueue:
    """Has snapshots judged by an `InvariantMonitor` on a thread of its own. `close` must follow, once.

    Parameters
    ----------
    monitor : InvariantMonitor
    """

    def __init__(self, monitor: InvariantMonitor) -> None:
        self._monitor = monitor
        #: guards the two fields below; notified when one of the two changes
        self._changed = threading.Condition()
        #: ids of the published snapshots that were posted last, or None when they were taken
        self._posted: tuple[int, ...] | None = None
        self._is_closing = False
        self._thread = threading.Thread(target=self._serve, name="cutline-invariants", daemon=True)
        self._thread.start()

    def post(self, snapshot_ids: Iterable[int]) -> None:
        """Have the published snapshots, given in ascending order, judged that are not judged yet. Does not block."""
        with self._changed:
            self._posted = tuple(snapshot_ids)
            self._changed.notify()

    def close(self) -> None:
        """Wait until all posted snapshots are judged. An invariant that hangs delays this by one deadline at most."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join()
        self._monitor.close()

    def _serve(self) -> None:
        while (snapshot_ids := self._next()) is not None:
            self._monitor.judge(snapshot_ids)

    def _next(self) -> tuple[int, ...] | None:
        """Wait for the ids that were posted last. Return None when there are none and the queue closes."""
        with self._changed:
            self._changed.wait_for(lambda: self._posted is not None or self._is_closing)
            posted, self._posted = self._posted, None
            return posted


def _text(error: BaseException) -> str:
    """Return the text of an error, even of an error whose own text cannot be made or stored."""
    try:
        text = str(error)
    except BaseException as failure:  # noqa: BLE001  # `__str__` is the user's code as well
        text = f"its text cannot be made: {type(failure).__name__}"
    return text[:_REASON_CHARACTERS_MAX].encode("utf-8", "backslashreplace").decode()
