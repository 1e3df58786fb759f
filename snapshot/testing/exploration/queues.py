"""Queues and what is in them as numbers, so that a world is a tuple of small integers."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

T = TypeVar("T", bound=Hashable)

#: The number of the queue that holds nothing.
EMPTY: Final = 0


class Queues(Generic[T]):
    """Every content that a queue ever had, and every item."""

    def __init__(self) -> None:
        self._items: list[T] = []
        self._item_numbers: dict[T, int] = {}
        self._contents: list[tuple[int, ...]] = [()]
        self._queue_numbers: dict[tuple[int, ...], int] = {(): EMPTY}

    def number(self, item: T) -> int:
        """The number of an item."""
        number = self._item_numbers.setdefault(item, len(self._items))
        if number == len(self._items):
            self._items.append(item)
        return number

    def item(self, number: int) -> T:
        """The inverse of `number`."""
        return self._items[number]

    def content(self, queue: int) -> tuple[int, ...]:
        """The items of a queue, by number, first to last."""
        return self._contents[queue]

    def with_last(self, queue: int, item: int) -> int:
        """The queue with one item more."""
        return self._queue((*self._contents[queue], item))

    def without(self, queue: int, position: int) -> int:
        """The queue without the item that stands there."""
        content = self._contents[queue]
        return self._queue(content[:position] + content[position + 1 :])

    def _queue(self, content: tuple[int, ...]) -> int:
        number = self._queue_numbers.setdefault(content, len(self._contents))
        if number == len(self._contents):
            self._contents.append(content)
        return number
