"""Makes one subtask in a simulated worker: its machine from the stored parts, its witness, its places."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from snapshot.channel.frame import Frame
from snapshot.coordinator import control
from snapshot.ids import ChannelId
from snapshot.stored.part import decode_frames
from snapshot.subtask.assembly import RestoredChannels, Surroundings, assemble
from snapshot.subtask.limits import SubtaskLimits
from snapshot.testing.simulation.host import Host
from state_backends.store import RunStore

if TYPE_CHECKING:
    from snapshot.testing.simulation.worker import Worker
    from snapshot.testing.simulation.world import World

_LIMITS = SubtaskLimits()


def make_host(
    restored: control.RestoredSubtask, incarnation: int, worker: Worker, world: World, store: RunStore
) -> Host:
    """Read the parts, assemble the machine, and restore it.

    Raises
    ------
    CutlineError, OSError
        as reading and restoring do.
    """
    state = None if restored.state is None else store.read_part(restored.state)
    frames: dict[ChannelId, tuple[Frame, ...]] = {}
    for handle in restored.channel_parts:
        assert handle.channel is not None
        held = decode_frames(handle, store.read_part(handle))
        frames[handle.channel] = (*frames.get(handle.channel, ()), *held)
    channels = RestoredChannels(dict(restored.processed), frames, dict(restored.sent))
    chance = Random(f"{world.seed} {incarnation} {restored.subtask}")
    around = Surroundings(
        world.run, incarnation, world.codec, _LIMITS, lambda _: None, lambda _: world.logger, lambda _: chance,
        lambda: world.now,
    )  # fmt: skip
    machine = world.mutation.machine(assemble(restored.subtask, world.built, around, channels))
    origin = None if restored.state is None else (restored.state.incarnation, restored.state.snapshot_id)
    host = Host(machine, world.witness.watch(machine, incarnation, origin), worker, world.agenda, worker.data)
    world.spring_trap(machine)
    machine.restore(state, world.now)
    if host.list_sink is not None:
        world.history.list_sinks[restored.subtask.node] = None
        world.committed(host, host.list_sink.take_visible())
    return host
