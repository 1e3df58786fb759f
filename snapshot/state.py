"""Classes of keyed state that a node receives: `ValueState`, `ListState`, `MapState`, `ReducingState`.

Owns the contracts of the calls. Must not know where rows are kept. A node asks for its states in `Node.open`, by
`Context.getValueState` and the other methods of `Context`.

Rules of all states:

1. A call without `All` in its name concerns the current key, `Context.key`. `items` and the calls with `All` need no
   current key, so they serve batches, `onMessages`, `onEnd` and timers of no key.
2. Values are stored by value. A node may change a value that it received, and a value that it has stored. Only a call
   that stores changes the state. The sharing inside a value is lost.
3. None is no value, because `get` returns None for an absent key.
4. A value of a state with a time-to-live is absent as soon as `Context.now` reaches the end of its time.
5. Keys are None, bool, int, str, bytes, and tuples of them. True is the key 1. Values of their subclasses and of NumPy
   become values of the base class.

Every call raises NodeError, which names the subtask, the state and the key, if a rule is broken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal

#: Functions of `ReducingState` that have a name. "count" counts the calls of `add`.
NamedReduction = Literal["sum", "min", "max", "count"]

NAMED_REDUCTIONS: Final[tuple[NamedReduction, ...]] = ("sum", "min", "max", "count")


class KeyedState:
    """Base of all states: calls that need no current key."""

    def clearAll(self, keys: Any) -> None:
        """Remove the values of many keys.

        Parameters
        ----------
        keys : sequence, pyarrow.Array, numpy.ndarray, or list of columns
            Keys of this subtask. For keys that are tuples: a list with one Arrow or NumPy array for each element.
        """
        raise NotImplementedError

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Iterate over the keys of this subtask and their values, in no promised order.

        The iterator is valid until its hook returns, and until the state changes. Afterwards it raises NodeError.
        """
        raise NotImplementedError

    def __reduce__(self) -> Any:
        """Refuse pickling, because a state belongs to its subtask."""
        raise TypeError("a keyed state belongs to its subtask: ask for it in open, by the context")


class ValueState(KeyedState):
    """One value for each key."""

    def get(self) -> Any:
        """Return the value of the current key, or None if the value is absent."""
        raise NotImplementedError

    def update(self, value: Any) -> None:
        """Store the value of the current key.

        Parameters
        ----------
        value : Any
            A value that a message may hold, except None. 64 MiB at most once encoded.

        Raises
        ------
        NodeError
            if the value is None, is too large, or cannot be serialised. The state is unchanged then.
        """
        raise NotImplementedError

    def exists(self) -> bool:
        """Return whether the current key has a value."""
        raise NotImplementedError

    def clear(self) -> None:
        """Remove the value of the current key."""
        raise NotImplementedError

    def getAll(self, keys: Any) -> list[Any]:
        """Return the value of each of `keys`, in their order, and None for each absent value.

        Parameters
        ----------
        keys : sequence, pyarrow.Array, numpy.ndarray, or list of columns
            As in `clearAll`.
        """
        raise NotImplementedError

    def updateAll(self, keys: Any, values: Any) -> None:
        """Store the value of each of `keys`. For equal keys the last value is stored.

        Parameters
        ----------
        keys : sequence, pyarrow.Array, numpy.ndarray, or list of columns
            As in `clearAll`.
        values : sequence, pyarrow.Array or numpy.ndarray
            As many values as keys, none of them null.
        """
        raise NotImplementedError


class ListState(KeyedState):
    """A list for each key. Appending costs the same for short and long lists."""

    def get(self) -> list[Any]:
        """Return a new list of the values of the current key. The list is empty if the key has none."""
        raise NotImplementedError

    def appendValue(self, value: Any) -> None:
        """Append one value. Raises as `ValueState.update`."""
        raise NotImplementedError

    def appendList(self, values: Iterable[Any]) -> None:
        """Append values in their order. Raises as `ValueState.update`; then nothing is appended."""
        raise NotImplementedError

    def put(self, values: Iterable[Any]) -> None:
        """Replace the list by `values`. Raises as `ValueState.update`; then the old list stays."""
        raise NotImplementedError

    def exists(self) -> bool:
        """Return whether the list of the current key has a value."""
        raise NotImplementedError

    def clear(self) -> None:
        """Remove the list of the current key."""
        raise NotImplementedError


class MapState(KeyedState):
    """A dict for each key. The keys inside the dict have the types of all keys."""

    def getValue(self, key: Any) -> Any:
        """Return the value at `key` of the current key's dict, or None if the value is absent."""
        raise NotImplementedError

    def updateValue(self, key: Any, value: Any) -> None:
        """Store the value at `key` in the current key's dict. Raises as `ValueState.update`."""
        raise NotImplementedError

    def containsKey(self, key: Any) -> bool:
        """Return whether the current key's dict has a value at `key`."""
        raise NotImplementedError

    def removeKey(self, key: Any) -> None:
        """Remove the value at `key` from the current key's dict."""
        raise NotImplementedError

    def keys(self) -> list[Any]:
        """Return the keys of the current key's dict, as a list of its own."""
        raise NotImplementedError

    def values(self) -> list[Any]:
        """Return the values of the current key's dict, as a list of its own."""
        raise NotImplementedError

    def iterator(self) -> Iterator[tuple[Any, Any]]:
        """Iterate over a copy of the current key's dict: pairs of key and value."""
        raise NotImplementedError

    def exists(self) -> bool:
        """Return whether the current key's dict has a value."""
        raise NotImplementedError

    def clear(self) -> None:
        """Remove the dict of the current key."""
        raise NotImplementedError


class ReducingState(KeyedState):
    """One value for each key, reduced from all values that were added."""

    def get(self) -> Any:
        """Return the reduced value of the current key, or None if nothing was added."""
        raise NotImplementedError

    def add(self, value: Any) -> None:
        """Reduce the current key's value and `value` to one value. The first value is stored as it is.

        "sum", "min" and "max" take numbers, and are those of Python: sums of integers are exact at any size. "count"
        takes any value and counts it as one.

        Raises
        ------
        NodeError
            if the function raises, if its result cannot be stored, or if a named function gets no number.
        """
        raise NotImplementedError

    def clear(self) -> None:
        """Remove the value of the current key."""
        raise NotImplementedError

    def getAll(self, keys: Any) -> list[Any]:
        """Return the reduced value of each of `keys`, in their order, and None for each absent value.

        Parameters
        ----------
        keys : sequence, pyarrow.Array, numpy.ndarray, or list of columns
            As in `clearAll`.
        """
        raise NotImplementedError

    def addAll(self, keys: Any, values: Any) -> None:
        """Add the value of each of `keys`, in the order of the rows. Null values are skipped.

        Parameters
        ----------
        keys : sequence, pyarrow.Array, numpy.ndarray, or list of columns
            As in `clearAll`.
        values : sequence, pyarrow.Array or numpy.ndarray
            As many values as keys.
        """
        raise NotImplementedError
