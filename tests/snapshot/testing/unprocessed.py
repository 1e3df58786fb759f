"""Simulated runs in which a snapshot is taken while nobody processes a message."""

from __future__ import annotations

from cutline.snapshot.testing.simulator import Simulator
from cutline.snapshot.testing.steps import Arrive, Deliver, Initiate, Poll, Quiesce, Step, Tick, Timer, Transmit

#: Times that time passes until a snapshot counts as one that waits for processing.
_TICKS = 3


def move_markers(simulator: Simulator, *, with_data: bool) -> None:
    """Take every step but processing: markers, storing, control messages, and time.

    Parameters
    ----------
    with_data : bool
        Links carry messages into the queues of receivers; else no receiver grants credit for one.
    """

    def is_allowed(step: Step) -> bool:
        if isinstance(step, Transmit | Arrive):
            return with_data or step.marker
        return not isinstance(step, Deliver | Poll | Timer)

    for _ in range(_TICKS):
        while (step := next(filter(is_allowed, simulator.possible()), None)) is not None:
            simulator.take(step)
        simulator.take(Tick(1.0))


def take_snapshot(simulator: Simulator, number: int, *initiators: str, with_data: bool = True) -> bool:
    """Start a snapshot at some subtasks; return whether it is published though nobody processes a message."""
    before = len(simulator.history.snapshots)
    simulator.take(Quiesce())
    for initiator in initiators:
        simulator.take(Initiate(number, initiator))
    move_markers(simulator, with_data=with_data)
    return len(simulator.history.snapshots) > before
