"""Watches the nodes of a simulated run: what they keep at their cuts, and after they are restored.

Given to `Simulator` as its machines, which do the same as without it. Only for runs that failed: it costs a copy of
every node at every cut.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from snapshot.channel.serialization import Codec
from snapshot.ids import Subtask
from snapshot.node import Node, defines
from snapshot.stored.envelope import Buffer
from snapshot.subtask.assembly import SubtaskParts
from snapshot.subtask.node_state import NodeState
from snapshot.subtask.reports import Standing
from snapshot.testing.simulation.host import SimulatedMachine
from snapshot.testing.simulation.world import Mutation
from snapshot.testing.suspecting.portrait import Portrait, names_in_hooks, portrait_of


@dataclass(frozen=True, slots=True)
class Recorded:
    """A subtask at a cut."""

    node: Portrait
    #: what `snapshotState` returned, packed
    state: bytes
    #: a copy to which this state was restored at once; empty: a copy that was not opened cannot do that
    copy: Portrait
    #: what `snapshotState` of this copy returned, packed
    again: bytes | None


@dataclass(slots=True)
class WatchedLife:
    """A subtask in one incarnation."""

    subtask: Subtask
    incarnation: int
    #: as the constructor made the node
    made: Portrait
    #: names that `snapshotState` and `restoreState` use
    snapshot_names: list[str]
    has_snapshot_state: bool
    is_source: bool
    #: when it was restored, or begun afresh, and opened; None: it failed before
    begun: Portrait | None = None
    #: messages that `open` sent
    sent_in_open: int = 0
    #: {snapshot_id: its cut}
    cuts: dict[int, Recorded] = field(default_factory=dict)


class Probe:
    """What was seen of all nodes of one run."""

    def __init__(self) -> None:
        self.lives: dict[tuple[int, Subtask], WatchedLife] = {}

    @property
    def mutation(self) -> Mutation:
        """To be given to `Simulator`."""
        return Mutation(machine=lambda parts: _ProbedMachine(parts, self))

    def first(self, subtask: Subtask) -> WatchedLife | None:
        """The first life of a subtask."""
        return next((life for (_, each), life in self.lives.items() if each == subtask), None)


class _ProbedMachine(SimulatedMachine):
    """The machine itself, and what its node keeps."""

    def __init__(self, parts: SubtaskParts, probe: Probe) -> None:
        super().__init__(parts)
        self._life = WatchedLife(
            self.subtask,
            parts.context.incarnation,
            portrait_of(parts.node, parts.codec),
            names_in_hooks(parts.node),
            defines(parts.node, "snapshotState"),
            parts.is_source,
        )
        self._as_made = parts.codec.encode(parts.node)
        probe.lives[self._life.incarnation, self.subtask] = self._life

    def restore(self, state: bytes | memoryview | None, now: float) -> None:
        super().restore(state, now)
        self._life.begun = portrait_of(self.node, self._codec)

    def _open(self) -> None:
        before = self._sent_count()
        super()._open()
        self._life.sent_in_open = self._sent_count() - before

    def _sent_count(self) -> int:
        return sum(end.sent for end in self.outputs.values())

    def _capture(self, snapshot_id: int) -> tuple[tuple[Buffer, ...], Standing]:
        captured = super()._capture(snapshot_id)
        state = b"".join(captured[0])
        copy, again = _restored_copy(self._as_made, state, self._codec, snapshot_id)
        packed = self._codec.encode(NodeState.decode(state, self._codec).state)
        self._life.cuts[snapshot_id] = Recorded(portrait_of(self.node, self._codec), packed, copy, again)
        return captured


def _restored_copy(as_made: bytes, state: bytes, codec: Codec, snapshot_id: int) -> tuple[Portrait, bytes | None]:
    """A fresh node that took the state over, and the state that it gives."""
    kept = NodeState.decode(state, codec)
    try:
        node: Any = codec.decode(as_made)
        assert isinstance(node, Node)
        if defines(node, "restoreState"):
            node.restoreState(kept.state)
        again = codec.encode(node.snapshotState(snapshot_id, kept.now))
    except Exception:  # noqa: BLE001  # the user's hooks may need what `open` makes, and raise anything
        return {}, None
    return portrait_of(node, codec), again
