"""When to try again after a failure, and when to give up."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RestartPolicy:
    """Exponential delay. Restarts count as one row until a snapshot is published between them.

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


class RestartCounter:
    """Applies a policy to one run."""

    def __init__(self, policy: RestartPolicy) -> None:
        self._policy = policy
        #: restarts since the last published snapshot
        self.in_a_row = 0

    def note_progress(self) -> None:
        """A snapshot was published: what comes now is a new row."""
        self.in_a_row = 0

    def next_delay(self) -> float | None:
        """Seconds to wait before the restart that is due now; None: give up."""
        policy = self._policy
        if policy.maxRestarts is not None and self.in_a_row >= policy.maxRestarts:
            return None
        self.in_a_row += 1
        if self.in_a_row == 1:
            return policy.firstDelay
        # The exponent is capped, because a float overflows before a patient user does.
        return min(policy.maxDelay, policy.delay * policy.multiplier ** min(self.in_a_row - 2, 64))
