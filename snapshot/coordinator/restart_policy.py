"""When to try again after a failure, and when to give up."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RestartPolicy:
    """Exponential delay between a failure and the restore after it.

    Restarts count as one row until a snapshot is published between them.

    Parameters
    ----------
    maxRestarts : int or None
        Restarts in one row before the run fails; None: no limit.
    firstDelay : float
        Seconds before the first restart of a row.
    delay : float
        Seconds before the second.
    multiplier : float
        Each further delay is this many times the one before.
    maxDelay : float
        Seconds; no delay is longer.
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
    """One failure that the run went on from: kept and shown."""

    at: float  #: seconds since the epoch
    reason: str


class Restarts:
    """Applies a policy to the failures of one run."""

    def __init__(self, policy: RestartPolicy) -> None:
        self.history: list[Restart] = []
        #: monotonic seconds: workers are not deployed again before
        self.not_before = 0.0
        #: the failure that the run recovers from now is counted; what follows from it is not one more
        self.is_counted = False
        self._policy = policy
        self._in_a_row = 0
        #: seconds before the restart after the next one
        self._delay = policy.delay

    def note_progress(self) -> None:
        """A snapshot was published: what comes now is a new row."""
        self._in_a_row = 0
        self._delay = self._policy.delay

    def count(self, reason: str, now: float, epoch: float) -> str | None:
        """Count a failure; the reason to give up, if there were too many in a row."""
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
