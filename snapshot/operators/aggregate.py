"""Aggregate batches by key: `KeyedAggregate`, and `PartialAggregate` before a `KeyedAggregate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, cast, get_args

import pyarrow as pa

from snapshot.errors import GraphError, NodeError, RestoreRefused
from snapshot.node import Context, Node
from snapshot.operators.groups import TOTALS, Aggregates, Function, Groups
from snapshot.plan.schemas import to_arrow_schema

#: groups; beyond this number a `PartialAggregate` drops its groups after sending, because each sending scans all groups
_KNOWN_GROUPS_MAX: Final = 1 << 16


class KeyedAggregate(Node):
    """Aggregate rows by key, and send one row for each key when all inputs have ended.

    Inputs are batches of rows, or the batches of a `PartialAggregate`. The edge needs a schema, because messages are
    gathered into batches by the schema. With more than one subtask the edge must be keyed by the same columns, or by
    some of these columns, because each subtask aggregates only its own rows.

    The result is sorted by the keys, nulls last. Key columns come first, then the outputs in the given order. As in
    SQL, rows with a null in a key form a group, and nulls are not counted. A sum, min, max or mean of no values is
    null. Sums of integers are exact, in 64 bits. The last digits of sums of floats depend on the order of the rows. NaN
    is greater than every number. Dictionary-encoded text becomes plain text in the state and in the result.

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
        if the keys or the aggregates are invalid.

    Examples
    --------
    >>> KeyedAggregate("word", aggregates={"count": ("word", "count")})
    """

    def __init__(self, keys: str | Sequence[str], *, aggregates: Mapping[str, tuple[str, str]]) -> None:
        columns = (keys,) if isinstance(keys, str) else tuple(keys)
        _check(type(self).__name__, columns, aggregates)
        self._aggregates = Aggregates(columns, cast("Mapping[str, tuple[str, Function]]", dict(aggregates)))
        self._groups: Groups | None = None
        #: last schema that was checked against the groups, or None
        self._fitting: pa.Schema | None = None

    def onBatch(self, batch: pa.RecordBatch, context: Context) -> None:
        """Add the rows of a batch, or the totals of a `PartialAggregate`."""
        groups = self._groups_for(batch.schema, context)
        if _are_totals(batch.schema):
            groups.merge(batch)
        else:
            groups.add(batch)

    def onEnd(self, context: Context) -> None:
        """Send the result after the last input has ended, if the node received any row."""
        if not context.inputs and self._groups is not None:
            context.send(self._groups.result())

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        """Return one row for each group, with its keys and totals, or None before the first batch."""
        return None if self._groups is None else self._groups.state()

    def restoreState(self, state: Any) -> None:
        """Restore the groups. Raise RestoreRefused if the snapshot holds other columns."""
        if state is None:
            return
        expected = self._aggregates.state_names()
        if not isinstance(state, pa.RecordBatch) or state.schema.names != expected:
            found = state.schema.names if isinstance(state, pa.RecordBatch) else type(state).__qualname__
            raise RestoreRefused(f"the snapshot holds {found}, but this {type(self).__name__} keeps {expected}")
        self._groups = Groups(self._aggregates, state.schema)
        self._groups.merge(state)

    def _groups_for(self, given: pa.Schema, context: Context) -> Groups:
        if self._groups is not None and self._fitting is not None and given.equals(self._fitting, check_metadata=True):
            return self._groups
        try:
            schema = self._schema_of(given)
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

    def _schema_of(self, given: pa.Schema) -> pa.Schema:
        """Return the schema of the groups for batches with the schema `given`."""
        if _are_totals(given):
            return self._aggregates.merged_schema(given)
        return self._aggregates.state_schema(given)


class PartialAggregate(KeyedAggregate):
    """Aggregate the rows of one subtask by key, and send one row for each changed group from time to time.

    The node stands on the sender's side of a keyed edge into a `KeyedAggregate` with the same keys and aggregates.
    Groups are sent between workers, not rows, which helps where keys repeat. Both nodes together give the result of the
    `KeyedAggregate` alone, except for the last digits of sums of floats. The node's input may have any partitioning.

    Parameters
    ----------
    keys, aggregates
        As in `KeyedAggregate`.
    rows : int
        Rows that are aggregated before the groups are sent.
    seconds : float
        Longest wait of the first of these rows, in seconds.

    Raises
    ------
    GraphError
        if a parameter is invalid.
    """

    def __init__(
        self,
        keys: str | Sequence[str],
        *,
        aggregates: Mapping[str, tuple[str, str]],
        rows: int = 4 * 1024 * 1024,
        seconds: float = 1.0,
    ) -> None:
        super().__init__(keys, aggregates=aggregates)
        if rows < 1 or not seconds > 0:
            raise GraphError(f"PartialAggregate: rows={rows}, seconds={seconds}: at least 1 row, more than 0 seconds")
        self._rows_max, self._seconds = rows, seconds
        #: unsent rows, and the time in seconds since the epoch at which their groups are sent
        self._rows, self._due_at = 0, 0.0

    def schemaOf(self, rows: str | pa.Schema) -> pa.Schema:
        """Return the schema of the sent batches for input rows of the schema `rows` (DDL or Arrow).

        Raises
        ------
        GraphError
            if such rows cannot be aggregated.
        """
        try:
            return self._schema_of(to_arrow_schema(rows)).with_metadata(TOTALS)
        except (TypeError, ValueError) as error:
            raise GraphError(f"PartialAggregate: {error}") from error

    def onBatch(self, batch: pa.RecordBatch, context: Context) -> None:
        """Add the rows of a batch. Send the groups after enough rows."""
        if not batch.num_rows:
            return
        super().onBatch(batch, context)
        if not self._rows:
            self._due_at = context.now + self._seconds
            context.registerTimer(self._due_at)
        self._rows += batch.num_rows
        if self._rows >= self._rows_max:
            self._send_groups(context)

    def onTimer(self, at: float, context: Context) -> None:
        """Send the groups, because the first rows have waited for `seconds`."""
        self._send_groups(context)

    def onEnd(self, context: Context) -> None:
        """Send the remaining groups after the last input has ended."""
        if not context.inputs:
            self._send_groups(context)

    def snapshotState(self, snapshotId: int, timestamp: float) -> Any:
        """Return the unsent groups, the number of their rows, and the time of their sending."""
        groups = None if self._groups is None or not self._rows else self._groups.changed()
        return groups, self._rows, self._due_at

    def restoreState(self, state: Any) -> None:
        """Restore the unsent groups. Raise RestoreRefused for the state of another node."""
        if not isinstance(state, tuple) or len(state) != 3:
            raise RestoreRefused(f"the snapshot holds {type(state).__qualname__}, which no PartialAggregate keeps")
        groups, rows, due_at = state
        super().restoreState(groups)
        self._rows, self._due_at = rows, due_at

    def _send_groups(self, context: Context) -> None:
        context.deleteTimer(self._due_at)
        if self._groups is None or not self._rows:
            return
        self._rows = 0
        context.send(self._groups.take())
        if len(self._groups) > _KNOWN_GROUPS_MAX:
            self._groups = None


def _are_totals(schema: pa.Schema) -> bool:
    return schema.metadata is not None and TOTALS.items() <= schema.metadata.items()


def _check(node: str, keys: Sequence[str], aggregates: Mapping[str, tuple[str, str]]) -> None:
    """Raise GraphError for invalid keys or aggregates."""
    functions = get_args(Function)
    wrong = [f"{output!r}: {asked!r}" for output, asked in aggregates.items() if not _is_asked_well(asked)]
    if wrong:
        raise GraphError(f"{node}: {', '.join(wrong)}: write (column, function), of {', '.join(functions)}")
    names = [*keys, *aggregates]
    if not keys or not aggregates or not all(isinstance(name, str) and name for name in names):
        raise GraphError(f"{node}: keys {list(keys)} and outputs {list(aggregates)}: one of each at least")
    if len(dict.fromkeys(names)) < len(names):
        raise GraphError(f"{node}: of the keys and outputs {names} two have one name")


def _is_asked_well(asked: object) -> bool:
    return isinstance(asked, tuple) and len(asked) == 2 and isinstance(asked[0], str) and asked[1] in get_args(Function)
