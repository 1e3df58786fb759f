"""What a host passes to each of its subtasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cutline.snapshot.channel.output_buffer import Spill
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.keyed.heap import HeapTier
from cutline.snapshot.keyed.tier import Tier
from cutline.snapshot.subtask.limits import SubtaskLimits
from cutline.snapshot.subtask.observer import Observer

if TYPE_CHECKING:
    from logging import LoggerAdapter
    from random import Random


@dataclass(frozen=True, slots=True)
class SubtaskEnvironment:
    """Values and functions that a host passes to each of its subtasks."""

    run: str
    incarnation: int
    codec: Codec
    limits: SubtaskLimits
    #: returns the spill file of an output buffer; called for channels inside a cycle
    spill_of: Callable[[ChannelId], Spill | None]
    logger_of: Callable[[Subtask], LoggerAdapter[Any]]
    chance_of: Callable[[Subtask], Random]
    #: seconds of a monotonic clock, for the durations of snapshots
    stopwatch: Callable[[], float]
    #: returns the observer of a subtask, or None for no observer
    observer_of: Callable[[Subtask], Observer | None] = lambda _: None
    #: returns the tier that keeps the rows of a subtask's keyed state
    tier_of: Callable[[Subtask], Tier] = lambda _: HeapTier()
