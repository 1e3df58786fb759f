"""What says whether a subtask may be given its next event."""

from __future__ import annotations


class BackpressureFlag:
    """Why it may not: looked at once a message, so it is one attribute."""

    __slots__ = ("closed",)

    def __init__(self) -> None:
        #: number of reasons; 0 means open
        self.closed = 0
