"""Apply the chained functions of an edge (`map`, `flatMap`, `filter`) to each message, in the sending subtask.

Each function is called by a plain call. Python's lazy `map` and `filter` would take a StopIteration of the function for
the end of the messages, and drop the message in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, assert_never

from cutline.snapshot.error_text import describe
from cutline.snapshot.errors import NodeError
from cutline.snapshot.plan.declarations import Transform, TransformKind

#: function that takes one message
Stage = Callable[[Any], None]


def chained(transforms: Sequence[Transform], edge: str, send: Stage) -> Stage:
    """Return a function that passes a message through `transforms`, and each result to `send`.

    A function that raises anything raises a NodeError that names the function's kind and `edge`.
    """
    for transform in reversed(transforms):
        send = _stage(transform, edge, send)
    return send


def _stage(transform: Transform, edge: str, send: Stage) -> Stage:
    what = f"{transform.kind.value} of {edge}"
    match transform.kind:
        case TransformKind.MAP:
            return _map(transform.function, what, send)
        case TransformKind.FILTER:
            return _filter(transform.function, what, send)
        case TransformKind.FLAT_MAP:
            return _flat_map(transform.function, what, send)
        case _:
            assert_never(transform.kind)


def _map(function: Callable[[Any], Any], what: str, send: Stage) -> Stage:
    def stage(message: Any) -> None:
        try:
            result = function(message)
        except BaseException as error:  # because user code may raise anything
            raise _failed(what, error) from error
        send(result)

    return stage


def _filter(function: Callable[[Any], Any], what: str, send: Stage) -> Stage:
    def stage(message: Any) -> None:
        try:
            passes = bool(function(message))
        except BaseException as error:  # because user code may raise anything
            raise _failed(what, error) from error
        if passes:
            send(message)

    return stage


def _flat_map(function: Callable[[Any], Any], what: str, send: Stage) -> Stage:
    def stage(message: Any) -> None:
        try:
            results = iter(function(message))
        except BaseException as error:  # because user code may raise anything
            raise _failed(what, error) from error
        while True:
            try:
                result = next(results)
            except StopIteration:  # the end, as iterators report it
                return
            except BaseException as error:  # because user code may raise anything
                raise _failed(what, error) from error
            send(result)

    return stage


def _failed(what: str, error: BaseException) -> NodeError:
    return NodeError(f"{what}: {describe(error)}")
