"""Makes one subtask in a simulated worker: its machine from the restored parts, its witness, its places."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from snapshot.coordinator import control
from snapshot.errors import ChannelError
from snapshot.subtask.assembly import RestoredChannels, SubtaskEnvironment, assemble
from snapshot.subtask.limits import SubtaskLimits
from snapshot.subtask.observer import JoinedObserver
from snapshot.testing.checking.verdict import CheckFailed
from snapshot.testing.simulation.host import Host

if TYPE_CHECKING:
    from snapshot.testing.simulation.simulated_cluster import SimulatedCluster
    from snapshot.testing.simulation.worker import Worker

_LIMITS = SubtaskLimits()


def make_host(
    restored: control.RestoredSubtask,
    channels: RestoredChannels,
    incarnation: int,
    worker: Worker,
    cluster: SimulatedCluster,
) -> Host:
    """Assemble the machine; its state is still to be restored.

    Raises
    ------
    CutlineError, OSError
        as assembling does.
    CheckFailed
        if the restored messages of a channel are not in sequence.
    """
    chance = Random(f"{cluster.seed} {incarnation} {restored.subtask}")
    origin = None if restored.state is None else (restored.state.incarnation, restored.state.snapshot_id)
    subtask_history = cluster.history_log.watch(restored.subtask, incarnation, origin)
    other = cluster.mutation.observer(restored.subtask, incarnation)
    observer = subtask_history if other is None else JoinedObserver(subtask_history, other)
    environment = SubtaskEnvironment(
        cluster.run, incarnation, cluster.codec, _LIMITS, lambda _: None, lambda _: cluster.logger, lambda _: chance,
        lambda: cluster.now, lambda _: observer,
    )  # fmt: skip
    try:
        machine = cluster.mutation.machine(assemble(restored.subtask, cluster.compiled, environment, channels))
    except ChannelError as error:
        raise CheckFailed("sequence", str(error)) from error
    host = Host(machine, subtask_history, worker, cluster.scheduler, worker.data)
    cluster.fail_next_hook(machine)
    if host.list_sink is not None:
        cluster.history.list_sinks[restored.subtask.node] = None
    return host
