"""The enabled steps of a simulated run, and its clock.

Everything that may happen is an `EnabledStep`, enabled while it may happen. Choosing among thousands costs no more than
choosing among ten. Steps belong to groups, which stop and end together: a frozen process, or a worker's dropped data.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

from cutline.snapshot.testing.steps import ControlStep, Step


class EnabledStep:
    """A step that can be taken again and again, or once, while it is enabled."""

    __slots__ = ("_group", "_step", "act", "index", "is_control", "stamp")

    def __init__(self, group: Group, step: Step | Callable[[], Step], act: Callable[[], None]) -> None:
        self.act = act
        #: index among the enabled steps; -1: not enabled
        self.index = -1
        #: counter value of the last enabling, to take the oldest step first
        self.stamp = 0
        #: whether the step needs neither data nor time
        self.is_control = isinstance(step, ControlStep)
        self._group = group
        self._step = step

    @property
    def step(self) -> Step:
        """The step of a schedule that this step is now."""
        return self._step if isinstance(self._step, Step) else self._step()

    def set(self, enabled: bool) -> None:
        """Enable or disable the step."""
        if enabled:
            if self.index < 0:
                self._group.enable(self)
        elif self.index >= 0 or self._group.is_suspended:
            self._group.disable(self)


class Group:
    """Steps that stop and end together."""

    __slots__ = ("_is_ended", "_scheduler", "_wanted", "is_suspended")

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._wanted: dict[EnabledStep, None] = {}
        self.is_suspended = False
        self._is_ended = False

    def enabled_step(self, step: Step | Callable[[], Step], act: Callable[[], None]) -> EnabledStep:
        """Make a step that is not enabled."""
        return EnabledStep(self, step, act)

    def once(self, step: Step, act: Callable[[], None]) -> EnabledStep:
        """Make a step that is enabled until it is taken."""

        def happen() -> None:
            enabled_step.set(False)
            act()

        enabled_step = EnabledStep(self, step, happen)
        enabled_step.set(True)
        return enabled_step

    def enable(self, enabled_step: EnabledStep) -> None:
        """Enable a step of this group: see `EnabledStep.set`."""
        if self._is_ended:
            return
        self._wanted[enabled_step] = None
        if not self.is_suspended:
            self._scheduler.add(enabled_step)

    def disable(self, enabled_step: EnabledStep) -> None:
        """Disable a step of this group: see `EnabledStep.set`."""
        self._wanted.pop(enabled_step, None)
        if enabled_step.index >= 0:
            self._scheduler.remove(enabled_step)

    @property
    def has_any(self) -> bool:
        """Whether a step of this group may be taken, now or after the group is resumed."""
        return bool(self._wanted)

    def suspend(self) -> None:
        """Disable all steps of this group until the group is resumed."""
        self.is_suspended = True
        for enabled_step in self._wanted:
            if enabled_step.index >= 0:
                self._scheduler.remove(enabled_step)

    def resume(self) -> None:
        """Enable the steps again. The first call ends all suspensions."""
        self.is_suspended = False
        for enabled_step in self._wanted:
            if enabled_step.index < 0:
                self._scheduler.add(enabled_step)

    def end(self) -> None:
        """End the group: none of its steps is ever taken again."""
        self.suspend()
        self._wanted.clear()
        self._is_ended = True


class Scheduler:
    """The enabled steps, and the actions that are due at a time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.enabled_steps: list[EnabledStep] = []
        self._stamp = 0
        self._due: list[tuple[float, int, Callable[[], None]]] = []

    def group(self) -> Group:
        """Make a group of steps."""
        return Group(self)

    def add(self, enabled_step: EnabledStep) -> None:
        """Add a step to the enabled steps."""
        enabled_step.index = len(self.enabled_steps)
        self._stamp += 1
        enabled_step.stamp = self._stamp
        self.enabled_steps.append(enabled_step)

    def remove(self, enabled_step: EnabledStep) -> None:
        """Remove a step from the enabled steps. The last step takes its index, so that the cost is constant."""
        last = self.enabled_steps.pop()
        if last is not enabled_step:
            self.enabled_steps[enabled_step.index] = last
            last.index = enabled_step.index
        enabled_step.index = -1

    def at(self, when: float, act: Callable[[], None]) -> None:
        """Call `act` when the clock reaches `when`. `act` must check whether it is still wanted."""
        self._stamp += 1
        heappush(self._due, (when, self._stamp, act))

    def next_due(self) -> float | None:
        """Return the time of the next action that needs time alone, or None."""
        return self._due[0][0] if self._due else None

    def pass_time(self, until: float) -> None:
        """Advance the clock, and perform all actions that are due."""
        while self._due and self._due[0][0] <= until:
            when, _, act = heappop(self._due)
            self.now = max(self.now, when)
            act()
        self.now = max(self.now, until)
