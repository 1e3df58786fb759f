"""What the backends of stores that may hang have in common: a bound on the time of every call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from snapshot.stored.backend import INLINE_BYTES_MAX, StateBackend
from state_backends.deadlines import Deadline

Result = TypeVar("Result")

#: Seconds that one call to a store may take. Far above a slow store's worst answer, far below the snapshot timeout,
#: so that a dead store aborts the snapshot and not the run.
CALL_SECONDS_MAX = 60.0


class DeadlineBackend(StateBackend):
    """A backend whose calls end in time, with an error if need be.

    Parameters
    ----------
    inline_bytes_max : int
        See `StateBackend`.
    deadline : float
        Seconds that any one call may take.
    """

    def __init__(self, *, inline_bytes_max: int = INLINE_BYTES_MAX, deadline: float = CALL_SECONDS_MAX) -> None:
        super().__init__(inline_bytes_max=inline_bytes_max)
        self._deadline = Deadline(deadline)

    def _call(self, what: str, function: Callable[[], Result]) -> Result:
        return self._deadline.call(what, function)
