"""Output that a sink has prepared and that is not known to be committed (PROTOCOL 8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from snapshot.node import Node, Sink, defines


class PreparedOutput:
    """What one subtask prepared, by snapshot. An aborted snapshot discards nothing: its output is committed with the next."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.is_two_phase = isinstance(node, Sink) and defines(node, "commit")
        #: {snapshot_id: what prepareCommit returned}, ascending
        self._values: dict[int, Any] = {}

    @property
    def ids(self) -> tuple[int, ...]:
        """Snapshots whose output waits here, ascending."""
        return tuple(sorted(self._values))

    def values(self) -> dict[int, Any]:
        """All that waits, for the snapshot."""
        return dict(self._values)

    def restore(self, values: Mapping[int, Any]) -> None:
        """Take over what `values` returned."""
        self._values = dict(values)

    def prepare(self, snapshot_id: int) -> None:
        """Have the sink prepare its output; whatever it raises passes through."""
        assert isinstance(self._node, Sink)
        prepared = self._node.prepareCommit(snapshot_id)
        if prepared is not None:
            self._values[snapshot_id] = prepared

    def commit_through(self, snapshot_id: int) -> None:
        """Commit, in order, what was prepared up to a published snapshot; whatever the sink raises passes through."""
        for prepared_id in self.ids:
            if prepared_id <= snapshot_id:
                assert isinstance(self._node, Sink)
                self._node.commit(prepared_id, self._values[prepared_id])
                del self._values[prepared_id]

    def commit_all(self) -> None:
        """After a restore: the snapshot that holds them is published, so all of them are to be committed."""
        if self._values:
            self.commit_through(max(self._values))
