"""Aggregate batches by key: `KeyedAggregate`, and `PartialAggregate` before a `KeyedAggregate`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, cast, get_args

import msgpack
import pyarrow as pa

from cutline.snapshot.error_text import shown
from cutline.snapshot.errors import GraphError, NodeError, RestoreRefused
from cutline.snapshot.keyed.keyed_states import HasKeyedStates
from cutline.snapshot.node import Context, Node
from cutline.snapshot.operators.aggregate_rows import AggregateRows
from cutline.snapshot.operators.groups import TOTALS, Aggregates, Function, Groups
from cutline.snapshot.plan.schemas import to_arrow_schema

#: groups; beyond this number a `PartialAggregate` drops its groups after sending, because each sending scans all groups
_KNOWN_GROUPS_MAX: Final = 1 << 16


#: name of the state whose rows are the groups
GROUPS_STATE: Final = "groups"

#: metadata of the schema of unsent groups: the number of their rows, and when they are sent
_UNSENT: Final = b"unsent"


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

    deterministic = True

    def __init__(self, keys: str | Sequence[str], *, aggregates: Mapping[str, tuple[str, str]]) -> None:
        columns = (keys,) if isinstance(keys, str) else tuple(keys)
        _check(type(self).__name__, columns, aggregates)
        self._aggregates = Aggregates(columns, cast("Mapping[str, tuple[str, Function]]", dict(aggregates)))
        self._groups: Groups | None = None
        #: whether the groups are rows of keyed state, from `open` on
        self._has_rows = False
        #: last schema that was checked against the groups, or None
        self._fitting: pa.Schema | None = None

    def open(self, context: Context) -> None:
        """Make rows of keyed state of the groups. A subclass with `open` calls this method too."""
        states = cast("HasKeyedStates", context).states
        if self._groups is not None:
            self._groups.track()
        self._has_rows = True
        states.adopt(GROUPS_STATE, AggregateRows(lambda: self._groups), self._aggregates.keys)

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
        """Return the types of keys and totals, as a batch without rows, or None before the first batch.

        Where `open` was not called, the batch has one row for each group.
        """
        if self._groups is None:
            return None
        if self._has_rows:
            return pa.RecordBatch.from_pylist([], self._groups.schema)
        return self._groups.state()

    def restoreState(self, state: Any) -> None:
        """Restore the groups. Raise RestoreRefused if the snapshot holds other columns."""
        if state is None:
            return
        expected = self._aggregates.state_names()
        if not isinstance(state, pa.RecordBatch) or state.schema.names != expected:
            found = state.schema.names if isinstance(state, pa.RecordBatch) else type(state).__qualname__
            raise RestoreRefused(f"the snapshot holds {found}, but this {type(self).__name__} keeps {expected}")
        if self._groups is None:
            self._groups = self._new_groups(state.schema)
        elif not state.schema.equals(self._groups.schema):
            raise RestoreRefused(f"the snapshot holds groups of\n{state.schema}\nand of\n{self._groups.schema}")
        self._groups.merge(state)

    def united_state(self, states: list[Any]) -> Any:
        """Return the types of keys and totals for a subtask that takes over from several. The groups are rows."""
        first = states[0]
        for state in states:
            if not isinstance(state, pa.RecordBatch) or state.num_rows:
                raise RestoreRefused(
                    "the snapshot holds all groups of a subtask as one state, because the open of the class did not "
                    "call KeyedAggregate.open: go on with the parallelism of the snapshot"
                )
            if not state.schema.equals(first.schema):
                raise RestoreRefused(f"the snapshot holds groups of\n{first.schema}\nand of\n{state.schema}")
        return first

    def _groups_for(self, given: pa.Schema, context: Context) -> Groups:
        if self._groups is not None and self._fitting is not None and given.equals(self._fitting, check_metadata=True):
            return self._groups
        try:
            schema = self._schema_of(given)
        except TypeError as error:
            raise NodeError(f"a batch from {context.sender} cannot be aggregated: {error}") from error
        if self._groups is None:
            self._groups = self._new_groups(schema)
        elif not schema.equals(self._groups.schema):
            raise NodeError(
                f"a batch from {context.sender} with the schema\n{given}\nmakes groups of\n{schema}\n"
                f"but those that there are have\n{self._groups.schema}"
            )
        self._fitting = given
        return self._groups

    def _new_groups(self, schema: pa.Schema) -> Groups:
        groups = Groups(self._aggregates, schema)
        if self._has_rows:
            groups.track()
        return groups

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

    partitioned = True
    inherited = True

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
        #: key group of the state, which belongs to no key
        self._partition = 0

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

    def open(self, context: Context) -> None:
        """Note under which key group the state is kept."""
        self._partition = context.keyGroups.start

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
        """Return the unsent groups as a part of the subtask's first key group, or no part without any."""
        if self._groups is None or not self._rows:
            return []
        return [(self._partition, _encode_unsent(self._groups.changed(), self._rows, self._due_at))]

    def restoreState(self, state: Any) -> None:
        """Restore the unsent groups, of several subtasks if their number has changed.

        Raises
        ------
        RestoreRefused
            for the state of another node.
        """
        for groups, rows, due_at in _unsent_parts(state):
            super().restoreState(groups)
            self._due_at = min(self._due_at, due_at) if self._rows else due_at
            self._rows += rows

    def _send_groups(self, context: Context) -> None:
        context.deleteTimer(self._due_at)
        if self._groups is None or not self._rows:
            return
        self._rows = 0
        context.send(self._groups.take())
        if len(self._groups) > _KNOWN_GROUPS_MAX:
            self._groups = None


def _encode_unsent(groups: pa.RecordBatch, rows: int, due_at: float) -> bytes:
    """Encode unsent groups, the number of their rows, and the time of their sending, as an Arrow stream."""
    metadata = {_UNSENT: msgpack.packb((rows, due_at))}
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, groups.schema.with_metadata(metadata)) as writer:
        writer.write_batch(groups)
    encoded: bytes = sink.getvalue().to_pybytes()
    return encoded


def _unsent_parts(state: Any) -> Iterator[tuple[pa.RecordBatch, int, float]]:
    """Yield what the parts of a state hold. Raise RestoreRefused for the state of another node."""
    try:
        for _, part in state:
            with pa.ipc.open_stream(part) as stream:
                groups = stream.read_next_batch()
            rows, due_at = msgpack.unpackb(groups.schema.metadata[_UNSENT])
            yield groups.replace_schema_metadata(None), rows, due_at
    except (TypeError, KeyError, ValueError, pa.ArrowException) as error:
        found = shown(state)
        raise RestoreRefused(f"the snapshot holds {found}, which no PartialAggregate keeps: {error!r}") from error


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
