"""Calls to a store that are given up, and what is left of them."""

from __future__ import annotations

import threading

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


def test_too_many_calls_hang() -> None:
    """Beyond the limit nothing is tried; once a hanging call has ended, the next is."""
    deadline, hang = Deadline(0.01), threading.Event()
    for _ in range(ABANDONED_CALLS_MAX):
        with pytest.raises(TimeoutError, match="a put: no answer in 0.01 s"):
            deadline.call("a put", hang.wait)
    with pytest.raises(TimeoutError, match="a put: not tried, 16 earlier calls still wait"):
        deadline.call("a put", hang.wait)
    threads = [thread for thread in threading.enumerate() if thread.name == "cutline-store"]
    hang.set()
    for thread in threads:
        thread.join(10.0)
    assert deadline.call("a put", hang.wait)
