"""Hold the groups of a keyed aggregate: keys and totals, as state and as result.

::

    state    key columns | count(a) | sum(a) | min(b) ...     one row a group, in the order of their numbers
    result   key columns | outputs                            one row a group, sorted by the keys, nulls last
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from snapshot.errors import NodeError
from snapshot.operators.group_keys import GroupKeys, key_type
from snapshot.operators.integer_table import Integers
from snapshot.operators.totals import Measure, SumOverflow, Total, make_total, numbers_of, total_type

#: metadata of the schema of totals; names are not enough, because rows may also have a column "count(x)"
TOTALS: Final = {b"cutline": b"totals"}

Function = Literal["count", "sum", "min", "max", "mean"]


@dataclass(frozen=True, slots=True)
class Aggregates:
    """Requested aggregates: key columns, and ``{output: (column, function)}``."""

    keys: tuple[str, ...]
    outputs: Mapping[str, tuple[str, Function]]

    def measures(self) -> dict[str, dict[Measure, None]]:
        """Return the measures of each column. The count is always kept, because a sum of no values is null."""
        kept: dict[str, dict[Measure, None]] = {}
        for column, function in self.outputs.values():
            kept.setdefault(column, {"count": None})["sum" if function == "mean" else function] = None
        return kept

    def state_names(self) -> list[str]:
        """Return the column names of the state and of merged totals."""
        totals = [_name(measure, column) for column, measures in self.measures().items() for measure in measures]
        return [*self.keys, *totals]

    def state_schema(self, given: pa.Schema) -> pa.Schema:
        """Return the schema of the state for batches with the schema `given`.

        Raises
        ------
        TypeError
            if a column is missing, or its type cannot be a key or have the total.
        """
        fields = [pa.field(name, key_type(_type_of(given, name))) for name in self.keys]
        for column, measures in self.measures().items():
            kind = _type_of(given, column)
            fields += [pa.field(_name(measure, column), total_type(measure, kind)) for measure in measures]
        return pa.schema(fields)

    def merged_schema(self, given: pa.Schema) -> pa.Schema:
        """Return the schema of the state for batches of totals with the schema `given`. Raise as `state_schema`."""
        if given.names != self.state_names():
            raise TypeError(f"they are totals {given.names}, where {self.state_names()} are added up")
        fields = [pa.field(name, key_type(_type_of(given, name))) for name in self.keys]
        for column, measures in self.measures().items():
            for measure in measures:
                kind = _type_of(given, _name(measure, column))
                if measure == "count" and not pa.types.is_integer(kind):
                    raise TypeError(f"{_name(measure, column)!r} is a column of {kind}, which are no counts")
                fields.append(pa.field(_name(measure, column), total_type(measure, kind)))
        return pa.schema(fields)


class Groups:
    """All groups of one subtask.

    Parameters
    ----------
    aggregates : Aggregates
    schema : pyarrow.Schema
        Schema of the state.
    """

    def __init__(self, aggregates: Aggregates, schema: pa.Schema) -> None:
        self.schema = schema
        self._aggregates = aggregates
        self._keys = GroupKeys([schema.field(index).type for index in range(len(aggregates.keys))])
        types = iter(schema.types[len(aggregates.keys) :])
        self._totals: dict[str, dict[Measure, Total]] = {
            column: {measure: make_total(measure, next(types)) for measure in measures}
            for column, measures in aggregates.measures().items()
        }
        #: number of groups that `take` has returned at least once
        self._taken_count = 0

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch.

        Raises
        ------
        NodeError
            if an integer does not fit 64 bits, or there are too many groups.
        """
        groups = self._keys.numbers([batch.column(name) for name in self._aggregates.keys])
        for name, totals in self._totals.items():
            with self._naming(name):
                self._add_column(groups, batch.column(name), totals)

    def merge(self, state: pa.RecordBatch) -> None:
        """Add totals that `state`, `changed` or `take` of the same aggregates returned. Raise as `add` does."""
        groups = self._keys.numbers([state.column(name) for name in self._aggregates.keys])
        for name, totals in self._totals.items():
            for measure, total in totals.items():
                column = state.column(_name(measure, name))
                known = column.is_valid().to_numpy(zero_copy_only=False)
                with self._naming(name):
                    total.merge(groups[known], numbers_of(column.drop_null()), len(self._keys))

    def changed(self) -> pa.RecordBatch:
        """Return the state of the groups that are new or received values since the last call of `take`."""
        state, is_changed = self.state(), np.arange(len(self._keys)) >= self._taken_count
        for totals in self._totals.values():
            is_changed |= totals["count"].values(len(self._keys)) > 0
        return state if is_changed.all() else state.take(pa.array(np.flatnonzero(is_changed)))

    def take(self) -> pa.RecordBatch:
        """Return the result of `changed`, marked as totals, and reset all totals."""
        changed = self.changed()
        for totals in self._totals.values():
            for total in totals.values():
                total.clear()
        self._taken_count = len(self._keys)
        return changed.replace_schema_metadata(TOTALS)

    def state(self) -> pa.RecordBatch:
        """Return keys and totals of all groups, in separate memory."""
        arrays = self._keys.columns()
        for totals in self._totals.values():
            arrays += [self._kept(totals, measure) for measure in totals]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def result(self) -> pa.RecordBatch:
        """Return the sorted groups with the requested outputs."""
        arrays = dict(zip(self._aggregates.keys, self._keys.columns(), strict=True))
        for output, (column, function) in self._aggregates.outputs.items():
            arrays[output] = self._output(column, function)
        batch = pa.RecordBatch.from_pydict(arrays)
        return batch.take(pc.sort_indices(batch, sort_keys=[(name, "ascending") for name in self._aggregates.keys]))

    @contextmanager
    def _naming(self, name: str) -> Iterator[None]:
        """Convert errors of values that do not fit into NodeErrors that name the column."""
        try:
            yield
        except SumOverflow as error:
            raise NodeError(
                f"the sum of column {name!r} for the key {self._key(error.group)} does not fit 64 bits: "
                "make it a column of floats, which round, or of larger units"
            ) from error
        except pa.ArrowInvalid as error:
            raise NodeError(f"column {name!r}: {error}: integers beyond 63 bits have no totals") from error

    def _add_column(self, groups: Integers, column: pa.Array, totals: Mapping[Measure, Total]) -> None:
        # Decode first, because these types may hold nulls that `null_count` does not count.
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        elif pa.types.is_run_end_encoded(column.type):
            column = pc.run_end_decode(column)
        if column.null_count:
            groups = groups[column.is_valid().to_numpy(zero_copy_only=False)]
            column = column.drop_null()
        is_only_counted = list(totals) == ["count"]
        values = groups if is_only_counted else numbers_of(column)
        for total in totals.values():
            total.add(groups, values, len(self._keys))

    def _output(self, column: str, function: Function) -> pa.Array:
        totals = self._totals[column]
        if function != "mean":
            return self._kept(totals, function)
        counts, sums = totals["count"].values(len(self._keys)), totals["sum"].values(len(self._keys))
        return pa.array(sums / np.maximum(counts, 1), mask=counts == 0)

    def _kept(self, totals: Mapping[Measure, Total], measure: Measure) -> pa.Array:
        """Return a total of every group, with null for groups without values."""
        total, counts = totals[measure], totals["count"].values(len(self._keys))
        values = total.values(len(self._keys)).copy()
        return pa.array(values, mask=None if measure == "count" else counts == 0).cast(total.kind)

    def _key(self, group: int) -> Any:
        values = [column[group].as_py() for column in self._keys.columns()]
        return repr(values[0] if len(values) == 1 else tuple(values))


def _name(measure: Measure, column: str) -> str:
    return f"{measure}({column})"


def _type_of(schema: pa.Schema, name: str) -> pa.DataType:
    if schema.names.count(name) != 1:
        raise TypeError(f"there is no one column {name!r} in {schema.names}")
    return schema.field(name).type
