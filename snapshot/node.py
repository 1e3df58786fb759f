"""The classes of a user's nodes: `Node`, `Source`, `Sink`, with `Context` and `END`.

Owns the names and contracts of the hooks. Knows nothing of how they are called: the runtime asks
`defines(node, hook)` which of them a class really has, and calls those, with positional arguments.

A life, in order::

    restoreState? > open > onStart? > events, one by one > onEnd per input > last snapshot > close
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal

from snapshot.ids import Subtask

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from logging import LoggerAdapter
    from random import Random

    import pyarrow as pa

#: How often, at most and at least, what a source gives or a sink takes counts after a failure.
Guarantee = Literal["none", "at_least_once", "exactly_once"]

GUARANTEES: Final[tuple[Guarantee, ...]] = ("none", "at_least_once", "exactly_once")


class End(Enum):
    """Type of `END`. An enum, because its member stays itself through any pickling."""

    END = "end"


#: What `Source.poll` returns when there will never be anything more.
END: Final = End.END


class Context(ABC):
    """Gives a hook what it may know and do. Valid during the call, on that thread, and not after it."""

    #: Name of the run.
    run: str
    #: Number of the claim of the last rollback; grows with each rollback.
    incarnation: int
    #: The subtask that this hook runs in.
    subtask: Subtask
    #: Number of subtasks of this node.
    parallelism: int
    #: Names of the nodes with an edge into this one; in `Node.onEnd`, those that are still open.
    inputs: tuple[str, ...]
    #: Names of the nodes that this one has an edge into.
    outputs: tuple[str, ...]
    #: This subtask's share of `Source.partitions`; empty for a node without them.
    partitions: tuple[str, ...]
    #: Who sent the message, batch or end that is being handled; else None.
    sender: Subtask | None
    #: Behind a hash edge, the key of the message or timer that is being handled. None in `Node.onBatch`.
    key: Any
    #: Seconds since the epoch. Never goes back, not even after a restore. The only clock a node needs.
    now: float
    #: The only chance a node needs: its state is saved in the snapshot.
    random: Random
    #: Has run, incarnation and subtask attached.
    logger: LoggerAdapter[Any]

    @abstractmethod
    def send(self, message: Any, to: str | Subtask | None = None) -> None:
        """Send `message`. Never blocks; order is kept per channel. The message belongs to the receiver from now on.

        Parameters
        ----------
        message : Any
            a value, or a `pyarrow.RecordBatch`, each row of which is a message.
        to : str, Subtask or None
            None: along every outgoing edge. A node's name: along the edge to it, by its rule of spreading.
            A `Subtask`: to that one.

        Raises
        ------
        NodeError
            when the message or its key cannot be serialised or hashed, when there is no such edge, and in
            hooks that must not send (`snapshotState`, `close`).
        """

    def sendAll(self, messages: Iterable[Any], to: str | Subtask | None = None) -> None:
        """`send` each of `messages`, in order: of a long list or tuple, to few subtasks, at about half the cost.

        Parameters
        ----------
        messages : iterable
            What is neither a list nor a tuple is sent one by one.
        to : str, Subtask or None
            as in `send`.

        Raises
        ------
        NodeError
            as `send`; of the messages ahead of the one that is refused some may not be sent then.
        """
        for message in messages:
            self.send(message, to)

    @abstractmethod
    def requestSnapshot(self) -> None:
        """Ask for a snapshot. This subtask records right after the handler that asked, or, if policy refuses, not."""

    @abstractmethod
    def registerTimer(self, at: float) -> None:
        """Have `Node.onTimer` called when `now` has reached `at`. Saved in the snapshot; per key behind a hash edge."""

    @abstractmethod
    def deleteTimer(self, at: float) -> None:
        """Forget the timer that was registered for `at` (and, behind a hash edge, the current key), if there is one."""

    @abstractmethod
    def increment(self, metric: str, by: float = 1) -> None:
        """Add to a counter among the run's metrics. Not exactly-once: counted again on replay."""


class Node:
    """A part of a graph that holds state and exchanges messages. Every hook is optional.

    A subtask is a fresh unpickled copy of the instance that was added to the graph, at each start and
    rollback. All hooks of a subtask run on one thread, one at a time.
    """

    def restoreState(self, state: Any) -> None:
        """Take over what `snapshotState` returned.

        Called on a fresh instance, before every other hook; not called on a fresh run.
        """

    def open(self, context: Context) -> None:
        """Open files and connections. Called at every start; the state is there. May send."""

    def onStart(self, context: Context) -> None:
        """Begin. Called once in a node's life, before it acts on any message, marker or request; not after a restore.

        Called again, from the graph as submitted, when a run dies before its first published snapshot.
        """

    def onMessage(self, message: Any, context: Context) -> None:
        """Handle one message. A node without this hook gets rows gathered to `onBatch`."""

    def onBatch(self, batch: pa.RecordBatch, context: Context) -> None:
        """Handle one Arrow batch, each row of which is a message. A node without this hook gets each row as a dict."""

    def onTimer(self, at: float, context: Context) -> None:
        """Act on a timer that was registered for `at`. Timers fire in ascending order, between two messages."""

    def onEnd(self, context: Context) -> None:
        """Act on the end of the input ``context.sender.node``: all its subtasks ended. May send.

        ``context.inputs`` are those that are still open.
        """

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        """Return the whole state. Called between two events; must neither block nor send.

        What it returns is serialised before the next event, so the node may go on changing it; bytes are kept by
        reference, all else is copied. `timestamp` is seconds since the epoch, for information only.
        A failure aborts this snapshot, not the run.
        """

    def onPublished(self, snapshotId: int) -> None:
        """Learn that a snapshot was published: acknowledge a queue. At least once, ascending, may skip ids."""

    def close(self) -> None:
        """Release what `open` took. Best effort: not called when the process is killed; a failure is logged."""


class Source(Node):
    """A node that brings messages into the graph. May have inputs too."""

    #: Declared level; None: exactly_once where the class has `snapshotState`, else none.
    guarantee: Guarantee | None = None

    def partitions(self) -> Sequence[str]:
        """Name what can be read independently. Each subtask gets its share in ``context.partitions``.

        A source with this hook keeps ``{partition: offset}`` as its state.
        """
        return ()

    def poll(self, context: Context) -> float | End | None:
        """Send what there is, a bounded amount, without blocking.

        Returns
        -------
        float, None or END
            when to be called again: None or 0 at once, else after so many seconds; `END`: never.
        """
        raise NotImplementedError


class Sink(Node):
    """A node that brings results out of the graph, in two phases where it has `commit`."""

    #: Declared level; None: exactly_once where the class has `commit`, else at_least_once.
    guarantee: Guarantee | None = None

    def prepareCommit(self, snapshotId: int) -> Any:
        """Make what was received so far durable, but not visible. Called just before `snapshotState`.

        Durable when it returns. The value is kept in the snapshot and given to `commit`; None: nothing to commit.
        """

    def commit(self, snapshotId: int, prepared: Any) -> None:
        """Make visible what `prepareCommit` returned.

        Called between messages, once a snapshot that holds it is published.
        Must be idempotent: it is called again after a restore, perhaps on another instance.
        """

    def discardUncommitted(self, context: Context) -> None:
        """Remove what incarnations below ``context.incarnation`` prepared and never committed, and nothing of this one.

        Called at every start, when all subtasks of the run have committed again what the snapshot holds. Parallel
        subtasks may have prepared already, so what is of this incarnation must stay.
        """


_BASES = (Node, Source, Sink, object)


def defines(node: Node, hook: str) -> bool:
    """Whether the class of `node`, and not only `Node`, `Source` or `Sink`, has `hook`."""
    return any(hook in vars(cls) for cls in type(node).__mro__ if cls not in _BASES)


def guarantee_of(node: Node) -> Guarantee | None:
    """The level that a source or sink declares or has by default; None for any other node."""
    if isinstance(node, Source):
        return node.guarantee or ("exactly_once" if defines(node, "snapshotState") else "none")
    if isinstance(node, Sink):
        return node.guarantee or ("exactly_once" if defines(node, "commit") else "at_least_once")
    return None
