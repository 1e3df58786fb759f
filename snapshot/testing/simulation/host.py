"""One subtask in a simulated worker: its real machine, and the steps that are possible for the subtask.

Each input has a wire, and each output an output buffer. Polls and timers wait for their time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any, Final, Generic, TypeVar

from cutline.snapshot.assembly import assemble
from cutline.snapshot.channel.channel_receiver import ChannelReceiver
from cutline.snapshot.channel.channel_sender import ChannelSender
from cutline.snapshot.channel.frame import Frame, Marker
from cutline.snapshot.channel.object_frame import AnyFrame
from cutline.snapshot.coordinator import control
from cutline.snapshot.errors import ChannelError
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.keyed.tier import Tier
from cutline.snapshot.node import Node, defines
from cutline.snapshot.subtask.environment import SubtaskEnvironment
from cutline.snapshot.subtask.events import MarkerArrived
from cutline.snapshot.subtask.limits import SubtaskLimits
from cutline.snapshot.subtask.machine import SubtaskMachine
from cutline.snapshot.subtask.observer import JoinedObserver
from cutline.snapshot.subtask.restored import RestoredChannels
from cutline.snapshot.testing.checking.verdict import CheckFailed
from cutline.snapshot.testing.lists import ListSink
from cutline.snapshot.testing.simulation.history_log import SubtaskHistory
from cutline.snapshot.testing.simulation.scheduler import EnabledStep, Group, Scheduler
from cutline.snapshot.testing.simulation.world import World
from cutline.snapshot.testing.steps import Arrive, Deliver, Poll, Step, Timer, Transmit

_LIMITS = SubtaskLimits()

Item = AnyFrame | Marker

#: Most messages of one call of `Node.onMessages`.
_LIST_MAX = 256


class MemorySpill(deque[Frame]):
    """Frames that wait for room in an out-buffer inside a cycle, in the order of their numbers (PROTOCOL 9.2)."""

    def __init__(self, on_frame: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._on_frame = on_frame

    def append(self, frame: Frame) -> None:
        """Add a frame at the end."""
        self._on_frame()
        super().append(frame)

    @property
    def waiting_bytes(self) -> int:
        """Return the bytes of all frames that wait."""
        return sum(len(frame.payload) for frame in self)


class InjectedFailure(Exception):
    """Raised by a simulation where the user's code could have raised."""


S = TypeVar("S", Deliver, Arrive, Transmit)


#: situation that is counted when a snapshot is started while a snapshot with a higher id runs
CROSSING: Final = "snapshots whose ids cross"


class HostOwner:
    """The worker of a host, as far as the host needs it."""

    @property
    def is_started(self) -> bool:
        """Whether the subtasks may act."""
        raise NotImplementedError

    def act(self, event: Callable[[], object], host: Host) -> None:
        """Let an event happen to a host's machine, and handle its failure."""
        raise NotImplementedError

    def put_on_wire(self, channel: ChannelId, item: Item) -> None:
        """Send an item to the channel's receiver."""
        raise NotImplementedError

    def see(self, what: str) -> None:
        """Count a situation that must happen in some run."""
        raise NotImplementedError

    @property
    def ids_cross(self) -> bool:
        """Whether snapshots were started whose ids cross, so that cuts need not ascend."""
        raise NotImplementedError


class CutWatch:
    """Checks the order of a subtask's cuts, and counts situations at cuts that must happen in some run."""

    def __init__(self, machine: SubtaskMachine, owner: HostOwner) -> None:
        self._machine = machine
        self._owner = owner
        self._last_cut = 0
        #: the channel whose marker is being handled, or None
        self.cause: ChannelId | None = None
        #: {channel that brought the first marker of a snapshot: None}
        self._first_by: dict[ChannelId, None] = {}
        #: {channel: number of the last message that a restore put into its queue}
        self._restored = {channel: end.arrived for channel, end in machine.inputs.items() if end.head is not None}

    def cut(self, snapshot_id: int) -> None:
        """Note that the subtask cuts now."""
        if snapshot_id <= self._last_cut and not self._owner.ids_cross:  # PROTOCOL 3.3
            raise CheckFailed("order", f"{self._machine.subtask} cuts for {snapshot_id} after {self._last_cut}")
        self._last_cut = max(snapshot_id, self._last_cut)
        inputs = self._machine.inputs
        if self.cause is not None:
            self._first_by[self.cause] = None
            if len(self._first_by) == len(inputs) > 1:
                self._owner.see("a first marker through each of several inputs")
        heads = ((end, end.head) for end in inputs.values())
        if any(isinstance(head, AnyFrame) and head.first <= end.processed for end, head in heads):
            self._owner.see("a cut inside a partly handled frame")
        if any(inputs[channel].processed < last for channel, last in self._restored.items()):
            self._owner.see("a snapshot before restored messages were drained")


class Host:
    """A subtask in one incarnation.

    Parameters
    ----------
    machine : SubtaskMachine
    subtask_history : SubtaskHistory
        Observer of the machine, which writes its history.
    owner : HostOwner
    group : Group
        Group of the worker's data, which ends with the incarnation.
    placement : mapping
        ``{subtask: worker number}``.
    """

    def __init__(
        self,
        machine: SubtaskMachine,
        subtask_history: SubtaskHistory,
        owner: HostOwner,
        scheduler: Scheduler,
        group: Group,
        placement: Mapping[Subtask, int],
    ) -> None:
        self.machine = machine
        self.subtask: Subtask = machine.subtask
        self.subtask_history = subtask_history
        self.is_idle = False
        self.list_sink = machine.node if isinstance(machine.node, ListSink) else None
        self.wires: dict[ChannelId, deque[Item]] = {channel: deque() for channel in machine.inputs}
        self._owner = owner
        self._scheduler = scheduler
        self._poll = group.enabled_step(Poll(self.subtask), lambda: self._act(self._poll_once))
        self._timer = group.enabled_step(Timer(self.subtask), lambda: self._act(self._fire_once))
        self._delivers = [(end, group.enabled_step(*self._deliver_of(end))) for end in machine.inputs.values()]
        self._arrives = {channel: group.enabled_step(*self._arrive_of(channel)) for channel in machine.inputs}
        self._transmits = [(end, group.enabled_step(*self._transmit_of(end))) for end in machine.outputs.values()]
        for channel, end in machine.outputs.items():
            if placement[channel.source] == placement[channel.target]:  # a wire inside a worker takes references
                end.take_objects()
        #: {step: virtual time at which it is checked again}
        self._waits: dict[EnabledStep, float] = {}
        self._cuts = CutWatch(machine, owner)
        subtask_history.on_cut = self._cuts.cut

    # ---------------------------------------------------------------- the steps

    def _deliver_of(self, end: ChannelReceiver) -> tuple[Callable[[], Step], Callable[[], None]]:
        steps = _Steps(Deliver, end.channel)
        return lambda: steps.of(end.head), lambda: self._act(lambda: self._deliver(end))

    def _arrive_of(self, channel: ChannelId) -> tuple[Callable[[], Step], Callable[[], None]]:
        steps, wire = _Steps(Arrive, channel), self.wires[channel]
        return lambda: steps.of(wire[0]), lambda: self._act(lambda: self._arrive(channel))

    def _transmit_of(self, end: ChannelSender) -> tuple[Callable[[], Step], Callable[[], None]]:
        steps = _Steps(Transmit, end.channel)
        return lambda: steps.named(is_marker=end.buffer.has_marker, is_end=False), lambda: self._act(
            lambda: self._transmit(end)
        )

    def deliver_step(self, channel: ChannelId) -> EnabledStep:
        """Return the step that handles the next item of an input."""
        return next(enabled_step for end, enabled_step in self._delivers if end.channel == channel)

    def arrive_step(self, channel: ChannelId) -> EnabledStep:
        """Return the step that takes the next item off the wire."""
        return self._arrives[channel]

    def transmit_step(self, channel: ChannelId) -> EnabledStep:
        """Return the step that puts the next item of an output on the wire."""
        return next(enabled_step for end, enabled_step in self._transmits if end.channel == channel)

    def enabled_step_of(self, step: Step) -> EnabledStep | None:
        """Return the enabled step for a step on the data of this subtask, or None for a step of another subtask."""
        match step:
            case Poll(subtask):
                return self._poll if subtask == self.subtask else None
            case Timer(subtask):
                return self._timer if subtask == self.subtask else None
            case Arrive():
                return self._arrives.get(step.channel)
            case Deliver():
                return next((enabled_step for end, enabled_step in self._delivers if end.channel == step.channel), None)
            case Transmit():
                return next(
                    (enabled_step for end, enabled_step in self._transmits if end.channel == step.channel), None
                )
            case _:
                return None

    def refresh(self) -> None:
        """Enable the steps that are possible now, after the worker is started."""
        machine = self.machine
        is_idle = machine.idle
        for end, enabled_step in self._delivers:
            enabled_step.set(machine.may_handle(end.channel))
        for sending, enabled_step in self._transmits:
            waits = sending.buffer.has_data or sending.has_open_frame
            is_idle = is_idle and not waits
            enabled_step.set(waits)
        self.is_idle = is_idle
        self._set_due(self._poll, machine.next_poll_at())
        self._set_due(self._timer, machine.next_timer_at())

    def _set_due(self, enabled_step: EnabledStep, at: float | None) -> None:
        enabled_step.set(at is not None and at <= self._scheduler.now)
        if at is not None and at > self._scheduler.now and self._waits.get(enabled_step) != at:
            self._waits[enabled_step] = at
            self._scheduler.at(at, self.refresh)

    def open_wires(self) -> None:
        """Enable the arrival of items that came before the start."""
        for channel, wire in self.wires.items():
            self._arrives[channel].set(bool(wire))

    # ---------------------------------------------------------------- what happens

    def _act(self, event: Callable[[], object]) -> None:
        self._owner.act(event, self)

    def sweep(self) -> None:
        """Let the subtask free rows, because storage has worked on some."""
        self._act(self.machine.sweep)

    def _poll_once(self) -> None:
        self.machine.poll_next(self._scheduler.now)
        self.machine.sweep()

    def _fire_once(self) -> None:
        self.machine.fire_next(self._scheduler.now)
        self.machine.sweep()

    def _deliver(self, end: ChannelReceiver) -> None:
        most = _LIST_MAX if defines(self.machine.node, "onMessages") else 1
        self.machine.handle_next(end.channel, self._scheduler.now, most)
        self.machine.sweep()

    def _transmit(self, end: ChannelSender) -> None:
        if not end.buffer.has_data:
            end.seal()
        item = end.buffer.take()
        assert item is not None
        self._owner.put_on_wire(end.channel, item)

    def receive(self, channel: ChannelId, item: Item) -> None:
        """Put an item on the wire to this subtask. The item waits on the wire until the worker starts."""
        self.wires[channel].append(item)
        self._arrives[channel].set(self._owner.is_started)

    def _arrive(self, channel: ChannelId) -> None:
        wire = self.wires[channel]
        item = wire.popleft()
        self._arrives[channel].set(bool(wire))
        try:
            if isinstance(item, Marker):
                self._cuts.cause = channel
                self.machine.step(MarkerArrived(channel, item), self._scheduler.now)
                self._cuts.cause = None
            else:
                self.machine.deliver(channel, item)
        except ChannelError as error:
            raise CheckFailed("sequence", str(error)) from error


class _Steps(Generic[S]):
    """The steps of one kind on one channel, each made when first needed."""

    __slots__ = ("_channel", "_kind", "_made")

    def __init__(self, kind: type[S], channel: ChannelId) -> None:
        self._kind: type[S] = kind
        self._channel = channel
        self._made: list[S | None] = [None, None, None]

    def of(self, item: Item | None) -> S:
        """Return the step for the next item."""
        is_end = isinstance(item, Frame) and item.is_control
        return self.named(is_marker=isinstance(item, Marker), is_end=is_end)

    def named(self, *, is_marker: bool, is_end: bool) -> S:
        """Return the step for a marker, for the end, or else for a message."""
        number = 1 if is_marker else 2 if is_end else 0
        step = self._made[number]
        if step is None:
            step = self._made[number] = self._kind(*self._channel, marker=is_marker, end=is_end)
        return step


def make_host(
    restored: control.RestoredSubtask,
    channels: RestoredChannels,
    incarnation: int,
    owner: HostOwner,
    group: Group,
    world: World,
    tiers: Mapping[str, Callable[[Subtask], Tier]],
) -> Host:
    """Assemble the machine of a subtask, whose state is restored later.

    Raises
    ------
    CutlineError, OSError
        as assembling does.
    CheckFailed
        if the restored messages of a channel are not in sequence.
    """
    # as in each incarnation of the run, because an unused one is not saved
    chance = Random(f"{world.seed} {world.run} {restored.subtask}")
    subtask_history = world.watch(restored.subtask, incarnation, channels)
    other = world.mutation.observer(restored.subtask, incarnation, world.codec)
    observer = subtask_history if other is None else JoinedObserver(subtask_history, other)
    environment = SubtaskEnvironment(
        world.run, incarnation, world.codec, _LIMITS, lambda _: MemorySpill(partial(world.see, "a frame was spilled")),
        lambda _: world.logger, lambda _: chance, lambda: world.now, lambda _: observer, **tiers,
    )  # fmt: skip
    try:
        machine = world.mutation.machine(assemble(restored.subtask, world.compiled, environment, channels))
    except ChannelError as error:
        raise CheckFailed("sequence", str(error)) from error
    host = Host(machine, subtask_history, owner, world.scheduler, group, world.placement)
    _fail_next_hook(machine, world)
    if host.list_sink is not None:
        world.history.list_sinks[restored.subtask.node] = None
    return host


def _fail_next_hook(machine: SubtaskMachine, world: World) -> None:
    """Make a hook of this new instance raise, if a fault has requested that."""
    hook = world.hook_failures.pop(machine.subtask, None)
    if hook is not None and defines(machine.node, hook):
        inject_hook_failure(machine.node, hook)


def inject_hook_failure(node: Node, hook: str) -> None:
    """Make `hook` raise at its next call.

    The class of this instance is replaced until then, so that `snapshotState` finds the node's attributes unchanged.
    """
    real: Any = type(node)

    def raise_once(self: Any, *_: Any) -> None:
        self.__class__ = real
        raise InjectedFailure(f"a simulated failure of {hook}")

    members = {hook: raise_once, "__slots__": (), "__module__": real.__module__, "__qualname__": real.__qualname__}
    node.__class__ = type(real.__name__, (real,), members)
