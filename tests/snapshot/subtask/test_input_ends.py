"""The end of streams: which inputs have ended, and what a cut asks of many of them."""

from __future__ import annotations

from typing import Any

import pytest

from cutline import Context, Graph, Node
from cutline.snapshot.ids import Subtask
from cutline.snapshot.plan.compiled_graph import build
from cutline.snapshot.subtask.input_ends import InputEnds


class _Idle(Node):
    def onMessage(self, message: Any, context: Context) -> None:
        """Do nothing."""


def _ends(inputs: int) -> InputEnds:
    """A subtask with so many inputs inside its cycle, and one outside."""
    graph = Graph("g").add("outer", _Idle()).add("a", _Idle(), parallelism=inputs).add("b", _Idle(), parallelism=2)
    graph.connect("a", "b", partitioning="broadcast").connect("b", "a", partitioning="broadcast")
    graph.connect("outer", "b", partitioning="broadcast")
    return InputEnds(Subtask("b", 0), build(graph, "unaligned").topology)


def test_a_status_says_whether_only_the_cycle_is_open() -> None:
    """The input from outside ends first, then those inside, one by one."""
    ends = _ends(3)
    inside = list(ends.inner_inputs)
    outside = next(iter(ends._open["outer"]))

    def outer_ended() -> bool:
        return ends.status(
            False, passive=True, has_timers=False, uncommitted=(), partitions=None, own_state=None
        ).outer_inputs_ended

    assert not outer_ended()
    assert ends.channel_ended(outside)
    assert outer_ended()
    for number, channel in enumerate(inside, start=1):
        assert not ends.inner_ended
        assert ends.channel_ended(channel) is (number == len(inside))
        assert ends.open_inner_inputs() == inside[number:]
    assert ends.inner_ended
    assert ends.all_ended


@pytest.mark.timeout(20)
def test_many_inputs_are_no_work() -> None:
    """Comparing each of 30,000 inputs with each would take minutes."""
    ends = _ends(30_000)
    ends.status(False, passive=True, has_timers=False, uncommitted=(), partitions=None, own_state=None)
    for channel in ends.inner_inputs:
        ends.channel_ended(channel)
    assert ends.inner_ended
