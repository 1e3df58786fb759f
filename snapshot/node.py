"""Classes that users subclass or receive: `Node`, `Source`, `Sink`, `Context`, `END`.

Owns the names and contracts of the hooks. Must not know how hooks are called: the runtime calls those hooks that
`defines(node, hook)` finds in a class, with positional arguments.

Hooks of one incarnation of a subtask, in order::

    restoreState? > open > onStart? > events, one by one > onEnd per input > last snapshot > close
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal

from cutline.snapshot.ids import Subtask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from logging import LoggerAdapter
    from random import Random

    import pyarrow as pa

    from cutline.snapshot.state import ListState, MapState, NamedReduction, ReducingState, ValueState

#: Guarantee of a source or sink after a failure: its messages count any number of times, at least once, exactly once.
Guarantee = Literal["none", "at_least_once", "exactly_once"]

GUARANTEES: Final[tuple[Guarantee, ...]] = ("none", "at_least_once", "exactly_once")


class End(Enum):
    """Type of `END`. An enum, because an enum member keeps its identity through any pickling."""

    END = "end"


#: Return value of `Source.poll` when no message will ever follow.
END: Final = End.END


class Full(Enum):
    """Type of `FULL`."""

    FULL = "full"


#: Return value of `Node.snapshotDelta` when the node cannot say what changed. `snapshotState` is called next.
FULL: Final = Full.FULL


class Context(ABC):
    """Environment of a hook: data to read and actions to take. Valid only during the call, and on its thread."""

    #: Name of the run.
    run: str
    #: Number of the claim of the last rollback. Grows with each rollback.
    incarnation: int
    #: The subtask that this hook runs in.
    subtask: Subtask
    #: Number of subtasks of this node.
    parallelism: int
    #: Key groups of this subtask. A key belongs to one of 32,768 groups, and each group to one subtask of a node.
    keyGroups: range
    #: Names of the nodes with an edge into this node. In `Node.onEnd`, of those that are still open.
    inputs: tuple[str, ...]
    #: Names of the nodes to which this node has an edge.
    outputs: tuple[str, ...]
    #: Partitions of `Source.partitions` that this subtask reads; empty for a node without partitions.
    partitions: tuple[str, ...]
    #: Sender of the message, batch or end that is being handled, else None.
    sender: Subtask | None
    #: Key of the message or timer that is being handled, after a hash edge. None in `Node.onMessages` and `onBatch`.
    key: Any
    #: Keys of the messages in `Node.onMessages`, in their order, after a hash edge. None elsewhere.
    keys: list[Any] | None
    #: Seconds since the epoch. Never goes back, not even after a restore. Nodes need no other clock.
    now: float
    #: Random numbers whose state is saved in the snapshot. Nodes need no other source of chance.
    random: Random
    #: Logger whose records name run, incarnation and subtask.
    logger: LoggerAdapter[Any]

    @abstractmethod
    def send(self, message: Any, to: str | Subtask | None = None) -> None:
        """Send `message`. Never blocks. Order is kept per channel. Afterwards the message belongs to the receiver.

        Parameters
        ----------
        message : Any
            a value, or a `pyarrow.RecordBatch` whose rows are messages.
        to : str, Subtask or None
            None: along every outgoing edge. A node's name: along the edge to that node, by the edge's partitioning.
            A `Subtask`: to that subtask.

        Raises
        ------
        NodeError
            when the message or its key cannot be serialised or hashed, when there is no such edge, and in
            hooks that must not send (`snapshotState`, `close`).
        """

    def sendAll(self, messages: Iterable[Any], to: str | Subtask | None = None) -> None:
        """Send each of `messages`, in order. A long list or tuple to few subtasks costs about half of single sends.

        Parameters
        ----------
        messages : iterable
            messages to send. Only a list or a tuple is sent together; other iterables are sent one by one.
        to : str, Subtask or None
            as in `send`.

        Raises
        ------
        NodeError
            as `send`. Some messages before the refused message may not be sent then.
        """
        for message in messages:
            self.send(message, to)

    @abstractmethod
    def requestSnapshot(self) -> None:
        """Ask for a snapshot. This subtask records right after the handler that asked, unless policy refuses."""

    @abstractmethod
    def registerTimer(self, at: float) -> None:
        """Call `Node.onTimer` when `now` has reached `at`. Saved in the snapshot; per key after a hash edge.

        Parameters
        ----------
        at : float
            seconds since the epoch: an int or a float before the year 10000.

        Raises
        ------
        NodeError
            if `at` is no such time, because a run waits for its timers.
        """

    @abstractmethod
    def deleteTimer(self, at: float) -> None:
        """Remove the timer for `at`, and after a hash edge for the current key, if there is such a timer."""

    @abstractmethod
    def getValueState(self, name: str, *, ttl: float | None = None) -> ValueState:
        """Return the state `name` with one value for each key. Only `Node.open` may ask for a new state.

        The state holds the values of the snapshot already. The framework saves it in each snapshot.

        Parameters
        ----------
        name : str
            Name of the state in this node. Asking again by the same arguments returns the same object.
        ttl : float, optional
            Seconds of `now` after which a value that was not written again is absent. None: never.

        Raises
        ------
        NodeError
            if `open` has returned and the name is new, if the name belongs to another state, or if an argument is
            wrong.
        GraphError
            if the node has neither an input with a key nor parallelism 1. Nothing else decides which subtask has a key.
        RestoreRefused
            if the snapshot has a state of another kind under this name.
        """

    @abstractmethod
    def getListState(self, name: str, *, ttl: float | None = None) -> ListState:
        """Return the state `name` with a list for each key. Each item has its own time. As `getValueState`."""

    @abstractmethod
    def getMapState(self, name: str, *, ttl: float | None = None) -> MapState:
        """Return the state `name` with a dict for each key. Each entry has its own time. As `getValueState`."""

    @abstractmethod
    def getReducingState(
        self, name: str, plus: NamedReduction | Callable[[Any, Any], Any], *, ttl: float | None = None
    ) -> ReducingState:
        """Return the state `name` with one reduced value for each key. As `getValueState`.

        Parameters
        ----------
        name : str
            As in `getValueState`.
        plus : "sum", "min", "max", "count" or callable
            Reduces the value of the state and an added value, in this sequence, to the new value. A function must be
            associative, and need not commute.
        ttl : float, optional
            As in `getValueState`.
        """

    @abstractmethod
    def increment(self, metric: str, by: float = 1) -> None:
        """Add to a counter among the run's metrics. Not exactly-once, because replay counts again."""


class Node:
    """A part of a graph that holds state and exchanges messages. Every hook is optional.

    A subtask is a fresh unpickled copy of the instance that was added to the graph, at each start and
    rollback. All hooks of a subtask run on one thread, one at a time.

    Whatever a hook raises is this node's error, `SystemExit` and `KeyboardInterrupt` too. The run rolls back, and the
    reason names hook and subtask.
    """

    #: Whether `snapshotState`, `snapshotDelta`, `restoreState` and `applyDelta` return and take iterables of pairs
    #: (partition, bytes). A partition is a key group of the subtask (``cutline.keyGroup(key)``), or None for a part
    #: that every subtask has alike. Pairs of one partition keep their order.
    partitioned: bool = False

    #: Version of the states that the node stores: a whole number from 1. Raise it when the node reads its states
    #: differently, and define `migrateState` or `migrateKeyedState` for snapshots of lower versions.
    stateVersion: int = 1

    #: Version of the messages that the node takes: a whole number from 1. Raise it when `onMessage`, `onMessages` or
    #: `onBatch` read messages differently, and define `migrateMessage` for messages in flight of lower versions.
    messageVersion: int = 1

    #: Whether the node does the same again when it gets the same messages, batches, timers, ``context.now`` and
    #: ``context.random``. Modes that replay input need it, and check it at each replay.
    deterministic: bool = False

    #: Whether all parts of a partitioned state belong to no key. They lie under ``context.keyGroups.start`` then, or
    #: under None. So one subtask takes over the whole state when the parallelism changes, and with it the messages in
    #: flight of a forward edge, which would be refused else. Its `onEnd` may be called again, where only some of the
    #: subtasks from which it takes over had it.
    inherited: bool = False

    def restoreState(self, state: Any) -> None:
        """Restore the state that `snapshotState` returned.

        Called on a fresh instance before every other hook. Not called on a fresh run.
        """

    def open(self, context: Context) -> None:
        """Open files and connections. Called at every start, after the state is restored. May send."""

    def onStart(self, context: Context) -> None:
        """Begin. Called once a run, before the node acts on any message, marker or request; not after a restore.

        Called again, on the graph as submitted, when a run fails before its first published snapshot.
        """

    def onMessage(self, message: Any, context: Context) -> None:
        """Handle one message. A node without this hook gets rows in batches through `onBatch`."""

    def onMessages(self, messages: list[Any], context: Context) -> None:
        """Handle messages of one channel, in order. A node with this hook needs no `onMessage`, and gets no call of it.

        A snapshot lies before or after the whole list, as it does for one message. ``context.key`` is None, so a timer
        belongs to no key. The node may change the list.

        Parameters
        ----------
        messages : list
            What waits on the channel, as far as the turn of this subtask allows.
        context : Context
            `Context.keys` has the messages' keys after a hash edge.
        """

    def onBatch(self, batch: pa.RecordBatch, context: Context) -> None:
        """Handle one Arrow batch, whose rows are messages. A node without this hook gets each row as a dict."""

    def onTimer(self, at: float, context: Context) -> None:
        """Act on a timer for `at`. Timers fire in ascending order, between two messages."""

    def onEnd(self, context: Context) -> None:
        """Act on the end of the input ``context.sender.node``, when all its subtasks have ended. May send.

        ``context.inputs`` holds the inputs that are still open.
        """

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        """Return the whole state. Called between two events. Must neither block nor send.

        The returned state is serialised before the next event, so the node may change it afterwards. Bytes are kept by
        reference; all other values are copied. `timestamp` is seconds since the epoch, for information only.
        A failure aborts this snapshot, not the run.
        """

    def snapshotDelta(self, sinceSnapshotId: int) -> Any:
        """Return what has changed since a snapshot, instead of the whole state. A node without this hook has no deltas.

        Called as `snapshotState` is, with the same contract. `snapshotState` is called for the first snapshot of an
        instance without a restored state, and when the deltas outgrow the whole state.

        Parameters
        ----------
        sinceSnapshotId : int
            the last snapshot that this instance captured, published or not, or else the restored snapshot.

        Returns
        -------
        object
            a delta for `applyDelta`; None when nothing has changed; `FULL` when the node cannot say.
        """

    def applyDelta(self, delta: Any) -> None:
        """Apply a result of `snapshotDelta`. Called after `restoreState`, for each delta in the order of captures."""

    def migrateState(self, state: Any, fromVersion: int) -> Any:
        """Return `state` as this version of the node stores it. Called before `restoreState`, for older snapshots.

        Parameters
        ----------
        state : object
            What `snapshotState` of the older version returned. Deltas are migrated too, each as `applyDelta` takes it.
        fromVersion : int
            `stateVersion` of the node in the snapshot.
        """

    def migrateKeyedState(self, name: str, value: Any, fromVersion: int) -> Any:
        """Return a value of keyed state as this version of the node stores it. Called before `open`.

        Called once for each value of each state of an older snapshot, also of states that `open` does not ask for. The
        values of a list state are its items, those of a map state the values of its entries.

        Parameters
        ----------
        name : str
            Name of the state.
        value : object
            The value in the snapshot. The returned value must not be None.
        fromVersion : int
            `stateVersion` of the node in the snapshot.
        """

    def migrateMessage(self, message: Any, fromVersion: int) -> Any:
        """Return a message in flight as this version of the node takes it. Called before every other hook.

        Called once for each message of an older snapshot, on an instance of its own, so the result depends on the
        message alone. A row of a batch is a dict, and becomes a row of the edge's schema. After a hash edge the message
        keeps a key of its subtask, unless the parallelism changes.

        Parameters
        ----------
        message : object
            The message in the snapshot.
        fromVersion : int
            `messageVersion` of the node in the snapshot.
        """

    def onPublished(self, snapshotId: int) -> None:
        """Act on a published snapshot, for example acknowledge a queue. At least once, ascending, may skip ids."""

    def close(self) -> None:
        """Release the resources of `open`. Best effort: not called when the process is killed. A failure is logged."""


class Source(Node):
    """A node that brings messages into the graph. A source may have inputs too."""

    #: Declared level. None: exactly_once if the class has `snapshotState`, else none.
    guarantee: Guarantee | None = None

    def partitions(self) -> Sequence[str]:
        """Return the names of parts that can be read independently. Each subtask reads its ``context.partitions``.

        Called once a submission, in the driver's process, on a copy of the source. The names are distinct. Their order
        does not matter. A source with this hook keeps ``{partition: offset}`` as its state. After a restore each
        partition is read by the subtask that has its offset. A new name starts at its beginning. A name that is no
        longer listed is refused, unless the submission allows ``droppedState``.
        """
        return ()

    def poll(self, context: Context) -> float | End | None:
        """Send the available messages, a bounded number, without blocking.

        Returns
        -------
        float, None or END
            when to call again. None or 0: at once. A finite int or float: after so many seconds. `END`: never. Any
            other value is a NodeError, because the run would wait for ever, or by an inexact time.
        """
        raise NotImplementedError


class Sink(Node):
    """A node that brings results out of the graph, in two phases if the class has `commit`."""

    #: Declared level. None: exactly_once if the class has `commit`, else at_least_once.
    guarantee: Guarantee | None = None

    def prepareCommit(self, snapshotId: int) -> Any:
        """Make the messages received so far durable, but not visible. Called just before `snapshotState`.

        They must be durable on return. The snapshot keeps the returned value for `commit`. None: nothing to commit.
        """

    def commit(self, snapshotId: int, prepared: Any) -> None:
        """Make the output of `prepareCommit` visible.

        Called between messages, once a snapshot that holds `prepared` is published. Must be idempotent, because
        `commit` is called again after a restore, perhaps on another instance.
        """

    def discardUncommitted(self, context: Context) -> None:
        """Remove uncommitted output of incarnations below ``context.incarnation``, and nothing of this incarnation.

        Called at every start, after all subtasks of the run have committed the snapshot's prepared output again. Output
        of this incarnation must stay, because parallel subtasks may have prepared already.

        Subtask k removes the output of all old subtasks i with ``i % context.parallelism == k``, because some of them
        are gone where a run was restored with fewer subtasks.
        """


#: Hooks that read states of an older `Node.stateVersion`, and messages of an older `Node.messageVersion`.
MIGRATIONS: Final = ("migrateState", "migrateKeyedState", "migrateMessage")

_BASES = (Node, Source, Sink, object)


def keeps_totals(node: Node) -> bool:
    """Return whether a node is an aggregate whose totals are in a store: a `PersistentAggregate`."""
    return hasattr(node, "take_difference")


def defines(node: Node, hook: str) -> bool:
    """Return whether a class of the user's defines `hook`, and not only `Node`, `Source` or `Sink`."""
    return any(hook in vars(cls) for cls in type(node).__mro__ if cls not in _BASES)


def guarantee_of(node: Node) -> Guarantee | None:
    """Return the declared or default level of a source or sink, or None for any other node."""
    if isinstance(node, Source):
        return node.guarantee or ("exactly_once" if defines(node, "snapshotState") else "none")
    if isinstance(node, Sink):
        return node.guarantee or ("exactly_once" if defines(node, "commit") else "at_least_once")
    return None
