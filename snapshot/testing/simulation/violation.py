"""What a simulated run finds wrong with Cutline itself, while it runs."""

from __future__ import annotations


class Violation(AssertionError):
    """A rule of the protocol was broken; `checker` names which."""

    def __init__(self, checker: str, text: str) -> None:
        super().__init__(checker, text)
        self.checker = checker

    def __str__(self) -> str:
        return ": ".join(self.args)
