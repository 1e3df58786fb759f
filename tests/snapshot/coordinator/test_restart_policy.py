"""When to restart, and when to give up."""

from __future__ import annotations

from typing import Any

import pytest

from cutline import Graph
from cutline.snapshot.coordinator.restart_policy import RestartPolicy, Restarts
from cutline.snapshot.failed_event import FailedMessage
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.plan.compiled_graph import build
from cutline.snapshot.plan.topology import Topology
from tests.snapshot.graphs import Passive

_TOPOLOGY = Topology("g", (), (), ())


def delays(policy: RestartPolicy, count: int) -> list[float]:
    """Seconds before each of the first restarts."""
    restarts = Restarts(policy, _TOPOLOGY)
    found = []
    for _ in range(count):
        assert restarts.count("why", 10.0, 1010.0) is None
        found.append(restarts.not_before - 10.0)
    return found


def test_delays_are_exponential_up_to_a_maximum() -> None:
    """The first has its own; a huge multiplier does not overflow."""
    assert delays(RestartPolicy(delay=1.0, maxDelay=5.0), 5) == [0.0, 1.0, 2.0, 4.0, 5.0]
    assert delays(RestartPolicy(firstDelay=3.0, delay=0.5, multiplier=1.0), 3) == [3.0, 0.5, 0.5]
    assert delays(RestartPolicy(maxRestarts=None, multiplier=1e300), 9)[-1] == 30.0


def test_progress_begins_a_new_row() -> None:
    """The limit and the delays count restarts without a published snapshot between them; history keeps all."""
    restarts = Restarts(RestartPolicy(maxRestarts=1, firstDelay=0.0), _TOPOLOGY)
    assert restarts.count("one", 0.0, 1000.0) is None
    restarts.note_published(1, ())
    assert restarts.count("two", 1.0, 1001.0) is None
    assert restarts.not_before == 1.0
    assert restarts.count("three", 2.0, 1002.0) == "three\n(after 1 restarts in a row; maxRestarts is 1)"
    assert [(restart.at, restart.reason) for restart in restarts.history.newest] == [(1000.0, "one"), (1001.0, "two")]


def with_dead_letters() -> Topology:
    """Two channels with a dead-letter edge, and one without."""
    graph = Graph("g").add("a", Passive(), parallelism=2).add("b", Passive(), parallelism=2).add("c", Passive())
    graph.add("dead", Passive()).connect("a", "b", partitioning="forward", onError="dead").connect("b", "c")
    return build(graph, "unaligned").topology


def failed(index: int, number: int = 1) -> FailedMessage:
    channel = ChannelId(Subtask("a", index), Subtask("b", index))
    return FailedMessage(channel, number, b"of %d" % number)


def test_messages_that_may_be_set_aside_count_by_the_channel() -> None:
    """So that many subtasks may have one each; all other failures are one row. Isolating begins the row anew."""
    restarts = Restarts(RestartPolicy(maxRestarts=2, poisonAfter=3), with_dead_letters())
    other = FailedMessage(ChannelId(Subtask("b", 0), Subtask("c", 0)), 1, b"x")
    for failed_event in (failed(0, 1), failed(1, 1), failed(0, 2), failed(1, 2), other, None):
        assert restarts.count("why", 10.0, 1010.0, failed_event) is None
    assert restarts.not_before == 10.1  # the second of its row
    assert restarts.count("why", 10.0, 1010.0, None) == "why\n(after 2 restarts in a row; maxRestarts is 2)"
    ended = restarts.count("why", 10.0, 1010.0, failed(0, 3)) or ""
    assert ended.startswith(
        "why\n(after 2 restarts in a row; maxRestarts is 2. Messages of a[0]->b[0] failed, and none"
    )
    assert ended.endswith("take snapshots more often, or add what differs later)")


def test_a_message_counts_once_for_its_row() -> None:
    """`poisonAfter` is the limit of the others. The delays grow, and begin anew once it is set aside."""
    restarts = Restarts(RestartPolicy(maxRestarts=1, poisonAfter=4), with_dead_letters())
    waits = []
    for _ in range(4):
        assert restarts.count("bad", 10.0, 1010.0, failed(0)) is None
        waits.append(round(restarts.not_before - 10.0, 3))
    assert waits == [0.0, 0.1, 0.2, 0.0]
    assert restarts.history.newest[-1].reason.startswith("bad\n(message 1 of a[0]->b[0] failed for good, and is sent")
    assert restarts.count("why", 10.0, 1010.0, failed(0, 2)) is None
    assert "(after 1 restarts in a row" in (restarts.count("why", 10.0, 1010.0, failed(0, 3)) or "")


def test_without_poison_after_all_failures_are_one_row() -> None:
    """Because nothing else would bound those of a message."""
    restarts = Restarts(RestartPolicy(maxRestarts=1, poisonAfter=None), with_dead_letters())
    assert restarts.count("why", 10.0, 1010.0, failed(0)) is None
    assert "after 1 restarts" in (restarts.count("why", 10.0, 1010.0, failed(1)) or "")


def test_the_event_of_a_failure_may_be_named_late() -> None:
    """Behind the report of a worker that lost its peer: the failure counts once, with the reason of its cause."""
    restarts = Restarts(RestartPolicy(maxRestarts=1, poisonAfter=2), with_dead_letters())
    waits = [restarts.lacks_failed_event]
    for _ in range(2):
        assert restarts.count("a peer is lost", 10.0, 1010.0) is None
        waits.append(restarts.lacks_failed_event)
        assert restarts.blame(failed(0), "it raised", 10.0, 1010.0) is None
        waits.append(restarts.lacks_failed_event)
    assert waits == [False, True, False, True, False]
    assert [each.reason.splitlines()[0] for each in restarts.history.newest] == ["it raised", "it raised"]
    again = Restarts(RestartPolicy(), with_dead_letters())
    assert again.count("a peer is lost", 10.0, 1010.0) is None
    again.note_published(1, ())
    assert not again.lacks_failed_event


@pytest.mark.parametrize(
    "wrong", [{"maxRestarts": -1}, {"delay": -1.0}, {"multiplier": 0.5}, {"maxDelay": -0.1}, {"poisonAfter": 0}]
)
def test_nonsense_is_refused(wrong: dict[str, Any]) -> None:
    """The error says what to give."""
    with pytest.raises(ValueError, match=r"maxRestarts|negative|poisonAfter"):
        RestartPolicy(**wrong)


def test_the_least_limits_are_accepted() -> None:
    """No restart at all, and the end at a message's first failure."""
    policy = RestartPolicy(maxRestarts=0, poisonAfter=1)
    assert (policy.maxRestarts, policy.poisonAfter) == (0, 1)
