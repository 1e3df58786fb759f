"""What can be wrong with a node's class."""

from __future__ import annotations

from typing import Any

import pytest

from cutline import Context, Node, Sink, Source
from cutline.snapshot.node import Guarantee
from cutline.snapshot.plan.validation import hook_problems


class OneOfThePair(Node):
    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return 1


class OtherOfThePair(Node):
    def restoreState(self, state: Any) -> None:
        pass


class TooFew(Node):
    def onMessage(self, message: Any) -> None:  # type: ignore[override]
        pass


class TooMany(Node):
    def close(self, why: str) -> None:  # type: ignore[override]
        pass


class KeywordOnly(Node):
    def onMessage(self, message: Any, *, context: Context) -> None:  # type: ignore[override]
        pass


class Asynchronous(Node):
    async def onMessage(self, message: Any, context: Context) -> None:  # type: ignore[override]
        pass


class Generating(Node):
    def onMessage(self, message: Any, context: Context) -> Any:
        yield message


class NoMethod(Node):
    onMessage = 3  # type: ignore[assignment]


class Snake(Node):
    def snapshot_state(self, snapshotId: int, timestamp: float) -> Any:
        return 1


class PollingNode(Node):
    def poll(self, context: Context) -> None:
        pass


class Silent(Source):
    pass


class OnlyCommit(Sink):
    def commit(self, snapshotId: int, prepared: Any) -> None:
        pass


class OnlyPrepare(Sink):
    def prepareCommit(self, snapshotId: int) -> Any:
        return 1


class Both(Source, Sink):
    def poll(self, context: Context) -> None:
        pass


class Boasting(Source):
    guarantee: Guarantee | None = "exactly_once"

    def poll(self, context: Context) -> None:
        pass


class Vague(Sink):
    guarantee = "mostly"  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("node", "problem"),
    [
        (OneOfThePair(), "defines snapshotState, but not restoreState: the state would be saved and never restored"),
        (OtherOfThePair(), "defines restoreState, but not snapshotState: there would be no state to restore"),
        (TooFew(), "(message: 'Any') -> 'None' cannot be called with (message, context): it must take 2 arguments"),
        (TooMany(), "close(why: 'str') -> 'None' cannot be called with (): it must take 0 arguments"),
        (KeywordOnly(), "cannot be called with (message, context): it must take 2 arguments"),
        (Asynchronous(), "onMessage is a generator or coroutine: calling it would run nothing of it"),
        (Generating(), "onMessage is a generator or coroutine: calling it would run nothing of it"),
        (NoMethod(), "onMessage is no method, but int"),
        (Snake(), "has snapshot_state, which is never called: the hook is snapshotState"),
        (PollingNode(), "defines poll, but is no Source: it would never be called"),
        (Silent(), "is a Source without poll: it could never send anything"),
        (OnlyCommit(), "defines commit, but not prepareCommit: a commit takes both phases"),
        (OnlyPrepare(), "defines prepareCommit, but not commit: a commit takes both phases"),
        (Both(), "is a Source and a Sink: it must be one of the two"),
        (Boasting(), "declares guarantee 'exactly_once', but has no snapshotState to replay from"),
        (Vague(), "declares guarantee 'mostly', which is none of none, at_least_once, exactly_once"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Node) else "",
)  # fmt: skip
def test_each_mistake_is_said(node: Node, problem: str) -> None:
    """One mistake, one sentence."""
    (said,) = hook_problems(node)
    assert problem in said


class Generous(Node):
    def onMessage(self, *everything: Any) -> None:
        pass

    def onTimer(self, when: float, context: Context, extra: int = 3) -> None:
        pass

    @staticmethod
    def onPublished(snapshotId: int) -> None:
        pass

    def on_message_of_the_day(self) -> None:
        pass

    def close(self) -> None:
        self.onClose()

    def onClose(self) -> None:
        pass

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return self.snapshot_state()

    def snapshot_state(self) -> Any:
        return 1

    def restoreState(self, state: Any) -> None:
        pass

    def _on_start(self) -> None:
        pass


def test_what_can_be_called_is_no_mistake() -> None:
    """Other parameter names, more with defaults, star arguments, static methods, private helpers."""
    assert list(hook_problems(Generous())) == []
    assert list(hook_problems(Node())) == []
    assert list(hook_problems(Sink())) == []
