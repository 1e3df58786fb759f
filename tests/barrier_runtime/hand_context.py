"""A context for hooks that are called by hand: keeps what was sent."""

from __future__ import annotations

import logging
import random
from typing import Any

from cutline.snapshot.ids import Subtask
from cutline.snapshot.node import Context
from cutline.snapshot.state import ListState, MapState, ReducingState, ValueState


class HandContext(Context):
    """Stands for the context of one subtask in one incarnation."""

    def __init__(self, subtask: Subtask, *, run: str = "run", parallelism: int = 1, incarnation: int = 1) -> None:
        self.run = run
        self.incarnation = incarnation
        self.subtask = subtask
        self.parallelism = parallelism
        self.inputs = self.outputs = self.partitions = ()
        self.sender = self.key = None
        self.now = 0.0
        self.random = random.Random(0)
        self.logger = logging.LoggerAdapter(logging.getLogger(__name__))
        self.sent: list[Any] = []

    def send(self, message: Any, to: str | Subtask | None = None) -> None:
        assert to is None
        self.sent.append(message)

    def requestSnapshot(self) -> None:
        raise AssertionError("these nodes ask for no snapshot")

    def registerTimer(self, at: float) -> None:
        raise AssertionError("these nodes use no timer")

    def deleteTimer(self, at: float) -> None:
        raise AssertionError("these nodes use no timer")

    def increment(self, metric: str, by: float = 1) -> None:
        raise AssertionError("these nodes count nothing")

    def getValueState(self, name: str, *, ttl: float | None = None) -> ValueState:
        raise AssertionError("these nodes have no keyed state")

    def getListState(self, name: str, *, ttl: float | None = None) -> ListState:
        raise AssertionError("these nodes have no keyed state")

    def getMapState(self, name: str, *, ttl: float | None = None) -> MapState:
        raise AssertionError("these nodes have no keyed state")

    def getReducingState(self, name: str, plus: Any, *, ttl: float | None = None) -> ReducingState:
        raise AssertionError("these nodes have no keyed state")
