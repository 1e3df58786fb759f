"""The steps of a schedule: all that can happen next in a simulated run. They print as they are written.

A schedule is a list of them, as a failure prints it and a test pastes it::

    [Poll("numbers"), Deliver("numbers", "sum"), Initiate(1, "numbers"), Settle(), Crash("sum")]

Where a subtask is wanted, its name will do: ``"sum"`` is its first subtask, ``"sum[1]"`` its second. Must not know how
steps are performed.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import Any

from snapshot.ids import ChannelId, Subtask

#: A subtask, or its name: ``"sum"`` or ``"sum[1]"``.
Named = Subtask | str


def subtask_named(name: Named) -> Subtask:
    """The subtask that `name` stands for.

    Raises
    ------
    ValueError
        if it is no name of one.
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
    """The name of a subtask as steps print it."""
    return subtask.node if subtask.index == 0 else str(subtask)


@dataclass(frozen=True, slots=True, repr=False)
class Step:
    """Anything that can happen next."""

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

    def _resolve(self, *names: str) -> None:
        for name in names:
            object.__setattr__(self, name, subtask_named(getattr(self, name)))


class Fault(Step):
    """A step that a run without faults does not take."""

    __slots__ = ()


# ---- data


@dataclass(frozen=True, slots=True, repr=False)
class Poll(Step):
    """A source is polled once."""

    subtask: Any

    def __post_init__(self) -> None:
        self._resolve("subtask")


@dataclass(frozen=True, slots=True, repr=False)
class Timer(Step):
    """A timer that is due fires."""

    subtask: Any

    def __post_init__(self) -> None:
        self._resolve("subtask")


@dataclass(frozen=True, slots=True, repr=False)
class _OnChannel(Step):
    source: Any
    target: Any
    #: it is a marker; else a message
    marker: bool = False
    #: it is the end of the stream; else a message
    end: bool = False

    def __post_init__(self) -> None:
        self._resolve("source", "target")

    @property
    def channel(self) -> ChannelId:
        """The channel it happens on."""
        return ChannelId(self.source, self.target)


@dataclass(frozen=True, slots=True, repr=False)
class Transmit(_OnChannel):
    """What waits first in the sender's out-buffer goes on the wire: a marker that overtakes goes ahead of messages."""


@dataclass(frozen=True, slots=True, repr=False)
class Arrive(_OnChannel):
    """What is first on the wire comes into the receiver's queue; an unaligned marker is acted upon at once."""


@dataclass(frozen=True, slots=True, repr=False)
class Deliver(_OnChannel):
    """The receiver takes the next message, marker or end of a channel; what it needs to get there happens before.

    With `marker`, the next marker on the channel comes through: one that overtakes leaves messages behind.
    """


@dataclass(frozen=True, slots=True, repr=False)
class Inject(Step):
    """A message comes into a node from outside of the graph; it is lost if the node is rolled back behind it."""

    target: Any
    message: Any

    def __post_init__(self) -> None:
        self._resolve("target")


@dataclass(frozen=True, slots=True, repr=False)
class Tick(Step):
    """Time passes. None: until something is due."""

    seconds: float | None = None


# ---- snapshots


@dataclass(frozen=True, slots=True, repr=False)
class Initiate(Step):
    """A subtask starts a snapshot. The same id at several subtasks: they start it at the same time, each for itself.

    Ids count from the first one of the coordinator's claim, so that none is used again after a restart.
    """

    snapshotId: int
    at: Any

    def __post_init__(self) -> None:
        self._resolve("at")


@dataclass(frozen=True, slots=True, repr=False)
class Order(Step):
    """The driver asks for a snapshot, which the coordinator starts where it sees fit; or to stop after one."""

    stop: bool = False


@dataclass(frozen=True, slots=True, repr=False)
class TimeOut(Step):
    """A subtask has waited long enough to align a snapshot."""

    subtask: Any
    snapshotId: int

    def __post_init__(self) -> None:
        self._resolve("subtask")


@dataclass(frozen=True, slots=True, repr=False)
class Store(Step):
    """A subtask's part of a snapshot is written."""

    subtask: Any
    snapshotId: int

    def __post_init__(self) -> None:
        self._resolve("subtask")


# ---- between workers, coordinator and driver. A process is named by its number, in the order of their starts, and
# ---- so is a life of a coordinator.


@dataclass(frozen=True, slots=True, repr=False)
class Settle(Step):
    """Everything happens that needs neither data nor time: deploying, storing, acknowledging, publishing."""


@dataclass(frozen=True, slots=True, repr=False)
class _OfProcess(Step):
    process: int


class Register(_OfProcess):
    """A worker connects to the coordinator."""

    __slots__ = ()


class Hear(_OfProcess):
    """A worker takes what the coordinator said next."""

    __slots__ = ()


class Restore(_OfProcess):
    """A worker makes its subtasks, from a snapshot if there is one."""

    __slots__ = ()


class Link(_OfProcess):
    """A worker connects to its peers."""

    __slots__ = ()


class NoticeLoss(_OfProcess):
    """A worker notices that a peer is gone."""

    __slots__ = ()


class NoticeExit(_OfProcess):
    """The driver's stage notices that a worker is gone."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, repr=False)
class _OfDriver(Step):
    driver: str = "A"


class Launch(_OfDriver):
    """A driver submits its stage."""

    __slots__ = ()


class Fork(_OfDriver):
    """A driver's stage starts a worker process."""

    __slots__ = ()


class StartCoordinator(_OfDriver):
    """A driver's coordinator begins a life."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, repr=False)
class _OfLife(Step):
    life: int = 0


class Think(_OfLife):
    """A coordinator takes the next of what driver and store told it."""

    __slots__ = ()


class Wake(_OfLife):
    """A coordinator looks at the clock."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, repr=False)
class Listen(Step):
    """A coordinator takes what a worker said next."""

    process: int
    life: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class Answer(Step):
    """The store does what a coordinator asked of it, by the number of the request."""

    request: int
    life: int = 0


@dataclass(frozen=True, slots=True, repr=False)
class Land(Step):
    """What a lost coordinator had asked of the store happens after all, or never."""

    request: int
    never: bool = False


#: What `Settle` lets happen.
CONTROL = (
    Store, Register, Hear, Restore, Link, NoticeLoss, NoticeExit, Launch, Fork, StartCoordinator, Think, Wake, Listen,
    Answer,
)  # fmt: skip


# ---- faults


@dataclass(frozen=True, slots=True, repr=False)
class Crash(Fault):
    """A worker process is killed: by its number, or the one that runs a subtask."""

    worker: Any

    def __post_init__(self) -> None:
        if isinstance(self.worker, str):
            self._resolve("worker")


@dataclass(frozen=True, slots=True, repr=False)
class Fail(Fault):
    """A subtask's node raises; its worker process goes on."""

    subtask: Any

    def __post_init__(self) -> None:
        self._resolve("subtask")


@dataclass(frozen=True, slots=True, repr=False)
class FailHook(Fault):
    """The node of a subtask raises when this hook of it is called next."""

    subtask: Any
    hook: str

    def __post_init__(self) -> None:
        self._resolve("subtask")


@dataclass(frozen=True, slots=True, repr=False)
class _OnProcess(Fault):
    process: int


class CutControl(_OnProcess):
    """A worker's connection to the coordinator breaks; both live."""

    __slots__ = ()


class FailStore(_OnProcess):
    """The next part that a worker stores, or reads, fails."""

    __slots__ = ()


class TearStore(_OnProcess):
    """The next part that a worker stores is half written, and fails."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, repr=False)
class HangStore(Fault):
    """A worker's store does not answer for so long."""

    process: int
    seconds: float = 10.0


@dataclass(frozen=True, slots=True, repr=False)
class Freeze(Fault):
    """A worker stops, is taken for dead, and goes on later: a zombie."""

    process: int
    seconds: float = 10.0


class LoseAcknowledgement(_OnProcess):
    """The oldest acknowledgement on its way from a worker never comes."""

    __slots__ = ()


class RepeatAcknowledgement(_OnProcess):
    """The oldest acknowledgement on its way from a worker comes twice."""

    __slots__ = ()


class DelayAcknowledgement(_OnProcess):
    """The oldest acknowledgement on its way from a worker comes after all else that is on its way."""

    __slots__ = ()


class FailStage(Fault):
    """A barrier task is killed, and the stage with it; the other workers linger."""

    __slots__ = ()


class CrashCoordinator(Fault):
    """The coordinator's process is killed; another life follows."""

    __slots__ = ()


class OrphanCoordinator(Fault):
    """The coordinator is taken for dead, is replaced, and lives on: a zombie."""

    __slots__ = ()


class KillDriver(Fault):
    """The driver is killed, and somebody submits the run again."""

    __slots__ = ()


class SubmitAgain(Fault):
    """Another driver submits the run while the first one lives."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, repr=False)
class Doubt(Fault):
    """The answer to the next manifest's write is lost, and the write is "done", happens "late", or "never"."""

    what: str
