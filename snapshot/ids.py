"""Identifiers of subtasks, channels and snapshots. Small, ordered, hashable, without behaviour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

#: Number of ids that one claim may give out (PROTOCOL 3.2). Claim *c* owns [c * N, (c + 1) * N), so no id is used
#: twice, even if several coordinators believe that they own the run. Enough for a snapshot a second for 11 days.
SNAPSHOT_IDS_PER_CLAIM = 1_000_000


@dataclass(frozen=True, order=True, slots=True)
class Subtask:
    """A parallel instance of a node: ``Subtask("count", 1)`` is the second of node *count*."""

    node: str
    index: int = 0

    def __str__(self) -> str:
        return f"{self.node}[{self.index}]"


class ChannelId(NamedTuple):
    """A directed FIFO link between two subtasks. A graph has at most one edge from one node to another."""

    source: Subtask
    target: Subtask

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"


def renamed_subtask(subtask: Subtask, names: Mapping[str, str]) -> Subtask:
    """Return the present id of a subtask of a snapshot. `names` is {former name of a node: present name}."""
    return Subtask(names.get(subtask.node, subtask.node), subtask.index)


def renamed_channel(channel: ChannelId, names: Mapping[str, str]) -> ChannelId:
    """Return the present id of a channel of a snapshot. `names` is {former name of a node: present name}."""
    return ChannelId(renamed_subtask(channel.source, names), renamed_subtask(channel.target, names))


def first_snapshot_id(claim: int) -> int:
    """Return the lowest id in the block of `claim`."""
    return claim * SNAPSHOT_IDS_PER_CLAIM


def claim_of_snapshot(snapshot_id: int) -> int:
    """Return the claim whose block holds `snapshot_id`."""
    return snapshot_id // SNAPSHOT_IDS_PER_CLAIM
