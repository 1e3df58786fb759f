"""Calls to a store that are given up, and what is left of them."""

from __future__ import annotations

import pytest

from state_backends.deadlines import ABANDONED_CALLS_MAX, Deadline, _Call


@pytest.mark.timeout(20)
def test_call_that_ends_while_it_is_abandoned() -> None:
    """A call whose answer comes in the very moment in which it is given up blocks none that follow."""
    deadline = Deadline(10.0)
    for _ in range(ABANDONED_CALLS_MAX):
        late = _Call(lambda: None)
        late.run()
        deadline._abandon(late)
    assert deadline.call("the next", lambda: "done") == "done"
