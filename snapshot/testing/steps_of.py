"""The steps and faults of one graph: those that name its own nodes and channels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from cutline.snapshot.graph import Graph
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.node import defines
from cutline.snapshot.plan.compiled_graph import build
from cutline.snapshot.testing.simulation.faults import NEW_HOOKS, RUNNING_HOOKS
from cutline.snapshot.testing.steps import (
    Crash,
    CrashCoordinator,
    CutControl,
    DelayAcknowledgement,
    Deliver,
    Doubt,
    Fail,
    FailHook,
    FailStage,
    FailStore,
    Fault,
    Freeze,
    HangStore,
    KillDriver,
    LoseAcknowledgement,
    OrphanCoordinator,
    Poll,
    RepeatAcknowledgement,
    Step,
    SubmitAgain,
    TearStore,
    Timer,
)

#: worker processes that faults name: as many as a run starts with
_PROCESSES = 2


class StepsOf:
    """Steps and faults that a run of `graph` can take, nearest to the beginning of the graph first.

    Raises
    ------
    GraphError
        if something is wrong with the graph.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._topology = build(graph, "unaligned").topology

    @property
    def subtasks(self) -> list[Subtask]:
        """All subtasks, first those that start a snapshot by themselves."""
        return list(dict.fromkeys((*self._topology.initiators(), *self._topology.subtasks)))

    @property
    def initiators(self) -> list[Subtask]:
        """The subtasks whose snapshot reaches every subtask."""
        return list(self._topology.initiators())

    @cached_property
    def polls(self) -> list[Step]:
        """A `Poll` for each subtask of a source."""
        return [Poll(subtask) for subtask in self._topology.subtasks if self._topology.node(subtask.node).is_source]

    @cached_property
    def timers(self) -> list[Step]:
        """A `Timer` for each subtask of a node with `onTimer`."""
        return [Timer(subtask) for subtask in self._with_hook("onTimer")]

    @cached_property
    def deliveries(self) -> list[Step]:
        """A `Deliver` for each channel."""
        return [Deliver(*channel) for channel in self._downstream(())]

    def markers(self, initiators: Sequence[Subtask] = ()) -> list[Step]:
        """Return a `Deliver` of a marker for each channel, in an order in which the markers of a snapshot can come."""
        return [Deliver(*channel, marker=True) for channel in self._downstream(initiators)]

    @cached_property
    def plain_faults(self) -> list[Fault]:
        """Faults in which a node raises, or its worker dies."""
        subtasks = self._topology.subtasks
        return [*(Fail(subtask) for subtask in subtasks), *(Crash(subtask) for subtask in subtasks)]

    @cached_property
    def rare_faults(self) -> list[Fault]:
        """All other faults."""
        kinds = (FailStore, TearStore, HangStore, Freeze, CutControl)
        acknowledgements = (LoseAcknowledgement, RepeatAcknowledgement, DelayAcknowledgement)
        return [
            FailStage(),
            CrashCoordinator(),
            OrphanCoordinator(),
            KillDriver(),
            SubmitAgain(),
            *(Doubt(what) for what in ("done", "late", "never")),
            *(kind(process) for kind in (*kinds, *acknowledgements) for process in range(_PROCESSES)),
            *(FailHook(subtask, hook) for hook in (*NEW_HOOKS, *RUNNING_HOOKS) for subtask in self._with_hook(hook)),
        ]

    def _with_hook(self, hook: str) -> list[Subtask]:
        names = [declared.name for declared in self._graph.nodes if defines(declared.node, hook)]
        return [subtask for subtask in self._topology.subtasks if subtask.node in names]

    def _downstream(self, starts: Sequence[Subtask]) -> list[ChannelId]:
        """Return all channels, nearest to `starts` first, then nearest to the subtasks that start by themselves."""
        reached = dict.fromkeys((*starts, *self._topology.initiators()))
        channels: list[ChannelId] = []
        queue = list(reached)
        for subtask in queue:
            for channel in self._topology.outputs_of(subtask):
                channels.append(channel)
                if channel.target not in reached:
                    reached[channel.target] = None
                    queue.append(channel.target)
        return channels
