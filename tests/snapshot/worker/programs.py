"""A worker machine with real subtasks of a small graph, and the steps that bring it to a stage."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from cutline import Context, Graph, Node, Source
from cutline.snapshot.assembly import assemble, collector_of, ledgers_of
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.coordinator.control import (
    Connect,
    CoordinatorMessage,
    Deploy,
    RestoredSubtask,
    StartProcessing,
    Welcome,
    WorkerMessage,
)
from cutline.snapshot.ids import Subtask
from cutline.snapshot.node import END
from cutline.snapshot.plan.compiled_graph import build
from cutline.snapshot.subtask.environment import SubtaskEnvironment
from cutline.snapshot.subtask.limits import SubtaskLimits
from cutline.snapshot.subtask.machine import SubtaskMachine
from cutline.snapshot.subtask.restored import RestoredChannels
from cutline.snapshot.worker.events import (
    CoordinatorMessageReceived,
    Effect,
    Event,
    PartsRead,
    PeersConnected,
    SendToCoordinator,
    TurnEnded,
)
from cutline.snapshot.worker.machine import WorkerMachine, WorkerSettings
from cutline.snapshot.worker.restored_parts import RestoredParts

A, B = Subtask("a"), Subtask("b")


class Numbers(Source):
    """Sends nothing by itself; asks for a snapshot where it is told to raise or to ask."""

    def __init__(self, raising: str = "") -> None:
        self.raising = raising

    def _fire(self, hook: str) -> None:
        if hook == self.raising:
            raise ValueError(f"scheduled: {hook}")

    def onStart(self, context: Context) -> None:
        self._fire("onStart")
        if self.raising == "ask":
            context.requestSnapshot()

    def poll(self, context: Context) -> float:
        return 60.0

    def onPublished(self, snapshotId: int) -> None:
        self._fire("onPublished")

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        self._fire("snapshotState")
        return 1

    def restoreState(self, state: Any) -> None:
        pass


class Sum(Node):
    """Keeps a sum."""

    def onMessage(self, message: Any, context: Context) -> None:
        pass

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        return 0

    def restoreState(self, state: Any) -> None:
        pass


class Ends(Source):
    """Ends at its first poll."""

    def poll(self, context: Context) -> Any:
        return END


class Machine:
    """A worker machine whose every step is checked by `validate`.

    Parameters
    ----------
    source : Source
        The node ``a``; the node ``b`` sums up what it sends.
    """

    def __init__(
        self,
        source: Source | None = None,
        settings: WorkerSettings = WorkerSettings(),  # noqa: B008  # frozen
        machine: Callable[..., WorkerMachine] = WorkerMachine,
        alignment: Any = "unaligned",
    ) -> None:
        graph = Graph("g").add("a", source or Numbers()).add("b", Sum()).connect("a", "b", alignment=alignment)
        self.compiled = build(graph, "unaligned")
        self.machine = machine(3, self._make, ledgers_of, collector_of, settings)
        self.now = 10.0

    def _make(self, parts: RestoredParts) -> Mapping[Subtask, SubtaskMachine]:
        environment = SubtaskEnvironment(
            "g", parts.deploy.incarnation, Codec(), SubtaskLimits(), lambda _: None,
            lambda _: logging.LoggerAdapter(logging.getLogger("g"), {}), lambda _: Random(1), lambda: 0.0,
        )  # fmt: skip
        return {
            each.subtask: SubtaskMachine(
                assemble(each.subtask, self.compiled, environment, parts.channels[each.subtask])
            )
            for each in parts.deploy.subtasks
        }

    def step(self, event: Event) -> list[Effect]:
        """Take one event, and assert every invariant."""
        effects = self.machine.step(event, self.now)
        self.machine.validate()
        return effects

    def receive(self, *messages: CoordinatorMessage) -> list[Effect]:
        """Take messages of the coordinator."""
        return [effect for message in messages for effect in self.step(CoordinatorMessageReceived(message))]

    def read(self, incarnation: int) -> list[Effect]:
        """The parts of a fresh deployment were read."""
        parts = RestoredParts(deploy(incarnation), {A: None, B: None}, {A: RestoredChannels(), B: RestoredChannels()})
        return self.step(PartsRead(parts))

    def start(self, incarnation: int = 1) -> list[Effect]:
        """Go through a whole rollback; return the effects of its last message."""
        self.receive(Welcome(1, 4), deploy(incarnation))
        self.read(incarnation)
        self.receive(Connect(incarnation, ()))
        self.step(PeersConnected(incarnation))
        return self.receive(StartProcessing(incarnation))

    def turn(self, *, is_idle: bool = False) -> list[Effect]:
        """The subtasks had their turns."""
        return self.step(TurnEnded(is_idle))


def deploy(incarnation: int, *, has_more: bool = False) -> Deploy:
    """A fresh deployment of both subtasks."""
    return Deploy(incarnation, tuple(RestoredSubtask(each, None, (), (), ()) for each in (A, B)), has_more)


def sent(effects: list[Effect]) -> list[WorkerMessage]:
    """The messages to the coordinator among effects."""
    return [message for effect in effects if isinstance(effect, SendToCoordinator) for message in effect.messages]
