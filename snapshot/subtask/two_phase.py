"""Output that a sink has prepared and that is not known to be committed (PROTOCOL 8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from snapshot.node import Node, Sink, defines
from snapshot.subtask.observer import Observer


class PreparedOutput:
    """What one subtask prepared, by snapshot. An abort discards nothing: its output is committed with the next."""

    def __init__(self, node: Node, observer: Observer | None = None) -> None:
        self._node = node
        self._observer = observer
        self.is_two_phase = isinstance(node, Sink) and defines(node, "commit")
        #: {snapshot_id: what prepareCommit returned}, in the order of the cuts. That is the order of ids, but for
        #: snapshots that are aborted: a late marker of one may come after the cut of a higher id.
        self._values: dict[int, Any] = {}

    @property
    def ids(self) -> tuple[int, ...]:
        """Snapshots whose output waits here, in the order of their cuts."""
        return tuple(self.values())

    def values(self) -> dict[int, Any]:
        """All that waits, for the snapshot."""
        return {prepared_id: value for prepared_id, value in self._values.items() if value is not None}

    def restore(self, values: Mapping[int, Any]) -> None:
        """Take over what `values` returned."""
        self._values = dict(values)

    def prepare(self, snapshot_id: int) -> None:
        """Have the sink prepare its output; whatever it raises passes through."""
        assert isinstance(self._node, Sink)
        # None is kept too: it says where, among what is prepared, the cut was.
        self._values[snapshot_id] = self._node.prepareCommit(snapshot_id)

    def commit_through(self, snapshot_id: int) -> None:
        """Commit, in order, what was prepared up to the cut of a published snapshot; the sink's errors pass through.

        What was prepared after that cut waits, whatever its id: a restore would replay the messages behind it.
        """
        if snapshot_id not in self._values:
            return  # committed with a later one, or by the restore
        for prepared_id in list(self._values):
            self._commit(prepared_id)
            if prepared_id == snapshot_id:
                return

    def commit_all(self) -> None:
        """After a restore: the snapshot that holds them is published, so all of them are to be committed."""
        for prepared_id in list(self._values):
            self._commit(prepared_id)

    def _commit(self, prepared_id: int) -> None:
        prepared = self._values[prepared_id]
        if prepared is not None:
            assert isinstance(self._node, Sink)
            self._node.commit(prepared_id, prepared)
            if self._observer is not None:
                self._observer.committed(prepared_id)
        del self._values[prepared_id]
