"""Decide when to restart after a failure, and when to give up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from snapshot.coordinator.bounded_history import BoundedHistory
from snapshot.coordinator.repeated_failures import Isolated, Poisoned, RepeatedFailures
from snapshot.culprit import Culprit, IsolatedMessages
from snapshot.ids import Subtask
from snapshot.plan.topology import Topology
from snapshot.stored.certificate import SubtaskRecord


@dataclass(frozen=True)
class RestartPolicy:
    """Exponential delay between a failure and the restore after it.

    Restarts without a published snapshot between them count as one row.

    Parameters
    ----------
    maxRestarts : int or None
        Restarts in a row before the run fails, or None for no limit.
    firstDelay : float
        Seconds before the first restart of a row.
    delay : float
        Seconds before the second restart of a row.
    multiplier : float
        Factor from each delay to the next delay.
    maxDelay : float
        Longest delay in seconds.
    poisonAfter : int or None
        Failures in a row of the same message, batch or timer after which the run fails, or after which the message is
        sent along the edge that `Graph.connect(onError=...)` declares. None: failures of one message have no limit of
        their own. Give a larger number, or None, to nodes that fail while an outside service is down.
    """

    maxRestarts: int | None = 10
    firstDelay: float = 0.0
    delay: float = 0.1
    multiplier: float = 2.0
    maxDelay: float = 30.0
    poisonAfter: int | None = 3

    def __post_init__(self) -> None:
        if self.maxRestarts is not None and self.maxRestarts < 0:
            raise ValueError(f"maxRestarts is {self.maxRestarts}; give 0 or more, or None for no limit")
        if self.poisonAfter is not None and self.poisonAfter < 1:
            raise ValueError(f"poisonAfter is {self.poisonAfter}; give 1 or more, or None for no limit")
        if min(self.firstDelay, self.delay, self.maxDelay) < 0 or self.multiplier < 1:
            raise ValueError(f"{self}: delays must not be negative, nor the multiplier below 1")


@dataclass(frozen=True, slots=True)
class Restart:
    """A failure after which the run continued."""

    at: float  #: seconds since the epoch
    reason: str


class Restarts:
    """Apply a restart policy to the failures of one run."""

    def __init__(self, policy: RestartPolicy, topology: Topology) -> None:
        self.history: BoundedHistory[Restart] = BoundedHistory()
        #: monotonic seconds before which workers are not deployed again
        self.not_before = 0.0
        #: whether the present failure is counted; its consequences are not counted again
        self.is_counted = False
        self._policy = policy
        self._repeated = RepeatedFailures(topology, policy.poisonAfter)
        self._in_a_row = 0
        #: seconds before the next restart of the row, except the first
        self._delay = policy.delay

    def note_published(self, records: Iterable[SubtaskRecord]) -> None:
        """Start a new row of restarts, because a snapshot was published, and forget the messages before it."""
        self._start_row()
        self._repeated.note_published(records)

    def isolated(self, subtask: Subtask) -> tuple[IsolatedMessages, ...]:
        """Return the messages that the subtask must keep apart after the restart, ascending in each channel."""
        return self._repeated.isolated(subtask)

    def count(self, reason: str, now: float, epoch: float, culprit: Culprit | None = None) -> str | None:
        """Count a failure. Return the reason to give up after too many failures in a row, else None.

        A failure after which its messages are isolated counts for no row, because the next restart differs.
        """
        policy = self._policy
        verdict = self._repeated.count(culprit, reason)
        if isinstance(verdict, Poisoned):
            return verdict.text
        if isinstance(verdict, Isolated):
            self._start_row()
            self._restart(now + min(policy.maxDelay, policy.firstDelay), epoch, f"{reason}\n({verdict.text})")
            return None
        if policy.maxRestarts is not None and self._in_a_row >= policy.maxRestarts:
            return f"{reason}\n(after {self._in_a_row} restarts in a row; maxRestarts is {policy.maxRestarts})"
        self._in_a_row += 1
        self._restart(now + self._next_delay(), epoch, reason)
        return None

    def _restart(self, not_before: float, epoch: float, reason: str) -> None:
        self.is_counted = True
        self.not_before = not_before
        self.history = self.history.add(Restart(epoch, reason))

    def _start_row(self) -> None:
        self._in_a_row = 0
        self._delay = self._policy.delay

    def _next_delay(self) -> float:
        if self._in_a_row == 1:
            return min(self._policy.maxDelay, self._policy.firstDelay)
        delay = min(self._policy.maxDelay, self._delay)
        self._delay = min(self._policy.maxDelay, delay * self._policy.multiplier)
        return delay
