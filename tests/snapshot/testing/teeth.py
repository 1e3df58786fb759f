"""Take a rule away, and demand that a run is caught without it and is right with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.snapshot.testing.campaign import checker_of


@dataclass(frozen=True)
class Tooth:
    """A rule that is taken away, and the run of a seed that shows it.

    Attributes
    ----------
    caught_by : tuple of str
        Checkers that may notice. Empty: whichever notices.
    first : int
        Seed to begin with, because the mutant is known to die there.
    """

    rule: str
    how: Callable[[pytest.MonkeyPatch], None]
    run: Callable[[int], None]
    caught_by: tuple[str, ...] = ()
    first: int = 0

    def demand(self, monkeypatch: pytest.MonkeyPatch, seeds_max: int) -> None:
        """Find a seed whose run is caught without the rule, and check that it is right with it."""
        for seed in range(self.first, self.first + seeds_max):
            with monkeypatch.context() as patch:
                self.how(patch)
                try:
                    self.run(seed)
                except Exception as error:  # noqa: BLE001  # whatever it is, it is what the seed found
                    caught_by, found = checker_of(error), f"{error!r} (seed {seed})"
                    break
        else:
            pytest.fail(f"{self.rule}: not caught in {seeds_max} runs")
        print(f"{self.rule}: {caught_by}: {found[:300]}")
        assert not self.caught_by or caught_by in self.caught_by, found
        self.run(seed)
