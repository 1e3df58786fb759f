"""Observe the nodes of a simulated run: their values at their cuts, and after their restore.

Only for failed runs, because each cut costs a copy of the node.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import cloudpickle

from cutline.snapshot.channel.frame import Buffer
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.ids import Subtask
from cutline.snapshot.node import Node, Source, defines
from cutline.snapshot.stored.node_state import NodeState
from cutline.snapshot.subtask.observer import Inputs, Observer, Outputs
from cutline.snapshot.testing.diagnosis.node_attributes import NodeAttributes, names_in_hooks, node_attributes
from cutline.snapshot.testing.simulation.world import Mutation


@dataclass(frozen=True, slots=True)
class Recorded:
    """The observation of a subtask at a cut."""

    node: NodeAttributes
    #: the state that `snapshotState` returned, packed
    state: bytes
    #: values of a copy that adopted this state at once; empty if the copy raised, because it was not opened
    copy: NodeAttributes
    #: the state that `snapshotState` of this copy returned, packed; None if the copy raised
    again: bytes | None


@dataclass(slots=True)
class WatchedSubtask:
    """The observations of a subtask in one incarnation."""

    subtask: Subtask
    incarnation: int
    #: values of the node after its constructor
    made: NodeAttributes
    #: names that `snapshotState` and `restoreState` use
    snapshot_names: list[str]
    is_source: bool
    #: values after the restore, or the fresh start, and `open`; None: the node failed before
    begun: NodeAttributes | None = None
    #: number of messages that `open` sent
    sent_in_open: int = 0
    #: {snapshot_id: its cut}
    cuts: dict[int, Recorded] = field(default_factory=dict)


class Probe:
    """The observations of all nodes of one run."""

    def __init__(self) -> None:
        self.subtasks: dict[tuple[int, Subtask], WatchedSubtask] = {}

    @property
    def mutation(self) -> Mutation:
        """The mutation with which `Simulator` lets its nodes be observed."""
        return Mutation(observer=lambda subtask, incarnation, codec: _ProbedSubtask(self, subtask, incarnation, codec))

    def first(self, subtask: Subtask) -> WatchedSubtask | None:
        """Return the first incarnation of a subtask, or None."""
        return next((watched for (_, each), watched in self.subtasks.items() if each == subtask), None)


class _ProbedSubtask(Observer):
    """Records the values of one node at its cuts and after its restore."""

    def __init__(self, probe: Probe, subtask: Subtask, incarnation: int, codec: Codec) -> None:
        self._probe = probe
        self._subtask = subtask
        self._incarnation = incarnation
        self._codec = codec

    def attached(self, node: Node, inputs: Inputs, outputs: Outputs) -> None:
        self._node, self._outputs = node, outputs
        self._as_made = cloudpickle.dumps(node)
        self._watched = WatchedSubtask(
            self._subtask,
            self._incarnation,
            node_attributes(node, self._codec),
            names_in_hooks(node),
            isinstance(node, Source),
        )
        self._probe.subtasks[self._incarnation, self._subtask] = self._watched

    def hook_begins(self, hook: str) -> None:
        if hook == "open":
            self._watched.sent_in_open -= self._sent_count()

    def hook_ended(self, hook: str) -> None:
        if hook == "open":
            self._watched.sent_in_open += self._sent_count()
            # Here, not in `restored`, because a sink commits restored output in between, which may change attributes.
            self._watched.begun = node_attributes(self._node, self._codec)

    def _sent_count(self) -> int:
        return sum(end.sent for end in self._outputs.values())

    def captured(self, snapshot_id: int, state: Sequence[Buffer]) -> None:
        joined = b"".join(state)
        copy, again = _restored_copy(self._as_made, joined, self._codec, snapshot_id)
        packed = self._codec.encode(NodeState.decode(joined, self._codec).state)
        self._watched.cuts[snapshot_id] = Recorded(node_attributes(self._node, self._codec), packed, copy, again)


def _restored_copy(as_made: bytes, state: bytes, codec: Codec, snapshot_id: int) -> tuple[NodeAttributes, bytes | None]:
    """Return a fresh node's values after it adopted the state, and the state that it returns."""
    kept = NodeState.decode(state, codec)
    try:
        node: Any = pickle.loads(as_made)  # noqa: S301  # made above
        assert isinstance(node, Node)
        if defines(node, "restoreState"):
            node.restoreState(kept.state)
        again = codec.encode(node.snapshotState(snapshot_id, kept.now))
    except Exception:  # noqa: BLE001  # the user's hooks may need what `open` makes, and raise anything
        return {}, None
    return node_attributes(node, codec), again
