"""Unite the states of several subtasks for one that takes over from them (PROTOCOL 6.9, donors).

Owns what becomes of each field of a state part where the parallelism of a node has changed. Must not know who takes
over from whom.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cutline.snapshot.error_text import shown
from cutline.snapshot.errors import RestoreRefused
from cutline.snapshot.ids import Subtask
from cutline.snapshot.stored.node_state import NodeState

#: A partition, or None for all subtasks, and a part of its state.
Pair = tuple[int | None, bytes]


@dataclass(frozen=True, slots=True)
class Donor:
    """What one subtask of the snapshot gives."""

    subtask: Subtask
    #: body of its state part
    state: memoryview
    #: (is whole, encoded change) of its own state, oldest first
    own: tuple[tuple[bool, memoryview], ...]
    #: whether the taker is its heir, and so takes what belongs to no key
    is_inherited: bool


@dataclass(frozen=True, slots=True)
class Donors:
    """All that a subtask takes over. See `snapshot.coordinator.control.Inheritance`."""

    donors: tuple[Donor, ...]
    is_ended: bool
    is_exhausted: bool
    seed: str


@dataclass(frozen=True, slots=True)
class Donation:
    """Own state of one donor: what its state part holds, and its list of changes."""

    state: Any
    changes: tuple[tuple[bool, memoryview], ...]


def united(donors: Donors, states: Sequence[NodeState]) -> NodeState:
    """Return the state of a taker, without the own state of the node.

    Parameters
    ----------
    donors : Donors
    states : sequence of NodeState
        The decoded state parts, in the order of donors.
    """
    inherited = [state for donor, state in zip(donors.donors, states, strict=True) if donor.is_inherited]
    return NodeState(
        state=None,
        random=None,
        timers=[timer for state in inherited for timer in state.timers],
        now=max((state.now for state in states), default=0.0),
        ended_inputs=[],  # all inputs are reshaped, and restored with their ends
        exhausted=donors.is_exhausted,
        ended=donors.is_ended,
        uncommitted=[pair for state in inherited for pair in state.uncommitted],
        partitioners={},
    )


def divided_pairs(subtask: Subtask, states: Sequence[Any], groups: range) -> list[Pair]:
    """Return the pairs of a partitioned state that belong to key groups of a taker, and the part of all subtasks once.

    Raises
    ------
    RestoreRefused
        if the parts for all subtasks differ.
    """
    for state in states:
        if state is not None and not _are_pairs(state):
            raise RestoreRefused(
                f"{subtask}: its state is divided by pairs of (partition, bytes) now, but the snapshot holds "
                f"{shown(state)}. Submit the node with the parallelism of the snapshot"
            )
    common = [_common(state or ()) for state in states]
    _require_equal(subtask, common)
    pairs: list[Pair] = [(None, body) for parts in common[:1] for body in parts]
    for state in states:
        pairs += [(partition, body) for partition, body in state or () if partition is not None and partition in groups]
    return pairs


def divided_deltas(subtask: Subtask, deltas: Sequence[Sequence[Sequence[Pair]]], groups: range) -> list[list[Pair]]:
    """Return the deltas of all donors, of each delta the pairs of a taker, and those of all subtasks once.

    Raises
    ------
    RestoreRefused
        if the parts for all subtasks differ.
    """
    _require_equal(subtask, [[parts for delta in of_donor if (parts := _common(delta))] for of_donor in deltas])
    divided = [
        [pair for pair in delta if (not donor if pair[0] is None else pair[0] in groups)]
        for donor, of_donor in enumerate(deltas)
        for delta in of_donor
    ]
    return [delta for delta in divided if delta]


def _common(pairs: Sequence[Pair]) -> list[bytes]:
    return [body for partition, body in pairs if partition is None]


def _require_equal(subtask: Subtask, common: Sequence[object]) -> None:
    if any(parts != common[0] for parts in common):
        raise RestoreRefused(
            f"{subtask}: takes over from subtasks whose parts of the partition None differ, so that none is that of "
            "all. Keep such state under a key group, or submit the node with the parallelism of the snapshot"
        )


def _are_pairs(state: Any) -> bool:
    return isinstance(state, list) and all(type(pair) is tuple and len(pair) == 2 for pair in state)


def divided_offsets(subtask: Subtask, states: Sequence[Any], partitions: Sequence[str]) -> dict[str, Any]:
    """Return the offsets of the partitions that a taker of a source reads.

    Raises
    ------
    RestoreRefused
        if a state is no dict of partitions.
    """
    offsets: dict[str, Any] = {}
    for state in states:
        if not isinstance(state, Mapping):
            raise RestoreRefused(
                f"{subtask}: the state of a source with partitions is {{partition: offset}}, but the snapshot holds "
                f"{shown(state)}. Submit the source with the parallelism of the snapshot"
            )
        offsets.update(state)
    return {name: offsets[name] for name in partitions if name in offsets}
