"""Restore the state of one subtask: the state part, the node's own state, and the rows of keyed state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cutline.snapshot.error_text import headline
from cutline.snapshot.errors import RestoreRefused
from cutline.snapshot.keyed.migration import MigratedRows
from cutline.snapshot.keyed.segment import Segment
from cutline.snapshot.node import defines
from cutline.snapshot.plan.versions import unmigrated_text
from cutline.snapshot.stored.node_state import NodeState
from cutline.snapshot.subtask.core import SubtaskCore
from cutline.snapshot.subtask.inheritance import Donation, Donors, united
from cutline.snapshot.subtask.restored import Restored
from cutline.snapshot.subtask.user_code import calling, refusing


@dataclass(frozen=True, slots=True)
class ReadState:
    """The decoded state part of a subtask, or of its donors."""

    kept: NodeState
    #: what donors give; empty for a subtask that goes on with its own
    donations: tuple[Donation, ...] = ()


class StateRestore:
    """Restores one subtask.

    Parameters
    ----------
    core : SubtaskCore
    """

    def __init__(self, core: SubtaskCore) -> None:
        self._core = core

    def read(self, state: bytes | memoryview | Donors) -> ReadState:
        """Decode a state part, or unite those of donors.

        Raises
        ------
        RestoreRefused
            if it cannot be read here.
        """
        if not isinstance(state, Donors):
            return ReadState(self._decoded(state))
        states = [self._decoded(donor.state) for donor in state.donors]
        donations = [Donation(each.state, donor.own) for each, donor in zip(states, state.donors, strict=True)]
        self._core.context.seed_random(state.seed)
        return ReadState(united(state, states), tuple(donations))

    def _decoded(self, state: bytes | memoryview) -> NodeState:
        subtask = self._core.subtask
        try:
            return NodeState.decode(state, self._core.codec)
        except RestoreRefused as error:
            raise RestoreRefused(f"{subtask}: {error}") from error
        except BaseException as error:  # because unpickling runs the user's code, which may raise anything
            raise RestoreRefused(f"{subtask}: a stored state cannot be read here: {headline(error)}") from error

    def restore_own(self, read: ReadState, restored: Restored) -> None:
        """Let the node restore its own state.

        Raises
        ------
        NodeError
            if a hook fails.
        RestoreRefused
            if the node cannot take the state over.
        """
        own, donations = self._core.own, read.donations
        states = [each.state for each in donations] or [read.kept.state]
        has_changes = bool(restored.own) or any(each.changes for each in donations)
        own.check_version(has_state=has_changes or any(each is not None for each in states))
        with refusing(self._core.subtask), calling("restoreState", self._core.subtask):
            if isinstance(restored.state, Donors):
                own.inherit(donations, restored.snapshot_id)
            else:
                own.restore(read.kept.state, restored.own, restored.snapshot_id, needs_base=restored.needs_base)

    def restore_rows(self, restored: Restored) -> MigratedRows | None:
        """Restore the rows of keyed state. Return them if they were brought to the node's `stateVersion`."""
        core = self._core
        migrated = self._migrated_rows(restored.rows)
        core.keyed.restore(
            restored.rows if migrated is None else (migrated.segment,),
            core.context.now,
            is_rescaled=isinstance(restored.state, Donors),
            version=restored.version,
            lists_rows=restored.lists_rows,
        )
        return migrated

    def _migrated_rows(self, rows: Sequence[Segment]) -> MigratedRows | None:
        """Return rows of the node's `stateVersion`, or None where all rows have it."""
        core, node = self._core, self._core.node
        if core.restored.state_version >= node.stateVersion:
            return None  # without a look at the rows, because they may exceed memory
        older = core.keyed.older_version(rows)
        if older is None:
            return None
        if not defines(node, "migrateKeyedState"):
            text = unmigrated_text(str(core.subtask), older, node.stateVersion, "migrateKeyedState")
            raise RestoreRefused(text)
        with calling("migrateKeyedState", core.subtask):
            return core.keyed.migrated(rows, node.migrateKeyedState)
