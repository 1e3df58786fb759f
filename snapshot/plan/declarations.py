"""Declarations of `Graph.add` and `Graph.connect`, as the user gave them and unchecked.

`snapshot.plan.validation` checks them, `snapshot.plan.compiled_graph` makes a topology and shippable code of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Literal, Protocol

import pyarrow as pa

from cutline.snapshot.error_text import shown
from cutline.snapshot.node import Node


class TransformKind(Enum):
    """Use of the function of a `Transform`."""

    MAP = "map"
    FLAT_MAP = "flatMap"
    FILTER = "filter"


@dataclass(frozen=True, slots=True)
class Transform:
    """A function that runs between a node and an edge that leaves the node."""

    kind: TransformKind
    function: Callable[[Any], Any]


#: Name of a column, names of several columns, or a function of the message.
Key = str | Sequence[str] | Callable[[Any], Any]

#: class, function, or name of a module, for which a name in stored values stands now
AliasTarget = Callable[..., Any] | str

#: Partitionings that a user may name. A key asks for hash.
PartitioningName = Literal["forward", "rebalance", "broadcast", "directed"]

#: "unaligned", "aligned", or seconds for which an edge is aligned before it is unaligned.
AlignmentWish = Literal["unaligned", "aligned"] | float

#: Function that checks a published snapshot and returns True if the invariant holds.
Invariant = Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class NodeDeclaration:
    """Arguments of a call of `Graph.add`."""

    name: str
    node: Node
    parallelism: int
    formerly: str | None = None  #: name of the node in older snapshots


@dataclass(frozen=True, slots=True)
class EdgeDeclaration:
    """Arguments of a call of `Graph.connect`, or the content of a branch of a stream."""

    source: str
    target: str
    key: Key | None
    partitioning: PartitioningName | None
    schema: str | pa.Schema | None
    alignment: AlignmentWish | None
    transforms: tuple[Transform, ...]  #: functions of the sending subtask, in the order of their calls
    on_error: str | None = None  #: node that gets the messages that fail at `target`

    def __str__(self) -> str:
        return f"{shown_name(self.source)}->{shown_name(self.target)}"


def dead_letter_edges(edges: Sequence[EdgeDeclaration]) -> Iterator[EdgeDeclaration]:
    """Yield the edges that `onError` adds: from the node that fails to the node that gets the message, each once."""
    for source, target in dict.fromkeys((e.target, e.on_error) for e in edges if isinstance(e.on_error, str)):
        yield EdgeDeclaration(source, target, None, None, None, None, ())


def shown_name(name: object) -> str:
    """Return a name for an error text. Names are not checked yet, so a name may hold control characters."""
    return name if isinstance(name, str) and name.isprintable() else shown(name)


class DeclaredGraph(Protocol):
    """A graph as its user declared it: `snapshot.graph.Graph`."""

    name: str
    nodes: list[NodeDeclaration]
    edges: list[EdgeDeclaration]
    invariants: list[tuple[str, Invariant]]
    aliases: dict[str, AliasTarget]
