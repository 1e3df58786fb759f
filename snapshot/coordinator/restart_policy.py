"""Decide when to restart after a failure, and when to give up."""

from __future__ import annotations

from dataclasses import dataclass


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
    """

    maxRestarts: int | None = 10
    firstDelay: float = 0.0
    delay: float = 0.1
    multiplier: float = 2.0
    maxDelay: float = 30.0

    def __post_init__(self) -> None:
        if self.maxRestarts is not None and self.maxRestarts < 0:
            raise ValueError(f"maxRestarts is {self.maxRestarts}; give 0 or more, or None for no limit")
        if min(self.firstDelay, self.delay, self.maxDelay) < 0 or self.multiplier < 1:
            raise ValueError(f"{self}: delays must not be negative, nor the multiplier below 1")


@dataclass(frozen=True, slots=True)
class Restart:
    """A failure after which the run continued."""

    at: float  #: seconds since the epoch
    reason: str


class Restarts:
    """Apply a restart policy to the failures of one run."""

    def __init__(self, policy: RestartPolicy) -> None:
        self.history: list[Restart] = []
        #: monotonic seconds before which workers are not deployed again
        self.not_before = 0.0
        #: whether the present failure is counted; its consequences are not counted again
        self.is_counted = False
        self._policy = policy
        self._in_a_row = 0
        #: seconds before the next restart of the row, except the first
        self._delay = policy.delay

    def note_progress(self) -> None:
        """Start a new row of restarts, because a snapshot was published."""
        self._in_a_row = 0
        self._delay = self._policy.delay

    def count(self, reason: str, now: float, epoch: float) -> str | None:
        """Count a failure. Return the reason to give up after too many failures in a row, else None."""
        policy = self._policy
        if policy.maxRestarts is not None and self._in_a_row >= policy.maxRestarts:
            return f"{reason}\n(after {self._in_a_row} restarts in a row; maxRestarts is {policy.maxRestarts})"
        self._in_a_row += 1
        self.is_counted = True
        self.not_before = now + self._next_delay()
        self.history.append(Restart(epoch, reason))
        return None

    def _next_delay(self) -> float:
        if self._in_a_row == 1:
            return min(self._policy.maxDelay, self._policy.firstDelay)
        delay = min(self._policy.maxDelay, self._delay)
        self._delay = min(self._policy.maxDelay, delay * self._policy.multiplier)
        return delay
