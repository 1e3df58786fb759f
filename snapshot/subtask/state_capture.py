"""Capture the state part and the changed rows of a running subtask, and restore a subtask from a state part."""

from __future__ import annotations

from typing import Any, ClassVar

from cutline.snapshot.channel.frame import Buffer
from cutline.snapshot.error_text import describe
from cutline.snapshot.errors import SnapshotAborted
from cutline.snapshot.keyed.keyed_states import KeyedStates
from cutline.snapshot.plan.modes import CutContent
from cutline.snapshot.stored.certificate import SubtaskStatus
from cutline.snapshot.stored.node_state import NodeState
from cutline.snapshot.subtask.acts import Acts, Status
from cutline.snapshot.subtask.components import SubtaskComponents
from cutline.snapshot.subtask.context import SubtaskContext
from cutline.snapshot.subtask.strand import RowsCaptured, Strand, SubtaskCut
from cutline.snapshot.subtask.two_phase import PreparedOutput


class StateCapture:
    """Capture and restore the state of one subtask, without its channel state.

    Parameters
    ----------
    components : SubtaskComponents
    acts : Acts
    prepared : PreparedOutput
    """

    def __init__(self, components: SubtaskComponents, acts: Acts, prepared: PreparedOutput) -> None:
        self._core = components.core
        self._assigner = components.assigner
        self._log = components.log
        self._acts = acts
        self._prepared = prepared
        #: time of the last control event; `Context.now` stays before it, because a marker is no event of the node
        self.step_time = 0.0

    def capture(self, snapshot_id: int, *, keeps_state: bool) -> tuple[tuple[Buffer, ...], SubtaskStatus]:
        """Return the encoded state part of the present moment, and the status.

        Without `keeps_state`, a replay makes the user's state.

        Raises
        ------
        SnapshotAborted
            if `snapshotState` fails, or if its result cannot be serialised or is too large. The run continues.
        """
        core = self._core
        is_ended = self._acts.status is Status.ENDED and self._assigner.is_over(snapshot_id)
        is_exhausted = self._acts.exhausted and self._assigner.had_exhausted(snapshot_id)
        try:
            users_state = self._users_state(snapshot_id) if keeps_state else None
            has_own = users_state is not None or (keeps_state and core.own.has_deltas)
            state = self._node_state(users_state, is_exhausted, is_ended, snapshot_id).encode(core.codec)
            if keeps_state and core.lost_state is not None:
                core.lost_state.warn()
        except BaseException as error:  # because user code may raise anything
            raise SnapshotAborted(f"snapshotState of {core.subtask}: {describe(error)}") from error
        limit = core.environment.limits.state_bytes_max
        size = sum(memoryview(buffer).nbytes for buffer in state)
        if size > limit:
            raise SnapshotAborted(f"{core.subtask}: a state of {size:,} bytes; state_bytes_max is {limit:,}")
        status = self._acts.ends.status(
            is_ended,
            passive=is_exhausted,
            has_timers=core.timers.next_at() is not None,
            uncommitted=self._prepared.ids,
            partitions=core.restored.partitions,
            own_state=core.own.kind if has_own else None,
        )
        return state, status

    def _users_state(self, snapshot_id: int) -> Any:
        core = self._core
        with core.context.silenced("snapshotState"):
            state = core.own.capture(snapshot_id, max(core.context.now, self.step_time))
        return None if state is None else self._assigner.state_at(snapshot_id, state)

    def _node_state(self, state: Any, is_exhausted: bool, is_ended: bool, snapshot_id: int) -> NodeState:
        core, context = self._core, self._core.context
        channels = [each.end.channel for each in core.inputs if each.end.ended]
        ended = [each.source for each in channels if self._assigner.had_ended(each, snapshot_id)]
        return NodeState(
            state=state,
            random=context.random_state(),
            timers=core.timers.state(),
            now=context.now,
            ended_inputs=[(source.node, source.index) for source in ended],
            exhausted=is_exhausted,
            ended=is_ended,
            uncommitted=self._prepared.values(),
            partitioners={edge.target: edge.partitioner.state() for edge in core.edges},
            log_run=self._log.run,
        )

    def apply(self, kept: NodeState) -> None:
        """Restore a captured state, except the fields that the node and the machine restore themselves."""
        context = self._core.context
        context.now = max(context.now, kept.now)
        context.restore_random(kept.random)
        self._core.timers.restore(kept.timers)
        self._prepared.restore(kept.uncommitted)
        self._restore_ends(kept)
        restored = self._core.restored
        partitioners = {restored.renames.get(target, target): state for target, state in kept.partitioners.items()}
        for edge in self._core.edges:
            if edge.target in partitioners and edge.target not in restored.fresh_outputs:
                edge.partitioner.restore(partitioners[edge.target])

    def _restore_ends(self, kept: NodeState) -> None:
        names = self._core.restored.renames
        ended = dict.fromkeys((names.get(node, node), index) for node, index in kept.ended_inputs)
        missing_ends, reshaped = self._core.restored.missing_ends, self._core.restored.reshaped
        for channel in self._core.inputs:
            source = channel.end.channel.source
            if reshaped.get(channel.end.channel, (source.node, source.index) in ended):
                channel.end.ended = True
                self._acts.ends.channel_ended(channel.end.channel)
        context = self._core.context
        context.inputs = self._acts.ends.open_inputs
        if self._acts.ends.inner_ended:
            context.close_outputs(self._acts.ends.inner_outputs)
        if kept.ended:
            for output in self._core.outputs.values():
                output.ended = output.channel not in missing_ends
        for missing in missing_ends:
            self._core.outputs[missing].send_end()
            if self._core.observer is not None:
                self._core.observer.end_sent(missing)


class RowCapture:
    """Captures the strand of rows.

    Parameters
    ----------
    keyed : KeyedStates
    context : SubtaskContext
    """

    strand: ClassVar = Strand.ROWS

    def __init__(self, keyed: KeyedStates, context: SubtaskContext) -> None:
        self._keyed = keyed
        self._context = context

    def holds(self, content: CutContent) -> bool:
        """Return whether a cut with this content has rows."""
        return content.rows and self._keyed.is_keyed

    def capture(self, cut: SubtaskCut) -> RowsCaptured:
        """Return the rows that have changed, and the key groups of the subtask."""
        return RowsCaptured(self._context.keyGroups, self._keyed.capture(self._context.now))
