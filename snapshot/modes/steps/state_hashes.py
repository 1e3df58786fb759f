"""Hash the state of a subtask at the cuts of its steps, so that a replay can be compared (PROTOCOL 12.13)."""

from __future__ import annotations

from cutline.snapshot.modes.steps.state_hash import rows_hash, value_hash
from cutline.snapshot.node import defines
from cutline.snapshot.replayable_source import ReplayableSource
from cutline.snapshot.subtask.core import SubtaskCore
from cutline.snapshot.subtask.timers import NO_KEY
from cutline.snapshot.subtask.user_code import calling

#: (name, hash) of each part of a subtask's state.
StateHashes = tuple[tuple[str, bytes], ...]


class StateHasher:
    """Hashes the state of one subtask.

    Parameters
    ----------
    core : SubtaskCore
    """

    def __init__(self, core: SubtaskCore) -> None:
        self._core = core

    def hashes(self, snapshot_id: int) -> StateHashes:
        """Return (name, hash) of each part of the state.

        The offsets of a source have none, because the log has the slices that were read.

        Raises
        ------
        GraphError
            if the node has changed attributes that no `snapshotState` gives.
        NodeError
            if `snapshotState` fails.
        """
        core = self._core
        if core.lost_state is not None:
            core.lost_state.refuse()
        found = [(name, rows_hash(rows)) for name, rows in core.keyed.contents()]
        found.append(("timers", rows_hash((at, None if key is NO_KEY else [key]) for at, key in core.timers.each())))
        if defines(core.node, "snapshotState") and not isinstance(core.node, ReplayableSource):
            with calling("snapshotState", core.subtask):
                with core.context.silenced("snapshotState"):
                    own = core.node.snapshotState(snapshot_id, core.context.now)
                found.append(("snapshotState", rows_hash(own) if core.node.partitioned else value_hash(own)))
        return tuple(found)
