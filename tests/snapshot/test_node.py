"""What a user subclasses: which hooks a class has, which guarantee it gives, END."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import cloudpickle

from cutline import END, Context, Node, Sink, Source
from cutline.snapshot.node import defines, guarantee_of


class Replayable(Source):
    def poll(self, context: Context) -> Any:
        return END

    def snapshotState(self, snapshotId: int, timestamp: float) -> int:
        return 0

    def restoreState(self, state: int) -> None:
        pass


class Forgetful(Source):
    def poll(self, context: Context) -> Any:
        return END


class TwoPhase(Sink):
    def prepareCommit(self, snapshotId: int) -> Any:
        return None

    def commit(self, snapshotId: int, prepared: Any) -> None:
        pass


def test_end_stays_itself_through_pickling_and_copying() -> None:
    """`is END` is a sound test in any process."""
    assert pickle.loads(pickle.dumps(END)) is END
    assert cloudpickle.loads(cloudpickle.dumps(END)) is END
    assert copy.deepcopy(END) is END


def test_a_hook_counts_as_defined_only_in_users_classes() -> None:
    """Inherited defaults are not hooks; a user's base class and mixins count."""

    class Mixin:
        def onTimer(self, at: float, context: Context) -> None:
            pass

    class Child(Mixin, Replayable):
        pass

    assert not defines(Node(), "onMessage")
    assert not defines(Sink(), "commit")
    assert not defines(Source(), "poll")
    assert all(defines(Child(), hook) for hook in ("poll", "snapshotState", "restoreState", "onTimer"))
    assert not defines(Child(), "onMessage")


def test_guarantees_default_to_what_the_hooks_allow() -> None:
    """exactly_once where a source has state or a sink commits; a declared level wins; nodes have none."""
    declared = TwoPhase()
    declared.guarantee = "none"
    nodes = [Replayable(), Forgetful(), TwoPhase(), Sink(), declared, Node()]
    assert [guarantee_of(node) for node in nodes] == [
        "exactly_once",
        "none",
        "exactly_once",
        "at_least_once",
        "none",
        None,
    ]
