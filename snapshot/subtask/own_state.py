"""Capture and restore the state that a node keeps itself: whole, or as deltas since the last capture.

A delta's base is the last capture of this instance, published or not. So each delta is stored, also where its snapshot
is aborted (PROTOCOL 10.2). The whole state is captured again when the deltas outgrow it, because a restore reads all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

from cutline.snapshot.channel.serialization import Codec
from cutline.snapshot.error_text import describe, shown
from cutline.snapshot.errors import NodeError, RestoreRefused
from cutline.snapshot.ids import Subtask
from cutline.snapshot.node import FULL, Node, defines
from cutline.snapshot.plan.versions import unmigrated_text
from cutline.snapshot.stored.certificate import OwnStateKind
from cutline.snapshot.stored.own_changes import OwnChange
from cutline.snapshot.subtask.inheritance import Donation, divided_deltas, divided_offsets, divided_pairs

#: Deltas since the last whole state are at most this many times its bytes. A restore then reads at most three times
#: the state, and half of what is written at most is whole states.
_FULL_FACTOR = 2

#: Bytes of deltas that may always gather, because a small whole state costs less than asking the node for one.
_DELTA_BYTES_MIN = 4096


@runtime_checkable
class UnitesStates(Protocol):
    """A node of ours whose own state says nothing of single keys."""

    def united_state(self, states: list[Any]) -> Any:
        """Return the state of a subtask that takes over from several. Raise RestoreRefused where they contradict."""


class OwnState:
    """The own state of one subtask's node.

    Parameters
    ----------
    node : Node
    subtask : Subtask
    codec : Codec
    groups : range
        Key groups of the subtask.
    partitions : tuple of str or None
        Names of the partitions that a source reads, or None for a node without partitions.
    from_version : int
        `Node.stateVersion` of the node in the snapshot.
    full_factor : float
        Bytes of deltas, in multiples of the last whole state, from which the next capture is whole.
    """

    def __init__(
        self,
        node: Node,
        subtask: Subtask,
        codec: Codec,
        groups: range,
        partitions: tuple[str, ...] | None = None,
        from_version: int = 1,
        full_factor: float = _FULL_FACTOR,
    ) -> None:
        self._gives_deltas = defines(node, "snapshotDelta")
        #: whether captures are changes of a list, also where only the snapshot has one, which a whole state then ends
        self.has_deltas = self._gives_deltas
        self._node = node
        self._subtask = subtask
        self._codec = codec
        self._groups = groups
        self._partitions = partitions
        self._from_version = from_version
        self._full_factor = full_factor
        #: the last capture of this instance, or the restored snapshot; 0 before the first
        self._since = 0
        #: whether the next capture must be whole, because a delta has no base
        self._needs_whole = True
        self._whole_bytes = 0
        self._delta_bytes = 0
        self._taken: OwnChange | None = None

    def take_change(self) -> OwnChange | None:
        """Return the change of the last capture, once. None without deltas, and where nothing has changed."""
        taken, self._taken = self._taken, None
        return taken

    def capture(self, snapshot_id: int, timestamp: float) -> Any:
        """Call the node's hook. Return the state for the STATE part, or None where `take_change` returns the change.

        Errors of the hook and of the codec pass through. The next capture is whole then, because a delta may be lost.
        """
        if not self.has_deltas:
            return self._checked("snapshotState", self._node.snapshotState(snapshot_id, timestamp))
        since, needs_whole = self._since, self._needs_whole
        self._since, self._needs_whole = snapshot_id, True  # until the change is encoded
        needs_whole = needs_whole or self._is_outgrown or not self._gives_deltas
        found: Any = FULL if needs_whole else self._node.snapshotDelta(since)
        is_whole = found is FULL
        if is_whole:
            found = self._checked("snapshotState", self._node.snapshotState(snapshot_id, timestamp))
        elif found is not None:
            found = self._checked("snapshotDelta", found)
        if is_whole or found is not None:
            change = OwnChange(is_whole, self._codec.encode_state({"state": found}))
            self._count(change.is_whole, change.size)
            self._taken = change
        self._needs_whole = False
        return None

    def restore(
        self, state: Any, changes: Sequence[tuple[bool, memoryview]], snapshot_id: int, *, needs_base: bool
    ) -> None:
        """Call `restoreState`, and `applyDelta` for each delta. Errors of the hooks pass through.

        Parameters
        ----------
        state : object
            The state in the STATE part.
        changes : sequence of (bool, memoryview)
            (is whole, encoded change), oldest first; empty for a node without deltas.
        snapshot_id : int
            The restored snapshot.
        needs_base : bool
            Whether the next capture is whole, as in a fork, because a run lists only its own files.

        Raises
        ------
        RestoreRefused
            if the snapshot holds deltas, and the node has no `applyDelta`.
        """
        self._since = snapshot_id
        changes = _since_whole(changes)
        if changes:
            self.has_deltas, self._needs_whole = True, needs_base
            for is_whole, body in changes:
                self._count(is_whole, body.nbytes)
        self._apply(*self._decoded(state, changes))

    def inherit(self, donations: Sequence[Donation], snapshot_id: int) -> None:
        """Call `restoreState`, and `applyDelta` for each delta, with what several subtasks give. See `restore`.

        The next capture is whole, because no list of one subtask goes on.

        Raises
        ------
        RestoreRefused
            if the states cannot be divided, or their parts for all subtasks differ.
        """
        self._since = snapshot_id
        decoded = [self._decoded(each.state, _since_whole(each.changes)) for each in donations]
        states = [state for state, _ in decoded if state is not None]
        deltas = [delta for _, of_donor in decoded for delta in of_donor]
        if self._node.partitioned:
            united: Any = divided_pairs(self._subtask, [pairs for pairs, _ in decoded], self._groups)
            deltas = divided_deltas(self._subtask, [of_donor for _, of_donor in decoded], self._groups)
        elif not states and not deltas:
            united = None
        elif isinstance(self._node, UnitesStates) and not deltas:
            united = self._node.united_state(states)
        elif self._partitions is not None and not deltas:
            united = divided_offsets(self._subtask, states, self._partitions)
        else:
            raise RestoreRefused(
                f"{self._subtask}: its node had another parallelism in the snapshot, and keeps a state of its own that "
                "nobody can divide. Keep it as keyed state (context.getValueState), or by partitions "
                "(partitioned = True); or submit it with the parallelism of the snapshot"
            )
        self._apply(united, deltas)

    def _decoded(self, state: Any, changes: Sequence[tuple[bool, memoryview]]) -> tuple[Any, list[Any]]:
        """Return the whole state, and the deltas after it."""
        if not changes:
            return state, []
        whole, *deltas = [self._codec.decode_state(body)["state"] for _, body in changes]
        return whole, deltas

    def check_version(self, *, has_state: bool) -> None:
        """Refuse an older state that the node cannot migrate.

        The coordinator cannot refuse a state that a snapshot lists from an earlier one, because its record does not say
        whether the node has own state (PROTOCOL 12.11, state in some snapshots).
        """
        node, before = self._node, self._from_version
        if has_state and before < node.stateVersion and not defines(node, "migrateState"):
            raise RestoreRefused(unmigrated_text(str(self._subtask), before, node.stateVersion, "migrateState"))

    def _migrated(self, state: Any) -> Any:
        try:
            return self._node.migrateState(state, self._from_version)
        except BaseException as error:  # because user code may raise anything
            raise NodeError(f"migrateState from version {self._from_version}: {describe(error)}") from error

    def _apply(self, state: Any, deltas: Sequence[Any]) -> None:
        if self._from_version < self._node.stateVersion and (state is not None or deltas):
            state = None if state is None else self._migrated(state)
            deltas = list(map(self._migrated, deltas))
            self._needs_whole = True  # because a delta of this version has no base of this version
        if defines(self._node, "restoreState"):
            self._node.restoreState(state)
        if deltas and not defines(self._node, "applyDelta"):
            raise RestoreRefused(
                f"{self._subtask}: the snapshot holds its state and {len(deltas)} deltas, but the node has no "
                "applyDelta; restore with the class that has it, or under another name"
            )
        for delta in deltas:
            self._node.applyDelta(delta)

    @property
    def kind(self) -> OwnStateKind:
        """How a state of the node can be divided."""
        if self._node.partitioned:
            return OwnStateKind.INHERITED if self._node.inherited else OwnStateKind.PARTITIONED
        if self.has_deltas:
            return OwnStateKind.WHOLE
        if isinstance(self._node, UnitesStates):
            return OwnStateKind.UNITED
        return OwnStateKind.WHOLE if self._partitions is None else OwnStateKind.OFFSETS

    @property
    def _is_outgrown(self) -> bool:
        return self._delta_bytes > max(_DELTA_BYTES_MIN, self._full_factor * self._whole_bytes)

    def _count(self, is_whole: bool, size: int) -> None:
        if is_whole:
            self._whole_bytes, self._delta_bytes = size, 0
        else:
            self._delta_bytes += size

    def _checked(self, hook: str, state: Any) -> Any:
        """Return the pairs of a partitioned node as a list. Raise TypeError or ValueError for anything else."""
        if not self._node.partitioned:
            return state
        if not isinstance(state, Iterable):
            raise TypeError(f"{hook} of a partitioned node returns pairs of (partition, bytes), not {shown(state)}")
        owned = self._groups[:1] if self._node.inherited else self._groups
        pairs = []
        for pair in state:
            if type(pair) is not tuple or len(pair) != 2 or type(pair[1]) is not bytes:
                raise TypeError(f"{hook} of a partitioned node returned {shown(pair)}, which is no (partition, bytes)")
            partition = pair[0]
            if partition is not None and (type(partition) is not int or partition not in owned):
                raise ValueError(
                    f"{hook} returned the partition {shown(partition)}; partitions of {self._subtask} are None and the "
                    f"key groups {owned.start} to {owned.stop - 1}"
                )
            pairs.append(pair)
        return pairs


def _since_whole(changes: Sequence[tuple[bool, memoryview]]) -> Sequence[tuple[bool, memoryview]]:
    """Return the last whole state, and the deltas after it."""
    whole = [number for number, (is_whole, _) in enumerate(changes) if is_whole]
    return changes[whole[-1] :] if whole else changes
