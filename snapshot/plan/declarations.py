"""What `Graph.add` and `Graph.connect` write down, as the user gave it and unchecked.

`snapshot.plan.validation` judges it, `snapshot.plan.compiled_graph` makes a topology and shippable code of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from snapshot.node import Node
from snapshot.plan.transforms import Transform

if TYPE_CHECKING:
    from snapshot.snapshot import Snapshot

#: A column's name, several of them, or a function of the message.
Key = str | Sequence[str] | Callable[[Any], Any]

#: What a user may ask for as an edge's partitioning. Hash is asked for by giving a key.
PartitioningName = Literal["forward", "rebalance", "broadcast", "directed"]

#: "unaligned", "aligned", or seconds: aligned for so long, then unaligned.
AlignmentWish = Literal["unaligned", "aligned"] | float

#: Judges a published snapshot; True: the invariant holds.
Invariant = Callable[["Snapshot"], bool]


@dataclass(frozen=True, slots=True)
class NodeDeclaration:
    """One call of `Graph.add`."""

    name: str
    node: Node
    parallelism: int


@dataclass(frozen=True, slots=True)
class EdgeDeclaration:
    """One call of `Graph.connect`, or one branch of a stream."""

    source: str
    target: str
    key: Key | None
    partitioning: PartitioningName | None
    schema: str | pa.Schema | None
    alignment: AlignmentWish | None
    transforms: tuple[Transform, ...]  #: run in the sending subtask, in this order

    def __str__(self) -> str:
        return f"{self.source}->{self.target}"
