"""Capture the state part of a running subtask, and restore a subtask from a state part."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from cutline.snapshot.channel.frame import Buffer
from cutline.snapshot.error_text import describe
from cutline.snapshot.errors import SnapshotAborted
from cutline.snapshot.node import defines
from cutline.snapshot.replayable_source import ReplayableSource
from cutline.snapshot.steps.state_hash import rows_hash, value_hash
from cutline.snapshot.stored.certificate import OwnStateKind
from cutline.snapshot.stored.node_state import NodeState
from cutline.snapshot.subtask.assembly import SubtaskParts
from cutline.snapshot.subtask.end_of_stream import EndOfStream
from cutline.snapshot.subtask.timers import NO_KEY
from cutline.snapshot.subtask.two_phase import PreparedOutput
from cutline.snapshot.subtask.user_code import calling


class StateCapture:
    """Capture and restore the state of one subtask, without its channel state.

    Parameters
    ----------
    parts : SubtaskParts
    ends : EndOfStream
    prepared : PreparedOutput
    """

    def __init__(self, parts: SubtaskParts, ends: EndOfStream, prepared: PreparedOutput) -> None:
        self._parts = parts
        self._ends = ends
        self._prepared = prepared
        #: how the own state of the last capture can be divided, or None without own state
        self.own_state: OwnStateKind | None = None
        #: time of the last control event; `Context.now` stays behind it, because a marker is no event of the node
        self.step_time = 0.0

    def capture(
        self, snapshot_id: int, *, is_exhausted: bool, is_ended: bool, keeps_state: bool = True
    ) -> tuple[Buffer, ...]:
        """Return the encoded state part of the present moment. Without `keeps_state`, a replay makes the user's state.

        Raises
        ------
        SnapshotAborted
            if `snapshotState` fails, or if its result cannot be serialised or is too large. The run continues.
        """
        parts = self._parts
        try:
            users_state = self._users_state(snapshot_id) if keeps_state else None
            if parts.division is not None and users_state is not None:
                users_state = parts.division.state_at(snapshot_id, users_state)
            has_deltas = keeps_state and parts.own.has_deltas
            self.own_state = None if users_state is None and not has_deltas else parts.own.kind
            state = self._node_state(users_state, is_exhausted, is_ended, snapshot_id).encode(parts.codec)
            if keeps_state:
                parts.lost_state.warn()
        except BaseException as error:  # because user code may raise anything
            raise SnapshotAborted(f"snapshotState of {parts.subtask}: {describe(error)}") from error
        limit = parts.limits.state_bytes_max
        size = sum(memoryview(buffer).nbytes for buffer in state)
        if size > limit:
            raise SnapshotAborted(f"{parts.subtask}: a state of {size:,} bytes; state_bytes_max is {limit:,}")
        return state

    def hashes(self, snapshot_id: int) -> tuple[tuple[str, bytes], ...] | None:
        """Return (name, hash) of each part of the state, or None where the mode asks for no hashes (PROTOCOL 12.13).

        The offsets of a source have none, because the log has the slices that were read.

        Raises
        ------
        GraphError
            if the node has changed attributes that no `snapshotState` gives.
        NodeError
            if `snapshotState` fails.
        """
        parts = self._parts
        if parts.steps is None or not parts.steps.hashes_states:
            return None
        parts.lost_state.refuse()
        found = [(name, rows_hash(rows)) for name, rows in parts.keyed.contents()]
        found.append(("timers", rows_hash((at, None if key is NO_KEY else [key]) for at, key in parts.timers.each())))
        if defines(parts.node, "snapshotState") and not isinstance(parts.node, ReplayableSource):
            with calling("snapshotState", parts.subtask):
                own = self._silently(partial(parts.node.snapshotState, snapshot_id, parts.context.now))
                found.append(("snapshotState", rows_hash(own) if parts.node.partitioned else value_hash(own)))
        return tuple(found)

    def _users_state(self, snapshot_id: int) -> Any:
        own, context = self._parts.own, self._parts.context
        return self._silently(partial(own.capture, snapshot_id, max(context.now, self.step_time)))

    def _silently(self, capture: Callable[[], Any]) -> Any:
        context = self._parts.context
        context.silence("snapshotState")
        try:
            return capture()
        finally:
            context.unsilence()

    def _node_state(self, state: Any, is_exhausted: bool, is_ended: bool, snapshot_id: int) -> NodeState:
        context, division = self._parts.context, self._parts.division
        channels = [each.end.channel for each in self._parts.inputs if each.end.ended]
        ended = [each.source for each in channels if division is None or division.had_ended(each, snapshot_id)]
        return NodeState(
            state=state,
            random=context.random_state(),
            timers=self._parts.timers.state(),
            now=context.now,
            ended_inputs=[(source.node, source.index) for source in ended],
            exhausted=is_exhausted,
            ended=is_ended,
            uncommitted=self._prepared.values(),
            partitioners={edge.target: edge.partitioner.state() for edge in self._parts.edges},
            log_run=None if self._parts.steps is None else self._parts.steps.run,
        )

    def apply(self, kept: NodeState) -> None:
        """Restore a captured state, except the fields that the node and the machine restore themselves."""
        context = self._parts.context
        context.now = max(context.now, kept.now)
        context.restore_random(kept.random)
        self._parts.timers.restore(kept.timers)
        self._prepared.restore(kept.uncommitted)
        self._restore_ends(kept)
        restored = self._parts.restored
        partitioners = {restored.renames.get(target, target): state for target, state in kept.partitioners.items()}
        for edge in self._parts.edges:
            if edge.target in partitioners and edge.target not in restored.fresh_outputs:
                edge.partitioner.restore(partitioners[edge.target])

    def _restore_ends(self, kept: NodeState) -> None:
        names = self._parts.restored.renames
        ended = dict.fromkeys((names.get(node, node), index) for node, index in kept.ended_inputs)
        missing_ends, reshaped = self._parts.restored.missing_ends, self._parts.restored.reshaped
        for channel in self._parts.inputs:
            source = channel.end.channel.source
            if reshaped.get(channel.end.channel, (source.node, source.index) in ended):
                channel.end.ended = True
                self._ends.channel_ended(channel.end.channel)
        context = self._parts.context
        context.inputs = self._ends.open_inputs
        if self._ends.inner_ended:
            context.close_outputs(self._ends.inner_outputs)
        if kept.ended:
            for output in self._parts.outputs.values():
                output.ended = output.channel not in missing_ends
        for missing in missing_ends:
            self._parts.outputs[missing].send_end()
            if self._parts.observer is not None:
                self._parts.observer.end_sent(missing)
