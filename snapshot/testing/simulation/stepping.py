"""Take steps on a simulated run: steps that a chooser names, and steps that a schedule leaves out."""

from __future__ import annotations

from cutline.snapshot.channel.frame import Marker
from cutline.snapshot.coordinator import events
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.testing import steps
from cutline.snapshot.testing.checking.verdict import CheckFailed
from cutline.snapshot.testing.simulation.faults import Impossible, inject
from cutline.snapshot.testing.simulation.host import CROSSING, Host
from cutline.snapshot.testing.simulation.scheduler import EnabledStep
from cutline.snapshot.testing.simulation.simulated_cluster import SimulatedCluster
from cutline.snapshot.testing.simulation.worker import Worker


def take(cluster: SimulatedCluster, step: steps.Step) -> None:
    """Take one step, after the deploying, storing and sending that the step needs.

    Raises
    ------
    Impossible
        if the step cannot be taken now; the text gives the reason.
    """
    match step:
        case steps.Tick(seconds):
            _tick(cluster, seconds)
        case steps.Quiesce():
            quiesce(cluster)
        case steps.Initiate(snapshot_id, at):
            _initiate(cluster, snapshot_id, at)
        case steps.RequestSnapshot(stop, pinned):
            cluster.request_snapshot(stops=stop, pinned=pinned)
        case steps.Inject(target, message):
            _started(cluster, target).inject(target, message)
        case steps.Fault():
            inject(cluster, step)
        case steps.InProcess(process, inner):
            _zombie_step(cluster, process, inner).act()
        case steps.Deliver() if _data_step(cluster, step) is None:
            _deliver(cluster, step)
        case _:
            _find(cluster, step).act()


def named(cluster: SimulatedCluster, enabled_step: EnabledStep) -> steps.Step:
    """Return the step that stands for an enabled step, such that `take` takes exactly this enabled step."""
    step = enabled_step.step
    if not cluster.has_replaced or not isinstance(step, steps.DataStep):
        return step
    subtask = _subtask_of(step)
    newest = cluster.worker_of(subtask)
    if newest is not None and newest.data.hosts[subtask].enabled_step_of(step) is enabled_step:
        return step
    hosting = (worker for worker in cluster.workers if subtask in worker.data.hosts)
    process = next(
        worker.process for worker in hosting if worker.data.hosts[subtask].enabled_step_of(step) is enabled_step
    )
    return steps.InProcess(process, step)


def quiesce(cluster: SimulatedCluster) -> None:
    """Let everything happen that needs neither data nor time, oldest first."""
    while not cluster.is_over and (enabled_step := _oldest(cluster, is_control=True)) is not None:
        enabled_step.act()


def go_on(cluster: SimulatedCluster) -> bool:
    """Take the next step by the plainest rule: control before data before time, oldest first.

    Return False when the run is over.

    Raises
    ------
    CheckFailed
        if no step will ever be possible again.
    """
    cluster.resubmit()
    if cluster.is_over:
        return False
    enabled_step = _oldest(cluster, is_control=True) or _oldest(cluster, is_control=False)
    if enabled_step is not None:
        enabled_step.act()
        return True
    due = cluster.world.scheduler.next_due()
    if due is None:
        raise CheckFailed(
            "liveness", f"nothing will ever happen again, at {cluster.world.now:.2f} s: {describe_phases(cluster)}"
        )
    cluster.world.scheduler.pass_time(due)
    return True


def describe_phases(cluster: SimulatedCluster) -> str:
    """Describe the phases of all coordinators."""
    simulated = [
        (d.owner, d.simulated.coordinator.phase.value if d.simulated else "has no coordinator") for d in cluster.drivers
    ]
    return ", ".join(f"driver {owner}: {phase}" for owner, phase in simulated)


def _oldest(cluster: SimulatedCluster, *, is_control: bool) -> EnabledStep | None:
    found = (each for each in cluster.world.scheduler.enabled_steps if each.is_control is is_control)
    return min(found, key=lambda enabled_step: enabled_step.stamp, default=None)


def _prepare(cluster: SimulatedCluster) -> bool:
    """Take one more control step, for a step that is not possible yet. Return False if there is none."""
    enabled_step = None if cluster.is_over else _oldest(cluster, is_control=True)
    if enabled_step is None:
        return False
    enabled_step.act()
    return True


def _subtask_of(step: steps.Step) -> Subtask:
    """Return the subtask on whose data a step acts."""
    match step:
        case steps.Poll(subtask) | steps.Timer(subtask) | steps.Transmit(subtask):
            found = subtask
        case steps.Arrive(_, subtask) | steps.Deliver(_, subtask):
            found = subtask
        case _:
            raise AssertionError(f"{step!r} is on no data")
    assert isinstance(found, Subtask)
    return found


def _data_step(cluster: SimulatedCluster, step: steps.Step) -> EnabledStep | None:
    """Return the enabled step that equals a step on data in the newest process, or None."""
    subtask = _subtask_of(step)
    worker = cluster.worker_of(subtask)
    enabled_step = None if worker is None else worker.data.hosts[subtask].enabled_step_of(step)
    return enabled_step if enabled_step is not None and enabled_step.index >= 0 and enabled_step.step == step else None


def _zombie_step(cluster: SimulatedCluster, process: int, step: steps.Step) -> EnabledStep:
    worker = cluster.processes[process] if 0 <= process < len(cluster.processes) else None
    host = None if worker is None or not isinstance(step, steps.DataStep) else worker.data.hosts.get(_subtask_of(step))
    enabled_step = None if host is None else host.enabled_step_of(step)
    if enabled_step is None or enabled_step.index < 0 or enabled_step.step != step:
        raise Impossible(f"{step!r} is not possible now in process {process}")
    return enabled_step


def _enabled_step(cluster: SimulatedCluster, step: steps.Step) -> EnabledStep | None:
    if isinstance(step, steps.DataStep):
        return _data_step(cluster, step)
    return next(
        (enabled_step for enabled_step in cluster.world.scheduler.enabled_steps if enabled_step.step == step), None
    )


def _find(cluster: SimulatedCluster, step: steps.Step) -> EnabledStep:
    while True:
        enabled_step = _enabled_step(cluster, step)
        if enabled_step is not None:
            return enabled_step
        if not _prepare(cluster):
            raise Impossible(f"{step!r} is not possible now")


def _tick(cluster: SimulatedCluster, seconds: float | None) -> None:
    if seconds is not None:
        cluster.world.scheduler.pass_time(cluster.world.now + seconds)
        return
    due = cluster.world.scheduler.next_due()
    if due is None:
        raise Impossible("nothing is due, however much time passes")
    cluster.world.scheduler.pass_time(due)


def _started(cluster: SimulatedCluster, subtask: Subtask) -> Worker:
    if subtask not in cluster.world.placement:
        raise Impossible(f"there is no {subtask}; there are {', '.join(map(str, cluster.world.placement))}")
    while True:
        worker = cluster.worker_of(subtask)
        if worker is not None and worker.is_started:
            return worker
        if not _prepare(cluster):
            raise Impossible(f"{subtask} does not run now")


def _initiate(cluster: SimulatedCluster, scripted_id: int, at: Subtask) -> None:
    worker = _started(cluster, at)
    simulated = cluster.coordinator_of(worker)
    while simulated is None or not simulated.collects_from(worker):
        if not _prepare(cluster):
            raise Impossible(f"no coordinator collects snapshots of {at} now")
        worker = _started(cluster, at)
        simulated = cluster.coordinator_of(worker)
    table = simulated.coordinator.table
    snapshot_id = table.ids.first_id + scripted_id
    if snapshot_id not in table.pending:
        if not table.ids.is_free(snapshot_id):
            raise Impossible(f"snapshot {scripted_id} is over, or a later one is: an id is used once")
        if any(pending > snapshot_id for pending in table.pending):
            cluster.world.see(CROSSING)
        simulated.step(events.SnapshotInitiated(snapshot_id))
    worker.initiate(at, snapshot_id, table.running_below(snapshot_id), table.min_snapshot_id)


def _deliver(cluster: SimulatedCluster, step: steps.Deliver) -> None:
    """Bring the next message, end or marker to the receiver, and handle it."""
    if step.marker:
        _deliver_marker(cluster, step.channel)
        return
    sender, receiver = _ends(cluster, step.channel)
    enabled_step = receiver.deliver_step(step.channel)
    while enabled_step.index < 0:
        if _marker_is_ahead(sender, receiver, step.channel):
            raise Impossible(f"{step!r} is not possible now: a marker has overtaken it, deliver that first")
        if not _bring(sender, receiver, step.channel):
            raise Impossible(f"{step!r} is not possible now: nothing is on its way, or the subtask is held")
    if enabled_step.step != step:
        raise Impossible(f"{step!r} is not possible now: {enabled_step.step!r} is next")
    enabled_step.act()


def _deliver_marker(cluster: SimulatedCluster, channel: ChannelId) -> None:
    """Bring the next marker to the receiver. Messages that the marker overtakes stay behind, or arrive and wait."""
    sender, receiver = _ends(cluster, channel)
    enabled_step, wire = receiver.deliver_step(channel), receiver.wires[channel]
    while True:
        if enabled_step.index >= 0 and isinstance(receiver.machine.inputs[channel].head, Marker):
            enabled_step.act()
            return
        acts_at_once = bool(wire) and isinstance(wire[0], Marker) and not wire[0].aligned
        if not _bring(sender, receiver, channel):
            raise Impossible(f"no marker comes through on {channel} now")
        if acts_at_once:
            return


def _ends(cluster: SimulatedCluster, channel: ChannelId) -> tuple[Host, Host]:
    """Return the hosts at both ends of a channel."""
    for subtask in channel:
        _started(cluster, subtask)
    sender, receiver = (_started(cluster, subtask).data.hosts[subtask] for subtask in channel)
    if channel not in receiver.wires:
        raise Impossible(f"there is no channel {channel}")
    return sender, receiver


def _marker_is_ahead(sender: Host, receiver: Host, channel: ChannelId) -> bool:
    """Return whether an unaligned marker acts before the next message."""
    wire = receiver.wires[channel]
    if wire:
        return isinstance(wire[0], Marker) and not wire[0].aligned
    return sender.machine.outputs[channel].buffer.marker_overtakes


def _bring(sender: Host, receiver: Host, channel: ChannelId) -> bool:
    """Move the item nearest to the receiver one stage nearer. Return False if nothing is on its way."""
    for enabled_step in (receiver.arrive_step(channel), sender.transmit_step(channel)):
        if enabled_step.index >= 0:
            enabled_step.act()
            return True
    return False
