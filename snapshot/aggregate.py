"""`KeyedAggregate`: counts, sums, extremes and means by key, a batch at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast, get_args

import pyarrow as pa

from snapshot.aggregation.groups import Aggregates, Function, Groups
from snapshot.errors import GraphError, NodeError, RestoreRefused
from snapshot.node import Context, Node


class KeyedAggregate(Node):
    """Aggregates rows by key, and sends one row a key when all inputs have ended.

    Takes batches; messages are gathered by the edge's schema, so the edge needs one. With more than one subtask
    the edge must be keyed by the same columns, or by some of them: each subtask aggregates what comes to it.

    What it sends is sorted by the keys, nulls last: key columns first, then the outputs in the order given. As in
    SQL, rows with a null in a key are a group, nulls are not counted, and a sum, min, max or mean of nothing is
    null. Sums of integers are exact, in 64 bits. Sums of floats depend, in the last digits, on the order in which
    rows come; NaN is greater than every number. Of what it keeps and sends, text in dictionaries is plain text.

    Parameters
    ----------
    keys : str or sequence of str
        Columns of integers, bools, text or bytes.
    aggregates : mapping of str to (str, str)
        ``{output: (column, function)}``; functions are ``count``, for any column, and ``sum``, ``min``, ``max`` and
        ``mean``, for integers and floats.

    Raises
    ------
    GraphError
        if they cannot be meant.

    Examples
    --------
    >>> KeyedAggregate("word", aggregates={"count": ("word", "count")})
    """

    def __init__(self, keys: str | Sequence[str], *, aggregates: Mapping[str, tuple[str, str]]) -> None:
        columns = (keys,) if isinstance(keys, str) else tuple(keys)
        _check(columns, aggregates)
        self._aggregates = Aggregates(columns, cast("Mapping[str, tuple[str, Function]]", dict(aggregates)))
        self._groups: Groups | None = None
        #: the last schema that was found to fit the groups
        self._fitting: pa.Schema | None = None

    def onBatch(self, batch: pa.RecordBatch, context: Context) -> None:
        """Add the rows of a batch."""
        self._groups_for(batch.schema, context).add(batch)

    def onEnd(self, context: Context) -> None:
        """Send the result, if that was the last input and any row came."""
        if not context.inputs and self._groups is not None:
            context.send(self._groups.result())

    def snapshotState(self, snapshotId: int, timestamp: float) -> pa.RecordBatch | None:
        """One row a group: its keys, and the totals so far. None before the first batch."""
        return None if self._groups is None else self._groups.state()

    def restoreState(self, state: pa.RecordBatch | None) -> None:
        """Go on from there."""
        if state is None:
            return
        expected = self._aggregates.state_names()
        if not isinstance(state, pa.RecordBatch) or state.schema.names != expected:
            found = state.schema.names if isinstance(state, pa.RecordBatch) else type(state).__qualname__
            raise RestoreRefused(f"the snapshot holds {found}, but this KeyedAggregate keeps {expected}")
        self._groups = Groups(self._aggregates, state.schema)
        self._groups.restore(state)

    def _groups_for(self, given: pa.Schema, context: Context) -> Groups:
        if self._groups is not None and self._fitting is not None and given.equals(self._fitting):
            return self._groups
        try:
            schema = self._aggregates.state_schema(given)
        except TypeError as error:
            raise NodeError(f"a batch from {context.sender} cannot be aggregated: {error}") from error
        if self._groups is None:
            self._groups = Groups(self._aggregates, schema)
        elif not schema.equals(self._groups.schema):
            raise NodeError(
                f"a batch from {context.sender} with the schema\n{given}\nmakes groups of\n{schema}\n"
                f"but those that there are have\n{self._groups.schema}"
            )
        self._fitting = given
        return self._groups


def _check(keys: Sequence[str], aggregates: Mapping[str, tuple[str, str]]) -> None:
    """Refuse what cannot be meant."""
    functions = get_args(Function)
    wrong = [f"{output!r}: {asked!r}" for output, asked in aggregates.items() if not _is_asked_well(asked)]
    if wrong:
        raise GraphError(f"KeyedAggregate: {', '.join(wrong)}: write (column, function), of {', '.join(functions)}")
    names = [*keys, *aggregates]
    if not keys or not aggregates or not all(isinstance(name, str) and name for name in names):
        raise GraphError(f"KeyedAggregate: keys {list(keys)} and outputs {list(aggregates)}: one of each at least")
    if len(dict.fromkeys(names)) < len(names):
        raise GraphError(f"KeyedAggregate: of the keys and outputs {names} two have one name")


def _is_asked_well(asked: object) -> bool:
    return isinstance(asked, tuple) and len(asked) == 2 and isinstance(asked[0], str) and asked[1] in get_args(Function)
