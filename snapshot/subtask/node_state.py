"""What a subtask keeps across a restore besides channel state: the user's state and the framework's own.

Stored as one MessagePack map, so that a reader without the user's classes can still read all but ``state``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from snapshot.channel.extensions import NotSerialisable
from snapshot.channel.serialization import Codec
from snapshot.errors import RestoreRefused
from snapshot.stored.envelope import Buffer


@dataclass(frozen=True, slots=True)
class NodeState:
    """The state part of one subtask. Fields may be added with a default, never renamed: snapshots outlive code."""

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
        return codec.encode_state({field.name: getattr(self, field.name) for field in fields(self)})

    @classmethod
    def decode(cls, data: bytes | memoryview, codec: Codec) -> NodeState:
        """Read what `encode` made.

        Raises
        ------
        RestoreRefused
            if it cannot be read here: a class is missing or was renamed, or safe=True meets a pickle.
        """
        try:
            return cls(**codec.decode_state(data))
        except (NotSerialisable, TypeError) as error:
            raise RestoreRefused(f"a stored state cannot be read here: {error}") from error
