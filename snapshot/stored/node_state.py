"""The state of a subtask besides channel state: the user's state and the framework's own.

Stored as one MessagePack map, so that a reader without the user's classes can still read all but ``state``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from snapshot.channel.extensions import NotSerialisable
from snapshot.channel.frame import Buffer
from snapshot.channel.serialization import Codec
from snapshot.errors import RestoreRefused
from snapshot.stored import keys
from snapshot.stored.keys import StoredMap


@dataclass(frozen=True, slots=True)
class NodeState:
    """The state part of one subtask. A field may be added with a default, because snapshots outlive code."""

    #: what `Node.snapshotState` returned; None for a node without it
    state: Any
    #: `Random.getstate()`, or None where chance was never used
    random: Any
    #: [(at, key)], in the order in which they fire
    timers: list[tuple[float, Any]]
    #: `Context.now` at the cut; it never goes back
    now: float
    #: inputs whose end was processed: [(source node, source index)]
    ended_inputs: list[tuple[str, int]]
    #: a source that returned END
    exhausted: bool
    #: the end of stream was sent
    ended: bool
    #: prepared output that is not known to be committed: {snapshot_id: value of prepareCommit}
    uncommitted: dict[int, Any]
    #: {target node: state of the edge's partitioner}
    partitioners: dict[str, Any]

    def encode(self, codec: Codec) -> tuple[Buffer, ...]:
        """Serialise, large buffers beside the rest: together they are the body of the state part.

        Raises
        ------
        NotSerialisable
            if the user's state, a timer's key or a prepared value cannot be.
        """
        return codec.encode_state(_NODE_STATE.write(self))

    @staticmethod
    def decode(data: bytes | memoryview, codec: Codec) -> NodeState:
        """Read what `encode` made.

        Raises
        ------
        RestoreRefused
            if it cannot be read here: a class is missing or was renamed, or safe=True meets a pickle.
        """
        try:
            return _NODE_STATE.read(codec.decode_state(data))
        except (NotSerialisable, TypeError) as error:
            raise RestoreRefused(f"a stored state cannot be read here: {error}") from error


_NODE_STATE = StoredMap(NodeState, keys.NODE_STATE)
