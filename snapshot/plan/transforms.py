"""`map`, `flatMap` and `filter`: functions that an edge applies inside the sending subtask.

They have no name, no channel and no state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, assert_never

import pyarrow as pa


class TransformKind(Enum):
    """What is done with the function of a `Transform`."""

    MAP = "map"
    FLAT_MAP = "flatMap"
    FILTER = "filter"


@dataclass(frozen=True, slots=True)
class Transform:
    """One step between a node and an edge that leaves it."""

    kind: TransformKind
    function: Callable[[Any], Any]


def transformed(transforms: Sequence[Transform], message: Any) -> Iterable[Any]:
    """What goes along the edge when the node sends `message`; with transforms, the rows of a batch go through as dicts.

    Lazy: the functions run, and may raise anything, while the caller iterates.
    """
    messages: Iterable[Any] = (message,)
    if transforms and isinstance(message, pa.RecordBatch):
        messages = message.to_pylist()
    for transform in transforms:
        messages = _apply(transform, messages)
    return messages


def _apply(transform: Transform, messages: Iterable[Any]) -> Iterator[Any]:
    match transform.kind:
        case TransformKind.MAP:
            return map(transform.function, messages)
        case TransformKind.FILTER:
            return filter(transform.function, messages)
        case TransformKind.FLAT_MAP:
            return (each for message in messages for each in transform.function(message))
        case _:
            assert_never(transform.kind)
