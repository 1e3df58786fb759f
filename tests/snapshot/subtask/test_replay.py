"""The events of a subtask are a log: given again to a fresh machine, they make the same machine again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from cutline import Graph
from cutline.snapshot.assembly import assemble
from cutline.snapshot.channel.channel_sender import ChannelSender
from cutline.snapshot.channel.frame import Frame, Marker
from cutline.snapshot.channel.frame_codec import encoded_frame
from cutline.snapshot.channel.object_frame import AnyFrame
from cutline.snapshot.coordinator.run_state import Outcome
from cutline.snapshot.ids import Subtask
from cutline.snapshot.plan.compiled_graph import CompiledGraph
from cutline.snapshot.subtask.components import SubtaskComponents
from cutline.snapshot.subtask.environment import SubtaskEnvironment
from cutline.snapshot.subtask.machine import SubtaskMachine
from cutline.snapshot.testing.exploration.fingerprint import fingerprint
from cutline.snapshot.testing.lists import ListSink, ListSource
from cutline.snapshot.testing.simulation.world import Mutation
from cutline.snapshot.testing.simulator import Simulator
from tests.snapshot.testing.programs import Delay

#: The doors through which a machine changes.
_DOORS = ("restore", "step", "deliver", "run", "handle_next", "poll_next", "fire_next", "seal", "take_reports", "close")


class Logged(SubtaskMachine):
    """Keeps what came through each door, and what was taken of its outputs."""

    def __init__(self, parts: SubtaskComponents) -> None:
        super().__init__(parts)
        self.log: list[tuple[str, tuple[Any, ...]]] = []
        self.taken: list[AnyFrame | Marker | None] = []
        self._is_inside = False
        for channel, end in self.outputs.items():
            end.buffer.take = partial(self._take, channel, end.buffer.take)  # type: ignore[method-assign]
            end.seal = partial(self._enter, f"seal of {channel}", end.seal)  # type: ignore[method-assign]
        for door in _DOORS:
            setattr(self, door, partial(self._enter, door, getattr(self, door)))

    def _enter(self, door: str, call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        if self._is_inside:
            return call(*arguments, **named)
        self.log.append((door, arguments))
        self._is_inside = True
        try:
            return call(*arguments, **named)
        finally:
            self._is_inside = False

    def _take(self, channel: Any, take: Callable[[], AnyFrame | Marker | None]) -> AnyFrame | Marker | None:
        self.log.append(("take", (channel,)))
        self.taken.append(take())
        return self.taken[-1]


def graph() -> Graph:
    """A pipeline of two subtasks each, with timers."""
    made = (
        Graph("replayed").add("numbers", ListSource(*range(1, 30)), parallelism=2).add("delay", Delay(), parallelism=2)
    )
    made.add("out", ListSink())
    return made.connect("numbers", "delay", key=lambda number: number % 7).connect("delay", "out")


def replayed(log: list[tuple[str, tuple[Any, ...]]], machine: SubtaskMachine) -> list[AnyFrame | Marker | None]:
    """Give a log to a fresh machine, on the same wires; return what was taken of its outputs."""
    for channel, output in machine.outputs.items():
        if channel.source.index == channel.target.index:
            output.take_objects()
    taken = []
    for door, arguments in log:
        if door == "take":
            end: ChannelSender = machine.outputs[arguments[0]]
            taken.append(end.buffer.take())
        elif door.startswith("seal of"):
            next(end for channel, end in machine.outputs.items() if door.endswith(str(channel))).seal()
        else:
            getattr(machine, door)(*arguments)
    return taken


@pytest.mark.parametrize("alignment", ["unaligned", "aligned", 0.05])
@pytest.mark.parametrize("seed", range(0, 8, 2))  # in odd ones the simulator seals each message inside of `run`
def test_a_log_replays(seed: int, alignment: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The replayed machine sends the same frames and markers, and holds the same state, in runs with faults."""
    machines: list[tuple[Logged, SubtaskMachine]] = []

    def twice(
        subtask: Subtask, compiled: CompiledGraph, environment: SubtaskEnvironment, channels: Any
    ) -> SubtaskComponents:
        unobserved = replace(environment, observer_of=lambda _: None)
        fresh = SubtaskMachine(assemble(subtask, compiled, unobserved, channels))
        machines.append((Logged(assemble(subtask, compiled, environment, channels)), fresh))
        return machines[-1][0]  # type: ignore[return-value]  # `Mutation.machine` below takes it

    monkeypatch.setattr("cutline.snapshot.testing.simulation.host.assemble", twice)
    mutation = Mutation(machine=lambda made: made)  # type: ignore[arg-type, return-value]
    history = Simulator(
        graph(), seed, alignment=alignment, faults=2, snapshotInterval=0.1, mutation=mutation, validates=False
    ).run()
    assert history.outcome is Outcome.FINISHED
    assert len(history.snapshots) > 1
    for logged, fresh in machines:
        assert list(map(_encoded, replayed(logged.log, fresh))) == list(map(_encoded, logged.taken))
        assert _state(fresh) == _state(logged)


def _encoded(item: AnyFrame | Marker | None) -> Frame | Marker | None:
    return item if item is None or isinstance(item, Marker) else encoded_frame(item)


def _state(machine: SubtaskMachine) -> Any:
    # The simulator takes rows from a `ListSink` by itself.
    node = None if isinstance(machine.node, ListSink) else fingerprint(machine.node)
    return machine.status, node, [end.sent for end in machine.outputs.values()]
