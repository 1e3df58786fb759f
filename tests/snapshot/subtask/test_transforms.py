"""map, flatMap and filter on the way out of a subtask."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from cutline.snapshot.errors import NodeError
from cutline.snapshot.plan.declarations import Transform, TransformKind
from cutline.snapshot.subtask.transforms import chained

DOUBLE = Transform(TransformKind.MAP, lambda number: number * 2)
SMALL = Transform(TransformKind.FILTER, lambda number: number < 5)
REPEAT = Transform(TransformKind.FLAT_MAP, lambda number: [number] * number)


def _results(transforms: tuple[Transform, ...], message: Any) -> list[Any]:
    results: list[Any] = []
    chained(transforms, "a[0]->b", results.append)(message)
    return results


def test_transforms_run_in_order() -> None:
    """Each works on what the one before it gave."""
    assert _results((REPEAT, DOUBLE, SMALL), 2) == [4, 4]
    assert _results((DOUBLE, REPEAT, SMALL), 2) == [4, 4, 4, 4]
    assert _results((DOUBLE, SMALL), 3) == []


def test_without_transforms_a_message_goes_as_it_is() -> None:
    """Nothing is taken apart that nobody looks at."""
    assert _results((), [1, 2]) == [[1, 2]]


def _raise(error: BaseException) -> Any:
    raise error


def _endless_then(error: BaseException) -> Iterator[int]:
    yield 1
    raise error


@pytest.mark.parametrize("kind", TransformKind)
@pytest.mark.parametrize("error", [KeyError("b"), StopIteration(), SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
def test_whatever_a_function_raises_is_named(kind: TransformKind, error: BaseException) -> None:
    """StopIteration is an error as any other: it does not end the messages in silence."""
    with pytest.raises(NodeError, match=rf"{kind.value} of a\[0\]->b: {type(error).__name__}"):
        _results((DOUBLE, Transform(kind, lambda _: _raise(error)), DOUBLE), 2)


def test_an_error_between_two_results_is_named() -> None:
    """What came before the error has been sent; the NodeError fails the whole call all the same."""
    results: list[Any] = []
    flat = Transform(TransformKind.FLAT_MAP, lambda _: _endless_then(OSError("gone")))
    with pytest.raises(NodeError, match=r"flatMap of a\[0\]->b: OSError: gone"):
        chained((flat, DOUBLE), "a[0]->b", results.append)(0)
    assert results == [2]


def test_an_error_of_sending_is_not_the_functions() -> None:
    """Of two functions the one that raised is named, and an error of the channel is nobody's."""
    inner = Transform(TransformKind.MAP, lambda _: 1 // 0)
    with pytest.raises(NodeError, match=r"^map of"):
        _results((REPEAT, inner), 1)
    with pytest.raises(OSError, match="full"):
        chained((DOUBLE, SMALL, REPEAT), "a[0]->b", lambda _: _raise(OSError("full")))(1)
