"""When a worker says that it is idle: after a while of quiet, and again when it woke up."""

from __future__ import annotations

#: Quiet for this long counts as idle: a pause between two messages of a busy peer is shorter.
IDLE_SECONDS = 0.02


class Idleness:
    """Decides what to tell the coordinator, so that it hears of changes and not of every pause."""

    def __init__(self) -> None:
        #: since when nothing happens; None: something does
        self._since: float | None = None
        self._said = False

    def forget(self) -> None:
        """Something was started from outside; if it comes to nothing, say so again."""
        self._since, self._said = None, False

    def look(self, is_idle: bool, now: float) -> bool | None:
        """What to say now: True for idle, False for no longer idle, None for nothing new."""
        if not is_idle:
            was_said = self._said
            self.forget()
            return False if was_said else None
        if self._since is None:
            self._since = now
        if self._said or now < self._since + IDLE_SECONDS:
            return None
        self._said = True
        return True

    def due_at(self) -> float | None:
        """When to look again at the latest."""
        return None if self._said or self._since is None else self._since + IDLE_SECONDS
