"""What a checker says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: Problems that a verdict spells out; the first ones tell the story, and a broken run has thousands.
_PROBLEMS_SHOWN = 5


class CheckFailed(AssertionError):
    """A checker, by name, found something wrong."""

    def __init__(self, checker: str, text: str) -> None:
        super().__init__(checker, text)
        self.checker = checker
        self.text = text

    def __str__(self) -> str:
        return f"{self.checker}: {self.text}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one checker found."""

    checker: str  #: its name in RELIABILITY
    holds: bool
    text: str  #: what was looked at; or which channel, which message, which cut is wrong

    def demand(self) -> None:
        """Let a test fail if the verdict is against the run.

        Raises
        ------
        CheckFailed
            if it does not hold.
        """
        if not self.holds:
            raise CheckFailed(self.checker, self.text)

    def __str__(self) -> str:
        return f"{self.checker}: {'holds' if self.holds else 'BROKEN'}: {self.text}"


def verdict_of(checker: str, problems: Sequence[str], fine: str) -> Verdict:
    """The verdict that there are these problems; `fine` is its text if there are none."""
    if not problems:
        return Verdict(checker, True, fine)
    more = len(problems) - _PROBLEMS_SHOWN
    rest = [f"and {more} more"] if more > 0 else []
    return Verdict(checker, False, "; ".join([*problems[:_PROBLEMS_SHOWN], *rest]))
