"""When to restart, and when to give up."""

from __future__ import annotations

from typing import Any

import pytest

from snapshot.coordinator.restart_policy import RestartPolicy, Restarts
from snapshot.plan.topology import Topology

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
    restarts.note_published(())
    assert restarts.count("two", 1.0, 1001.0) is None
    assert restarts.not_before == 1.0
    assert restarts.count("three", 2.0, 1002.0) == "three\n(after 1 restarts in a row; maxRestarts is 1)"
    assert [(restart.at, restart.reason) for restart in restarts.history.newest] == [(1000.0, "one"), (1001.0, "two")]


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
