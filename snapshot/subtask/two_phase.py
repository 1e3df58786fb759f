"""Hold the output that a sink has prepared and has not yet committed (PROTOCOL 8)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from cutline.snapshot.channel.extensions import Encoded
from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.node import Node, Sink, defines
from cutline.snapshot.subtask.observer import Observer


class PreparedOutput:
    """Prepared output of one subtask. An abort discards nothing, because the next commit includes the output.

    The output is encoded when it is prepared, because the node may go on changing the object that it returned.
    """

    def __init__(self, node: Node, codec: Codec, observer: Observer | None = None) -> None:
        self._node = node
        self._codec = codec
        self._observer = observer
        self.is_two_phase = isinstance(node, Sink) and defines(node, "commit")
        #: [(snapshot_id, encoded result of prepareCommit)], in the order of the cuts. Cuts follow the order of ids,
        #: except for aborted snapshots, because a late marker of an aborted snapshot may come after a higher id's cut.
        #: None is kept too, because its position in the order is the position of the cut. Only restored output has
        #: several values of one id, and all restored output is committed at once.
        self._values: deque[tuple[int, bytes | None]] = deque()

    @property
    def ids(self) -> tuple[int, ...]:
        """Snapshots with uncommitted output, in the order of their cuts."""
        return tuple(prepared_id for prepared_id, _ in self.values())

    def values(self) -> list[tuple[int, Encoded]]:
        """Return the uncommitted output with its snapshot ids, for the state part."""
        return [(prepared_id, Encoded(value)) for prepared_id, value in self._values if value is not None]

    def restore(self, values: Iterable[tuple[int, Any]]) -> None:
        """Restore the output that a state part holds, decoded."""
        self._values = deque((prepared_id, self._codec.encode(value)) for prepared_id, value in values)

    def prepare(self, snapshot_id: int) -> None:
        """Call the sink's `prepareCommit`. Errors of the sink pass through.

        Raises
        ------
        NotSerialisable
            if the codec refuses the result.
        """
        assert isinstance(self._node, Sink)
        prepared = self._node.prepareCommit(snapshot_id)
        self._values.append((snapshot_id, None if prepared is None else self._codec.encode(prepared)))

    def commit_through(self, snapshot_id: int) -> None:
        """Commit, in order, the output prepared up to the cut of a published snapshot. The sink's errors pass through.

        Output prepared after that cut waits, whatever its id, because a restore would replay its messages.
        """
        prepared_ids = [prepared_id for prepared_id, _ in self._values]
        if snapshot_id not in prepared_ids:
            return  # a later snapshot or the restore has committed this output
        for _ in range(prepared_ids.index(snapshot_id) + 1):
            self._commit_first()

    def commit_all(self) -> None:
        """Commit all restored output, because the snapshot that holds the output is published."""
        while self._values:
            self._commit_first()

    def _commit_first(self) -> None:
        prepared_id, prepared = self._values[0]
        if prepared is not None:
            assert isinstance(self._node, Sink)
            self._node.commit(prepared_id, self._codec.decode(prepared))
            if self._observer is not None:
                self._observer.committed(prepared_id)
        self._values.popleft()
