"""Takes steps on a simulated run: those that a chooser names, and those that a schedule leaves out."""

from __future__ import annotations

from snapshot.channel.frame import Marker
from snapshot.coordinator import events
from snapshot.ids import ChannelId, Subtask
from snapshot.testing import steps
from snapshot.testing.checking.verdict import CheckFailed
from snapshot.testing.simulation.agenda import Place
from snapshot.testing.simulation.faults import Impossible, inject
from snapshot.testing.simulation.host import Host
from snapshot.testing.simulation.worker import Worker
from snapshot.testing.simulation.world import World


def take(world: World, step: steps.Step) -> None:
    """Take one step. What it needs of deploying, storing and telling happens before, if it did not yet.

    Raises
    ------
    Impossible
        if it cannot be taken now; says why.
    """
    match step:
        case steps.Tick(seconds):
            _tick(world, seconds)
        case steps.Settle():
            settle(world)
        case steps.Initiate(snapshot_id, at):
            _initiate(world, snapshot_id, at)
        case steps.Order(stop, pinned):
            world.order(stops=stop, pinned=pinned)
        case steps.Inject(target, message):
            _started(world, target).inject(target, message)
        case steps.Fault():
            inject(world, step)
        case steps.InProcess(process, inner):
            _zombie_place(world, process, inner).act()
        case steps.Deliver() if _data_place(world, step) is None:
            _deliver(world, step)
        case _:
            _find(world, step).act()


def named(world: World, place: Place) -> steps.Step:
    """The step that a place stands for, such that `take` takes it there and nowhere else."""
    step = place.step
    if not world.has_replaced or not isinstance(step, steps.DATA):
        return step
    subtask = _subtask_of(step)
    newest = world.worker_of(subtask)
    if newest is not None and newest.hosts[subtask].place_of(step) is place:
        return step
    hosting = (worker for worker in world.workers if subtask in worker.hosts)
    process = next(worker.process for worker in hosting if worker.hosts[subtask].place_of(step) is place)
    return steps.InProcess(process, step)


def settle(world: World) -> None:
    """Let everything happen that needs neither data nor time, oldest first."""
    while not world.is_over and (place := _oldest(world, is_control=True)) is not None:
        place.act()


def go_on(world: World) -> bool:
    """Take the next step by the plainest rule: control before data before time, oldest first. False: the run is over.

    Raises
    ------
    CheckFailed
        if nothing will ever happen again.
    """
    world.resubmit()
    if world.is_over:
        return False
    place = _oldest(world, is_control=True) or _oldest(world, is_control=False)
    if place is not None:
        place.act()
        return True
    due = world.agenda.next_due()
    if due is None:
        raise CheckFailed("liveness", f"nothing will ever happen again, at {world.now:.2f} s: {standing(world)}")
    world.agenda.pass_time(due)
    return True


def standing(world: World) -> str:
    """Where all coordinators stand."""
    lives = [(d.owner, d.life.coordinator.phase.value if d.life else "has no coordinator") for d in world.drivers]
    return ", ".join(f"driver {owner}: {phase}" for owner, phase in lives)


def _oldest(world: World, *, is_control: bool) -> Place | None:
    found = (place for place in world.agenda.places if place.is_control is is_control)
    return min(found, key=lambda place: place.stamp, default=None)


def _prepare(world: World) -> bool:
    """One more control step, for a step that is not possible yet. False: there is none."""
    place = None if world.is_over else _oldest(world, is_control=True)
    if place is None:
        return False
    place.act()
    return True


def _subtask_of(step: steps.Step) -> Subtask:
    """Whose data a step is on."""
    match step:
        case steps.Poll(subtask) | steps.Timer(subtask) | steps.Transmit(subtask):
            found = subtask
        case steps.Arrive(_, subtask) | steps.Deliver(_, subtask):
            found = subtask
        case _:
            raise AssertionError(f"{step!r} is on no data")
    assert isinstance(found, Subtask)
    return found


def _data_place(world: World, step: steps.Step) -> Place | None:
    """Where a step on data can be taken now, just so; None: nowhere."""
    subtask = _subtask_of(step)
    worker = world.worker_of(subtask)
    place = None if worker is None else worker.hosts[subtask].place_of(step)
    return place if place is not None and place.index >= 0 and place.step == step else None


def _zombie_place(world: World, process: int, step: steps.Step) -> Place:
    worker = world.processes[process] if 0 <= process < len(world.processes) else None
    host = None if worker is None or not isinstance(step, steps.DATA) else worker.hosts.get(_subtask_of(step))
    place = None if host is None else host.place_of(step)
    if place is None or place.index < 0 or place.step != step:
        raise Impossible(f"{step!r} is not possible now in process {process}")
    return place


def _place(world: World, step: steps.Step) -> Place | None:
    if isinstance(step, steps.DATA):
        return _data_place(world, step)
    return next((place for place in world.agenda.places if place.step == step), None)


def _find(world: World, step: steps.Step) -> Place:
    while True:
        place = _place(world, step)
        if place is not None:
            return place
        if not _prepare(world):
            raise Impossible(f"{step!r} is not possible now")


def _tick(world: World, seconds: float | None) -> None:
    if seconds is not None:
        world.agenda.pass_time(world.now + seconds)
        return
    due = world.agenda.next_due()
    if due is None:
        raise Impossible("nothing is due, however much time passes")
    world.agenda.pass_time(due)


def _started(world: World, subtask: Subtask) -> Worker:
    if subtask not in world.placement:
        raise Impossible(f"there is no {subtask}; there are {', '.join(map(str, world.placement))}")
    while True:
        worker = world.worker_of(subtask)
        if worker is not None and worker.is_started:
            return worker
        if not _prepare(world):
            raise Impossible(f"{subtask} does not run now")


def _initiate(world: World, scripted_id: int, at: Subtask) -> None:
    worker = _started(world, at)
    life = worker.driver.life
    while life is None or not life.collects_from(worker):
        if not _prepare(world):
            raise Impossible(f"no coordinator collects snapshots of {at} now")
        worker = _started(world, at)
        life = worker.driver.life
    book = life.coordinator.book
    snapshot_id = book.first_id + scripted_id
    if snapshot_id not in book.pending:
        if not book.is_free(snapshot_id):
            raise Impossible(f"snapshot {scripted_id} is over, or a later one has begun: ids go up")
        life.step(events.SnapshotInitiated(snapshot_id))
    worker.initiate(at, snapshot_id, book.running_below(snapshot_id), book.floor)


def _deliver(world: World, step: steps.Deliver) -> None:
    """The next message, end or marker comes all the way."""
    if step.marker:
        _deliver_marker(world, step.channel)
        return
    sender, receiver = _ends(world, step.channel)
    place = receiver.deliver_place(step.channel)
    while place.index < 0:
        if _marker_is_ahead(sender, receiver, step.channel):
            raise Impossible(f"{step!r} is not possible now: a marker has overtaken it, deliver that first")
        if not _bring(sender, receiver, step.channel):
            raise Impossible(f"{step!r} is not possible now: nothing is on its way, or the subtask is held")
    if place.step != step:
        raise Impossible(f"{step!r} is not possible now: {place.step!r} is next")
    place.act()


def _deliver_marker(world: World, channel: ChannelId) -> None:
    """A marker comes through; messages that it overtakes stay where they are, or arrive and wait."""
    sender, receiver = _ends(world, channel)
    place, wire = receiver.deliver_place(channel), receiver.wires[channel]
    while True:
        if place.index >= 0 and isinstance(receiver.machine.inputs[channel].head, Marker):
            place.act()
            return
        acts_at_once = bool(wire) and isinstance(wire[0], Marker) and not wire[0].aligned
        if not _bring(sender, receiver, channel):
            raise Impossible(f"no marker comes through on {channel} now")
        if acts_at_once:
            return


def _ends(world: World, channel: ChannelId) -> tuple[Host, Host]:
    """The hosts at both ends of a channel."""
    for subtask in channel:
        _started(world, subtask)
    sender, receiver = (_started(world, subtask).hosts[subtask] for subtask in channel)
    if channel not in receiver.wires:
        raise Impossible(f"there is no channel {channel}")
    return sender, receiver


def _marker_is_ahead(sender: Host, receiver: Host, channel: ChannelId) -> bool:
    """What comes next acts at once, before any message."""
    wire = receiver.wires[channel]
    if wire:
        return isinstance(wire[0], Marker) and not wire[0].aligned
    return sender.machine.outputs[channel].marker_overtakes


def _bring(sender: Host, receiver: Host, channel: ChannelId) -> bool:
    """What is nearest to the receiver comes one station nearer. False: nothing is on its way."""
    for place in (receiver.arrive_place(channel), sender.transmit_place(channel)):
        if place.index >= 0:
            place.act()
            return True
    return False
