"""What could happen next in a simulated run, and its clock.

Everything that may happen has a `EnabledStep`: enabled while it may. Choosing among thousands costs no more than among
ten. Places belong to groups, which stop and end together: a process that is frozen, a worker's data that is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from snapshot.testing.steps import CONTROL, Step


class EnabledStep:
    """Something that happens again and again, or once, while it is enabled."""

    __slots__ = ("_group", "_step", "act", "index", "is_control", "stamp")

    def __init__(self, group: Group, step: Step | Callable[[], Step], act: Callable[[], None]) -> None:
        self.act = act
        #: among the enabled places; -1: not enabled
        self.index = -1
        #: when it was enabled last, to take the oldest first
        self.stamp = 0
        #: it needs neither data nor time
        self.is_control = isinstance(step, CONTROL)
        self._group = group
        self._step = step

    @property
    def step(self) -> Step:
        """What it is called now."""
        return self._step if isinstance(self._step, Step) else self._step()

    def set(self, enabled: bool) -> None:
        """Let it happen, or not."""
        if enabled:
            if self.index < 0:
                self._group.enable(self)
        elif self.index >= 0 or self._group.is_suspended:
            self._group.disable(self)


class Group:
    """Places that stop and end together."""

    __slots__ = ("_is_ended", "_scheduler", "_wanted", "is_suspended")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._wanted: dict[EnabledStep, None] = {}
        self.is_suspended = False
        self._is_ended = False

    def enabled_step(self, step: Step | Callable[[], Step], act: Callable[[], None]) -> EnabledStep:
        """A new place, not enabled."""
        return EnabledStep(self, step, act)

    def once(self, step: Step, act: Callable[[], None]) -> EnabledStep:
        """A place that is enabled until it has happened."""

        def happen() -> None:
            enabled_step.set(False)
            act()

        enabled_step = EnabledStep(self, step, happen)
        enabled_step.set(True)
        return enabled_step

    def enable(self, enabled_step: EnabledStep) -> None:
        """See `EnabledStep.set`."""
        if self._is_ended:
            return
        self._wanted[enabled_step] = None
        if not self.is_suspended:
            self._scheduler.add(enabled_step)

    def disable(self, enabled_step: EnabledStep) -> None:
        """See `EnabledStep.set`."""
        self._wanted.pop(enabled_step, None)
        if enabled_step.index >= 0:
            self._scheduler.remove(enabled_step)

    @property
    def has_any(self) -> bool:
        """Something of it may happen, now or once it is resumed."""
        return bool(self._wanted)

    def suspend(self) -> None:
        """Nothing of it happens until it is resumed."""
        self.is_suspended = True
        for enabled_step in self._wanted:
            if enabled_step.index >= 0:
                self._scheduler.remove(enabled_step)

    def resume(self) -> None:
        """Go on; what was suspended twice goes on with the first."""
        self.is_suspended = False
        for enabled_step in self._wanted:
            if enabled_step.index < 0:
                self._scheduler.add(enabled_step)

    def end(self) -> None:
        """Nothing of it ever happens again."""
        self.suspend()
        self._wanted.clear()
        self._is_ended = True


class Scheduler:
    """The enabled places, and what is due at which time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.enabled_steps: list[EnabledStep] = []
        self._stamp = 0
        self._due: list[tuple[float, int, Callable[[], None]]] = []

    def group(self) -> Group:
        """A new group of places."""
        return Group(self)

    def add(self, enabled_step: EnabledStep) -> None:
        """It may happen from now on."""
        enabled_step.index = len(self.enabled_steps)
        self._stamp += 1
        enabled_step.stamp = self._stamp
        self.enabled_steps.append(enabled_step)

    def remove(self, enabled_step: EnabledStep) -> None:
        """It may not happen any more; the last one takes its index, so that this costs the same for any number."""
        last = self.enabled_steps.pop()
        if last is not enabled_step:
            self.enabled_steps[enabled_step.index] = last
            last.index = enabled_step.index
        enabled_step.index = -1

    def at(self, when: float, act: Callable[[], None]) -> None:
        """Call `act` once the clock has come to `when`. It has to look whether it is still wanted."""
        self._stamp += 1
        heappush(self._due, (when, self._stamp, act))

    def next_due(self) -> float | None:
        """When something happens by time alone."""
        return self._due[0][0] if self._due else None

    def pass_time(self, until: float) -> None:
        """Let the clock go on, and all that is due happen."""
        while self._due and self._due[0][0] <= until:
            when, _, act = heappop(self._due)
            self.now = max(self.now, when)
            act()
        self.now = max(self.now, until)
