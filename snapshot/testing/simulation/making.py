"""Makes one subtask in a simulated worker: its machine from the restored parts, its witness, its places."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from snapshot.coordinator import control
from snapshot.errors import ChannelError
from snapshot.subtask.assembly import RestoredChannels, Surroundings, assemble
from snapshot.subtask.limits import SubtaskLimits
from snapshot.subtask.observer import JoinedObserver
from snapshot.testing.checking.verdict import CheckFailed
from snapshot.testing.simulation.host import Host

if TYPE_CHECKING:
    from snapshot.testing.simulation.worker import Worker
    from snapshot.testing.simulation.world import World

_LIMITS = SubtaskLimits()


def make_host(
    restored: control.RestoredSubtask, channels: RestoredChannels, incarnation: int, worker: Worker, world: World
) -> Host:
    """Assemble the machine; its state is still to be restored.

    Raises
    ------
    CutlineError, OSError
        as assembling does.
    CheckFailed
        if the restored messages of a channel are not in sequence.
    """
    chance = Random(f"{world.seed} {incarnation} {restored.subtask}")
    origin = None if restored.state is None else (restored.state.incarnation, restored.state.snapshot_id)
    life = world.witness.watch(restored.subtask, incarnation, origin)
    other = world.mutation.observer(restored.subtask, incarnation)
    observer = life if other is None else JoinedObserver(life, other)
    around = Surroundings(
        world.run, incarnation, world.codec, _LIMITS, lambda _: None, lambda _: world.logger, lambda _: chance,
        lambda: world.now, lambda _: observer,
    )  # fmt: skip
    try:
        machine = world.mutation.machine(assemble(restored.subtask, world.built, around, channels))
    except ChannelError as error:
        raise CheckFailed("sequence", str(error)) from error
    host = Host(machine, life, worker, world.agenda, worker.data)
    world.spring_trap(machine)
    if host.list_sink is not None:
        world.history.list_sinks[restored.subtask.node] = None
    return host
