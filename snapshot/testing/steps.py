"""The steps of a schedule: everything that can happen next in a simulated run. Steps print as they are written.

A schedule is a list of steps, as a failure prints it and a test pastes it::

    [Poll("numbers"), Deliver("numbers", "sum"), Initiate(1, "numbers"), Quiesce(), Crash("sum")]

A name stands for a subtask: ``"sum"`` is the first subtask of the node, ``"sum[1]"`` the second. Processes are numbered
in the order in which they were started, and so are the instances of a coordinator. Must not know how steps are
performed.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import Any

from cutline.snapshot.ids import ChannelId, Subtask

#: A subtask, or its name: ``"sum"`` or ``"sum[1]"``.
Named = Subtask | str


def subtask_named(name: Named) -> Subtask:
    """Return the subtask that `name` stands for.

    Raises
    ------
    ValueError
        if `name` is not the name of a subtask.
    """
    if isinstance(name, Subtask):
        return name
    node, bracket, index = name.partition("[")
    if not bracket:
        return Subtask(node)
    if not node or not index.endswith("]") or not index[:-1].isdigit():
        raise ValueError(f"{name!r} is no name of a subtask: write 'node' or 'node[1]'")
    return Subtask(node, int(index[:-1]))


def short_name(subtask: Subtask) -> str:
    """Return the name of a subtask as steps print it."""
    return subtask.node if subtask.index == 0 else str(subtask)


@dataclass(frozen=True, slots=True, repr=False)
class Step:
    """A step that can be taken next in a run."""

    def __repr__(self) -> str:
        said = []
        for field in fields(self):
            value = getattr(self, field.name)
            shown = repr(short_name(value)) if isinstance(value, Subtask) else repr(value)
            if field.default is MISSING:
                said.append(shown)
            elif value != field.default:
                said.append(f"{field.name}={shown}")
        return f"{type(self).__name__}({', '.join(said)})"

    def resolve(self, *names: str) -> None:
        """Replace names of subtasks in these fields by the subtasks."""
        for name in names:
            object.__setattr__(self, name, subtask_named(getattr(self, name)))


class Fault(Step):
    """A step that a run without faults does not take."""

    __slots__ = ()


class DataStep(Step):
    """A step on the data of one subtask. While two processes run the subtask, the step acts in the newer process."""

    __slots__ = ()


class ControlStep(Step):
    """A step that `Quiesce` takes, because it needs neither data nor time."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, repr=False)
class _OfSubtask(Step):
    subtask: Any

    def __post_init__(self) -> None:
        self.resolve("subtask")


@dataclass(frozen=True, slots=True, repr=False)
class _OfProcess(Step):
    process: int


@dataclass(frozen=True, slots=True, repr=False)
class _OfDriver(ControlStep):
    driver: str = "A"


@dataclass(frozen=True, slots=True, repr=False)
class _OfCoordinator(ControlStep):
    coordinator: int = 0


# ---------------------------------------------------------------- messages, time and snapshots


class Poll(_OfSubtask, DataStep):
    """Poll a source once."""

    __slots__ = ()


class Timer(_OfSubtask, DataStep):
    """Fire a timer that is due."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, repr=False)
class OnChannel(DataStep):
    """Act on the next item of a channel."""

    source: Any
    target: Any
    #: whether the item is a marker; else a message
    marker: bool = False
    #: whether the item is the end of the stream; else a message
    end: bool = False

    def __post_init__(self) -> None:
        self.resolve("source", "target")

    @property
    def channel(self) -> ChannelId:
        """The channel of the item."""
        return ChannelId(self.source, self.target)


@dataclass(frozen=True, slots=True, repr=False)
class Transmit(OnChannel):
    """Put the first item of the sender's output buffer on the wire. A marker that overtakes goes before messages."""


@dataclass(frozen=True, slots=True, repr=False)
class Arrive(OnChannel):
    """Move the first item on the wire into the receiver's queue. An unaligned marker acts at once."""


@dataclass(frozen=True, slots=True, repr=False)
class Deliver(OnChannel):
    """Handle the next message, marker or end of a channel, after the steps that bring the item to the receiver.

    With `marker`, the next marker on the channel is handled. A marker that overtakes leaves messages behind.
    """


@dataclass(frozen=True, slots=True, repr=False)
class InProcess(Step):
    """Take a step on data in a process that was replaced, or is about to be: the step of a zombie."""

    process: int
    step: Any


@dataclass(frozen=True, slots=True, repr=False)
class Inject(Step):
    """Send a message into a node from outside of the graph. A rollback to an earlier point loses the message."""

    target: Any
    message: Any

    def __post_init__(self) -> None:
        self.resolve("target")


@dataclass(frozen=True, slots=True, repr=False)
class Tick(Step):
    """Let time pass. None: until something is due."""

    seconds: float | None = None


@dataclass(frozen=True, slots=True, repr=False)
class Initiate(Step):
    """Start a snapshot at a subtask. Several subtasks start the same id at the same time, each for itself.

    Ids count from the first id of the coordinator's claim, so that no id is used again after a restart. A lower id may
    be started after a higher id, until a snapshot with a higher id has ended. Such snapshots are independent, so a
    subtask may record the higher id first. Each cut is exact. The order of ids then has no meaning, so after a restore
    a sink in two phases may commit output twice.
    """

    snapshotId: int
    at: Any

    def __post_init__(self) -> None:
        self.resolve("at")


@dataclass(frozen=True, slots=True, repr=False)
class RequestSnapshot(Step):
    """Request a snapshot, which the coordinator starts when it sees fit; or request to stop after a snapshot."""

    stop: bool = False
    #: whether retention never removes the snapshot
    pinned: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class TimeOut(_OfSubtask):
    """Let a subtask's time to align a snapshot pass."""

    snapshotId: int


# ---------------------------------------------------------------- workers, coordinator, driver and store


@dataclass(frozen=True, slots=True, repr=False)
class Store(_OfSubtask, ControlStep):
    """Write a subtask's part of a snapshot."""

    snapshotId: int


@dataclass(frozen=True, slots=True, repr=False)
class PutRecord(_OfSubtask, ControlStep):
    """Write a record of a subtask alone."""

    number: int


@dataclass(frozen=True, slots=True, repr=False)
class CheckClaim(_OfSubtask, ControlStep):
    """Let a worker check, after a record, whether another coordinator has taken the run."""

    number: int


@dataclass(frozen=True, slots=True, repr=False)
class WorkRows(_OfSubtask, ControlStep):
    """Perform a task on the keyed rows of a subtask: ``"EncodeRows"``, ``"StoreRows"`` or ``"CompactRows"``."""

    task: str


@dataclass(frozen=True, slots=True, repr=False)
class Quiesce(Step):
    """Let everything happen that needs neither data nor time: deploying, storing, acknowledging, publishing."""


class Register(_OfProcess, ControlStep):
    """Connect a worker to the coordinator."""

    __slots__ = ()


class Receive(_OfProcess, ControlStep):
    """Let a worker take the coordinator's next message."""

    __slots__ = ()


class Restore(_OfProcess, ControlStep):
    """Make the subtasks of a worker, from a snapshot if there is one."""

    __slots__ = ()


class Link(_OfProcess, ControlStep):
    """Connect a worker to its peers."""

    __slots__ = ()


class NoticeLoss(_OfProcess, ControlStep):
    """Let a worker notice that a peer is gone."""

    __slots__ = ()


class NoticeExit(_OfProcess, ControlStep):
    """Let the driver's stage notice that a worker is gone."""

    __slots__ = ()


class Launch(_OfDriver):
    """Let a driver submit its stage."""

    __slots__ = ()


class Fork(_OfDriver):
    """Let a driver's stage start a worker process."""

    __slots__ = ()


class StartCoordinator(_OfDriver):
    """Start a coordinator instance of a driver."""

    __slots__ = ()


class Think(_OfCoordinator):
    """Let a coordinator take the next event from its driver or store."""

    __slots__ = ()


class Wake(_OfCoordinator):
    """Let a coordinator check the clock."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, repr=False)
class Listen(_OfProcess, ControlStep):
    """Let a coordinator take a worker's next message."""

    coordinator: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class Answer(ControlStep):
    """Let the store answer a coordinator's request, by the number of the request."""

    request: int
    coordinator: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class Land(Step):
    """Perform a store request that a lost coordinator left behind."""

    request: int


# ---------------------------------------------------------------- faults


@dataclass(frozen=True, slots=True, repr=False)
class Crash(Fault):
    """Kill a worker process, by its number or by a subtask that it runs."""

    worker: Any

    def __post_init__(self) -> None:
        if isinstance(self.worker, str):
            self.resolve("worker")


class Fail(_OfSubtask, Fault):
    """Let a subtask's node raise. Its worker process goes on."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, repr=False)
class FailHook(_OfSubtask, Fault):
    """Let the node of a subtask raise at the next call of this hook."""

    hook: str


class CutControl(_OfProcess, Fault):
    """Break a worker's connection to the coordinator. Both processes go on."""

    __slots__ = ()


class FailStore(_OfProcess, Fault):
    """Fail the next part that a worker stores, or reads."""

    __slots__ = ()


class TearStore(_OfProcess, Fault):
    """Write half of the next part that a worker stores, and fail."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, repr=False)
class LoseTotals(Fault):
    """Fail the next calls on the store of an aggregate. The first ones happen all the same, and lose their answer."""

    node: str
    calls: int = 3
    happen: int = 1


@dataclass(frozen=True, slots=True, repr=False)
class HangStore(_OfProcess, Fault):
    """Leave a worker's store without an answer for some seconds."""

    seconds: float = 10.0


@dataclass(frozen=True, slots=True, repr=False)
class Freeze(_OfProcess, Fault):
    """Stop a worker for some seconds. The worker is then a zombie, if others have moved on meanwhile."""

    seconds: float = 10.0


class LoseAcknowledgement(_OfProcess, Fault):
    """Lose the oldest acknowledgement on its way from a worker."""

    __slots__ = ()


class RepeatAcknowledgement(_OfProcess, Fault):
    """Deliver the oldest acknowledgement on its way from a worker twice."""

    __slots__ = ()


class DelayAcknowledgement(_OfProcess, Fault):
    """Deliver the oldest acknowledgement on its way from a worker after all else that is on its way."""

    __slots__ = ()


class FailStage(Fault):
    """Kill a barrier task, and the stage with it. The other workers linger."""

    __slots__ = ()


class CrashCoordinator(Fault):
    """Kill the coordinator's process. Another coordinator instance follows."""

    __slots__ = ()


class OrphanCoordinator(Fault):
    """Replace a coordinator that runs, as if it were dead. The old instance runs on as a zombie."""

    __slots__ = ()


class KillDriver(Fault):
    """Kill the driver. The run is then submitted again."""

    __slots__ = ()


class SubmitAgain(Fault):
    """Submit the run by another driver while the first driver runs."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, repr=False)
class Doubt(Fault):
    """Lose the answer to the next manifest's write. The write is "done", happens "late", or "never"."""

    what: str
