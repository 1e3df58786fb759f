"""Mutants of PROTOCOL 6.8 to 6.11: a restore with another parallelism."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from cutline.snapshot.channel import rerouting
from cutline.snapshot.channel.channel_receiver import ChannelReceiver
from cutline.snapshot.channel.partitioning import donors_of, groups_of
from cutline.snapshot.channel.rerouting import ChannelEnd, OldChannel, Rerouted
from cutline.snapshot.coordinator import recovery, rescaling
from cutline.snapshot.coordinator.control import RestoredSubtask
from cutline.snapshot.coordinator.reshaping import Reshaping, carries_end
from cutline.snapshot.ids import ChannelId, Subtask
from cutline.snapshot.keyed.segment import Segment
from cutline.snapshot.stored import keyed_state
from cutline.snapshot.stored.certificate import ListEntry, SubtaskRecord
from cutline.snapshot.stored.node_state import NodeState
from cutline.snapshot.subtask import inheritance, state_restore
from cutline.snapshot.subtask.wave_gates import WaveGates

Patch = pytest.MonkeyPatch

# ---------------------------------------------------------------- state


def clips_ignored(patch: Patch) -> None:
    segment = keyed_state._segment

    def mutant(entry: ListEntry, read: Any) -> Segment:
        lo, hi = entry.handle.groups or (0, 0)
        return segment(replace(entry, lo=lo, hi=hi), read)

    patch.setattr(keyed_state, "_segment", mutant)


def range_off_by_one(patch: Patch) -> None:
    def mutant(index: int, parallelism: int) -> range:
        own = groups_of(index, parallelism)
        return range(own.start, own.stop - 1)

    patch.setattr(rescaling, "groups_of", mutant)


def old_lineage_after_the_new(patch: Patch) -> None:
    clipped = rescaling._clipped

    def mutant(records: Sequence[SubtaskRecord], groups: range) -> list[ListEntry]:
        return clipped(records, groups)[::-1]

    patch.setattr(rescaling, "_clipped", mutant)


def prepared_output_dropped(patch: Patch) -> None:
    _change_uncommitted(patch, lambda pairs: [])


def last_prepared_output_wins(patch: Patch) -> None:
    _change_uncommitted(patch, lambda pairs: list(dict(pairs).items()))


def _change_uncommitted(patch: Patch, change: Any) -> None:
    united = inheritance.united

    def mutant(donors: Any, states: Sequence[NodeState]) -> NodeState:
        found = united(donors, states)
        return replace(found, uncommitted=change(found.uncommitted))

    patch.setattr(state_restore, "united", mutant)


def keyless_timers_given_to_every_taker(patch: Patch) -> None:
    united = inheritance.united

    def mutant(donors: Any, states: Sequence[NodeState]) -> NodeState:
        everyone = tuple(replace(donor, is_inherited=True) for donor in donors.donors)
        return replace(united(donors, states), timers=united(replace(donors, donors=everyone), states).timers)

    patch.setattr(state_restore, "united", mutant)


def offsets_of_donors_only(patch: Patch) -> None:
    """Partitions are dealt anew, so their offsets may be those of subtasks that are no donors."""
    inherited = rescaling.inherited

    def mutant(subtask: Subtask, parallelism: int, records: Sequence[SubtaskRecord], *rest: Any) -> RestoredSubtask:
        found = inherited(subtask, parallelism, records, *rest)
        donors = donors_of(subtask.index, len(records), parallelism)
        return replace(found, donor_parts=tuple(each for each in found.donor_parts if each.subtask.index in donors))

    patch.setattr(recovery, "inherited", mutant)


def offsets_by_position(patch: Patch) -> None:
    """The offset of a partition is that at its place in the list."""
    divided = inheritance.divided_offsets

    def mutant(subtask: Subtask, states: Sequence[Any], partitions: Sequence[str]) -> dict[str, Any]:
        names = [name for state in states for name in state]
        return dict(zip(partitions, divided(subtask, states, names).values(), strict=False))

    patch.setattr("cutline.snapshot.subtask.own_state.divided_offsets", mutant)


# ---------------------------------------------------------------- messages


def sent_without_the_end(patch: Patch) -> None:
    sent = Reshaping.sent
    patch.setattr(Reshaping, "sent", lambda self, m: sent(self, m) - 1)


def processed_begins_with_zero(patch: Patch) -> None:
    """The receiver begins with 0, and the sender, which would have to know R, with B."""
    reroute = rerouting.reroute

    def mutant(*arguments: Any) -> Rerouted:
        found = reroute(*arguments)
        frames: dict[ChannelId, Any] = {}
        for channel, of_channel in found.frames.items():
            start = found.processed[channel]
            frames[channel] = tuple(structs.replace(frame, first=frame.first - start) for frame in of_channel)
        return replace(found, frames=frames, processed=dict.fromkeys(found.processed, 0))

    patch.setattr("cutline.snapshot.worker.restored_parts.reroute", mutant)


def senders_part_first(patch: Patch) -> None:
    def backwards(handles: Sequence[Any], key: Any) -> list[Any]:
        return sorted(handles, key=key, reverse=True)

    patch.setattr(recovery, "sorted", backwards, raising=False)


def unequal_copies_taken(patch: Patch) -> None:
    patch.setattr(Reshaping, "_copies_refusal", lambda self: None)
    patch.setattr(rerouting, "_require_equal_copies", lambda *arguments: None)


def end_of_a_half_ended_node(patch: Patch) -> None:
    """A new sender has ended where any of the old ones had."""
    end = Reshaping._end

    def mutant(self: Reshaping, m: int, k: int) -> ChannelEnd:
        is_half = self._sources[0] != self._sources[1] and any(
            self.stored.ended(Subtask(self.old_edge.source, i)) for i in range(self._sources[0])
        )
        found = end(self, m, k)
        is_kept = found is ChannelEnd.OPEN and is_half and carries_end(self.topology, self.edge)
        return ChannelEnd.ENDING if is_kept else found

    patch.setattr(Reshaping, "_end", mutant)


def on_end_called_twice(patch: Patch) -> None:
    patch.setattr(Reshaping, "_end_refusal", lambda self: None)


# ---------------------------------------------------------------- waves


def no_gate(patch: Patch) -> None:
    patch.setattr(WaveGates, "may_take", lambda self, end: True)


def waves_forgotten_at_a_plain_restore(patch: Patch) -> None:
    with_channels = recovery._Plan._with_channels

    def mutant(self: recovery._Plan, restored: RestoredSubtask) -> RestoredSubtask:
        return replace(with_channels(self, restored), waves=())

    patch.setattr(recovery._Plan, "_with_channels", mutant)


def waves_forgotten_at_a_further_rescale(patch: Patch) -> None:
    plan = Reshaping.plan

    def mutant(self: Reshaping, k: int) -> rerouting.ReshapedEdge:
        found = plan(self, k)
        return replace(found, old=tuple(OldChannel(each.channel, each.heir) for each in found.old))

    patch.setattr(Reshaping, "plan", mutant)


def waves_not_stored(patch: Patch) -> None:
    stop = ChannelReceiver.stop_recording

    def mutant(self: ChannelReceiver, snapshot_id: int, written: int) -> Any:
        return replace(stop(self, snapshot_id, written), waves=())

    patch.setattr(ChannelReceiver, "stop_recording", mutant)
