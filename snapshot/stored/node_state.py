"""State of a subtask across a restore, besides channel state: the user's state and the framework's own.

Stored as one MessagePack map, so that a reader without the user's classes can still read all but ``state``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cutline.snapshot.channel.frame import Buffer
from cutline.snapshot.channel.pickles import NotSerialisable
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.errors import RestoreRefused
from cutline.snapshot.stored import keys
from cutline.snapshot.stored.keys import StoredMap


@dataclass(frozen=True, slots=True)
class NodeState:
    """The state part of one subtask. A new field is None by default, because snapshots outlive code."""

    #: return value of `Node.snapshotState`; None for a node without that method
    state: Any
    #: `Random.getstate()`, or None if the node used no random numbers
    random: Any
    #: [(seconds at which the timer fires, None)] of the timers without a key, in the order in which they fire
    timers: list[tuple[float, None]]
    #: `Context.now` at the cut, in seconds; never goes back
    now: float
    #: inputs whose end was processed: [(source node, source index)]
    ended_inputs: list[tuple[str, int]]
    #: the source returned END
    exhausted: bool
    #: the subtask has sent the end of its stream
    ended: bool
    #: [(snapshot_id, value of prepareCommit)], in the order of the cuts, of prepared output that is not known to be
    #: committed; pairs, because a subtask that takes over several others has several values of one id
    uncommitted: list[tuple[int, Any]]
    #: {target node: state of the edge's partitioner}
    partitioners: dict[str, Any]
    #: run that began the log of the subtask's steps; None without a log
    log_run: str | None = None

    def encode(self, codec: Codec) -> tuple[Buffer, ...]:
        """Encode the body of the state part, with large buffers beside the rest.

        Raises
        ------
        NotSerialisable
            if the codec refuses the user's state, a timer's key or a prepared value.
        """
        return codec.encode_state(_NODE_STATE.write(self))

    @staticmethod
    def decode(data: bytes | memoryview, codec: Codec) -> NodeState:
        """Decode the body that `encode` returned.

        Raises
        ------
        RestoreRefused
            if a class is missing or was renamed, or safe=True refuses a pickle.
        """
        try:
            return _NODE_STATE.read(codec.decode_state(data))
        except (NotSerialisable, TypeError, ValueError) as error:
            raise RestoreRefused(f"a stored state cannot be read here: {error}") from error


def _write_pairs(pairs: list[tuple[int, Any]]) -> list[list[Any]]:
    return [[snapshot_id, value] for snapshot_id, value in pairs]  # lists, because a codec pickles tuples


def _read_pairs(stored: Any) -> list[tuple[int, Any]]:
    return [(snapshot_id, value) for snapshot_id, value in stored]


_NODE_STATE = StoredMap(
    NodeState, keys.NODE_STATE, write={"uncommitted": _write_pairs}, read={"uncommitted": _read_pairs}
)
