"""Calls to a store that are given up, what is left of them, and the threads that serve the others."""

from __future__ import annotations

import gc
import threading
import weakref
from functools import partial

import pytest

from cutline.state_backends.base import ABANDONED_CALLS_MAX, Deadline, _Call

pytestmark = pytest.mark.timeout(20)


class _Buffer:
    """Something large that a call holds."""

    def copy(self) -> _Buffer:
        return _Buffer()


def test_call_that_ends_while_it_is_abandoned() -> None:
    """A call whose answer comes in the very moment in which it is given up blocks none that follow."""
    deadline = Deadline(10.0)
    for _ in range(ABANDONED_CALLS_MAX):
        late = _Call(lambda: None)
        late.done.set()
        assert not deadline._helpers.abandon(late)
    assert deadline.call("the next", lambda: "done") == "done"


def test_abandoned_call_that_ends_late_makes_room() -> None:
    """As many as may hang are given up, the next is refused, and allowed again when one has ended after all."""
    deadline = Deadline(0.01)
    release, ended = threading.Event(), threading.Semaphore(0)

    def hang() -> None:
        release.wait()
        ended.release()

    for _ in range(ABANDONED_CALLS_MAX):
        with pytest.raises(TimeoutError, match="not known whether it happened"):
            deadline.call("one that hangs", hang)
    with pytest.raises(TimeoutError, match="not tried, 16 earlier calls"):
        deadline.call("one too many", hang)
    release.set()
    for _ in range(ABANDONED_CALLS_MAX):
        ended.acquire()
    assert _until_it_is_tried(deadline) == "done"


def test_the_error_of_a_deadline_holds_the_last_cause() -> None:
    """A call that is tried again until its time is over says why. Another call's cause is not taken for its own."""
    deadline = Deadline(0.05)
    release = threading.Event()

    def try_again() -> None:
        for text in ("no such host", "connection refused"):
            deadline.note_failure(text)
        release.wait()

    with pytest.raises(TimeoutError, match=r"one: no answer in 0.05 s; .*; last error: connection refused$"):
        deadline.call("one", try_again)
    with pytest.raises(TimeoutError, match=r"not known whether it happened$"):
        deadline.call("another", release.wait)
    release.set()


def test_a_cause_outside_a_call_is_dropped() -> None:
    """A backend without a bound on its calls has no error to add the cause to."""
    unbounded = Deadline(float("inf"))
    assert unbounded.call("one", lambda: unbounded.note_failure("refused")) is None


def _until_it_is_tried(deadline: Deadline) -> str:
    while True:
        try:
            return deadline.call("the next", lambda: "done")
        except TimeoutError:
            pass  # the last of the late calls has ended, but has not said so yet


def test_calls_one_after_another_share_a_thread() -> None:
    """Starting a thread costs milliseconds on a busy machine: a call finds the helper of the one before it."""
    deadline = Deadline(10.0)
    assert len({deadline.call("one", threading.get_ident) for _ in range(20)}) == 1


def test_a_hanging_call_does_not_keep_the_process_alive() -> None:
    """The helper is a daemon, because a call that was given up may never end."""
    assert Deadline(10.0).call("one", threading.current_thread).daemon


def test_waiting_helper_holds_nothing_of_its_last_call() -> None:
    """What a call wrote and returned is free when its caller has let go of it."""
    deadline = Deadline(10.0)
    written = _Buffer()
    seen = weakref.ref(written), weakref.ref(deadline.call("one", partial(_Buffer.copy, written)))
    del written
    while any(each() is not None for each in seen):  # the helper lets go a moment after it has answered
        gc.collect()


def test_a_failed_call_holds_nothing() -> None:
    """What it was to write is free when the error was handled: it does not wait for the collector of cycles."""
    deadline = Deadline(10.0)
    written = _Buffer()
    seen = weakref.ref(written)

    def fail(buffer: _Buffer) -> None:
        raise OSError(f"no room for {buffer}")

    gc.collect()
    gc.disable()
    try:
        with pytest.raises(OSError, match="no room"):
            deadline.call("one", partial(fail, written))
        del written
        deadline.call("the helper's next", lambda: None)  # it has let go of the last one by then
        assert seen() is None
    finally:
        gc.enable()


def test_helpers_leave_with_their_deadline() -> None:
    """A backend that is dropped leaves no thread behind."""
    deadline = Deadline(10.0)
    helper = deadline.call("one", threading.current_thread)
    del deadline
    gc.collect()
    helper.join()
