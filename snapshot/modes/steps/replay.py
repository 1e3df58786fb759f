"""What is left of a log to repeat, one determinant at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

import msgspec

from cutline.snapshot.modes.steps.determinants import Cut, Took, TookTogether


class Replay:
    """The rest of a log.

    Parameters
    ----------
    steps : iterable of list of Entry
        Entries of each step, oldest first. A step ends with its cut.
    """

    def __init__(self, steps: Iterable[list[Any]]) -> None:
        self._steps = iter(steps)  # decoded when they are due, because a log may be long
        self._entries: deque[Any] = deque()
        self._cut: Cut | None = None
        self._turn_over()

    @property
    def head(self) -> Any:
        """Return the next entry, or None after the last."""
        return self._entries[0] if self._entries else None

    @property
    def snapshot_id(self) -> int:
        """Return the snapshot whose cut ends the present step."""
        assert self._cut is not None
        return self._cut.snapshot_id

    def done(self) -> None:
        """Drop the head, because it is repeated."""
        self._entries.popleft()
        if not self._entries:
            self._turn_over()

    def took(self, count: int) -> None:
        """Drop so many messages of the head: handled, or, of a sink, left out, also of messages taken together."""
        head = self._entries[0]
        assert isinstance(head, Took | TookTogether) and 0 <= count <= head.count, (head, count)
        if count == head.count:
            self.done()
        else:
            self._entries[0] = msgspec.structs.replace(head, count=head.count - count)

    def _turn_over(self) -> None:
        step = next(self._steps, None)
        if step is not None:
            assert isinstance(step[-1], Cut)
            self._entries.extend(step)
            self._cut = step[-1]
