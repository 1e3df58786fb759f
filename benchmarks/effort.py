"""How long and how often is measured."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

Choice = TypeVar("Choice")

#: Seconds of steady state that a figure worth keeping needs: beyond warm-up, and many snapshots long.
STEADY_SECONDS = 10.0
#: Runs of each configuration, of which the median counts. What is compared takes turns in each of these rounds.
REPEATS = 3
#: Seconds and runs of a quick look, which shows that a benchmark works, and no figure worth keeping.
QUICK_SECONDS = 0.5
QUICK_REPEATS = 1


@dataclass(frozen=True, slots=True)
class Effort:
    """What the caller is willing to wait for."""

    seconds: float = STEADY_SECONDS
    repeats: int = REPEATS
    quick: bool = False

    def choose(self, full: Choice, quick: Choice) -> Choice:
        """One of the two: what is too much for a quick look is left out of it."""
        return quick if self.quick else full

    def configuration(self) -> dict[str, object]:
        """What every result says of it."""
        return {"seconds": self.seconds, "quick": self.quick}


QUICK = Effort(QUICK_SECONDS, QUICK_REPEATS, quick=True)
