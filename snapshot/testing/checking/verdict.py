"""The verdict of a checker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: number of problems in the text: the first problems show the cause, and a broken run has thousands
_PROBLEMS_SHOWN = 5


class CheckFailed(AssertionError):
    """Raised when a checker, by name, finds something wrong."""

    def __init__(self, checker: str, text: str) -> None:
        super().__init__(checker, text)
        self.checker = checker
        self.text = text

    def __str__(self) -> str:
        return f"{self.checker}: {self.text}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The finding of one checker."""

    checker: str  #: its name in RELIABILITY
    holds: bool
    text: str  #: the numbers that were checked; or the channel, message and cut that are wrong

    def demand(self) -> None:
        """Raise if the verdict is against the run, so that a test fails.

        Raises
        ------
        CheckFailed
            if the verdict does not hold.
        """
        if not self.holds:
            raise CheckFailed(self.checker, self.text)

    def __str__(self) -> str:
        return f"{self.checker}: {'holds' if self.holds else 'BROKEN'}: {self.text}"


def verdict_of(checker: str, problems: Sequence[str], fine: str) -> Verdict:
    """Make the verdict of these problems. `fine` is the text of a verdict without problems."""
    if not problems:
        return Verdict(checker, True, fine)
    more = len(problems) - _PROBLEMS_SHOWN
    rest = [f"and {more} more"] if more > 0 else []
    return Verdict(checker, False, "; ".join([*problems[:_PROBLEMS_SHOWN], *rest]))
