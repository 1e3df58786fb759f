"""Hold the groups of a keyed aggregate: keys and totals, as state and as result.

::

    state    key columns | count(a) | sum(a) | min(b) ...     one row a group, in the order of their numbers
    result   key columns | outputs                            one row a group, sorted by the keys, nulls last
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cutline.snapshot.columns.group_keys import GroupKeys, key_type
from cutline.snapshot.columns.integer_table import Integers
from cutline.snapshot.columns.reductions import Measure, Reduction, SumOverflow, make_reduction, numbers_of, total_type
from cutline.snapshot.columns.slot_blocks import CapturedSlots, Column, Fill, SlotBlocks
from cutline.snapshot.errors import NodeError
from cutline.snapshot.values.fitting import DoesNotFit, fit

#: metadata of the schema of totals; names are not enough, because rows may also have a column "count(x)"
TOTALS: Final = {b"cutline": b"totals"}

Function = Literal["count", "sum", "min", "max", "mean"]


@dataclass(frozen=True, slots=True)
class _Total:
    """One total of every group."""

    #: place among the columns of totals
    place: int
    #: type of the totals in the state and in the result
    kind: pa.DataType
    reduction: Reduction


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
        self._totals: dict[str, dict[Measure, _Total]] = {}
        fills: list[Fill] = []
        for column, measures in aggregates.measures().items():
            self._totals[column] = {}
            for measure in measures:
                kind = schema.field(len(aggregates.keys) + len(fills)).type
                reduction = make_reduction(measure, is_integer=pa.types.is_integer(kind))
                self._totals[column][measure] = _Total(len(fills), kind, reduction)
                fills.append(Fill(reduction.kind, reduction.start))
        #: types of the totals in memory, in the order of the state's columns
        self.total_kinds = tuple(fill.kind for fill in fills)
        self._blocks = SlotBlocks(fills)
        #: whether `capture` is used, so that changes are noted
        self._is_tracked = False
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
        groups = self._numbers(batch)
        for name, totals in self._totals.items():
            with self._naming(name):
                self._add_column(groups, batch.column(name), totals)

    def merge(self, state: pa.RecordBatch) -> None:
        """Add totals that `state`, `changed` or `take` of the same aggregates returned. Raise as `add` does."""
        groups = self._numbers(state)
        for name, totals in self._totals.items():
            for measure, total in totals.items():
                column = state.column(_name(measure, name))
                known = column.is_valid().to_numpy(zero_copy_only=False)
                with self._naming(name):
                    totals_of = self._blocks.columns[total.place]
                    total.reduction.merge(totals_of, groups[known], numbers_of(column.drop_null()))

    # ---------------------------------------------------------------- capture by group

    def track(self) -> None:
        """Note which groups change from now on. All groups so far count as changed."""
        self._is_tracked = True
        if len(self):
            self._blocks.written(np.arange(len(self)))

    @property
    def has_changes(self) -> bool:
        """Whether a group has changed since the last capture."""
        return self._blocks.has_changes

    def capture(self) -> CapturedSlots:
        """Return the groups that changed since the last call. Their columns are all totals."""
        return self._blocks.capture()

    def keys_at(self, groups: Integers) -> list[Any]:
        """Return the keys of groups: a value, or a tuple with several key columns. A bool comes back as an int."""
        columns = self._keys.columns_at(groups)
        return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))

    def restore(self, keys: list[Any], totals: Sequence[Column]) -> None:
        """Put groups with these totals over older ones. They do not count as changed."""
        columns = [keys] if len(self._aggregates.keys) == 1 else list(zip(*keys, strict=True))
        kinds = [self.schema.field(place).type for place in range(len(columns))]
        groups = self._keys.numbers([_restored_keys(column, kind) for column, kind in zip(columns, kinds, strict=True)])
        self._blocks.grow(len(self._keys))
        for column, restored in zip(self._blocks.columns, totals, strict=True):
            column[groups] = restored
        for measures in self._totals.values():
            for total in measures.values():
                total.reduction.replaced()

    # ---------------------------------------------------------------- states and results

    def changed(self) -> pa.RecordBatch:
        """Return the state of the groups that are new or received values since the last call of `take`."""
        state, is_changed = self.state(), np.arange(len(self._keys)) >= self._taken_count
        for totals in self._totals.values():
            is_changed |= self._values(totals["count"]) > 0
        return state if is_changed.all() else state.take(pa.array(np.flatnonzero(is_changed)))

    def take(self) -> pa.RecordBatch:
        """Return the result of `changed`, marked as totals, and reset all totals."""
        changed = self.changed()
        for totals in self._totals.values():
            for total in totals.values():
                self._blocks.columns[total.place].fill(total.reduction.start)
                total.reduction.replaced()
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
                f"the sum of column {name!r} for the key {self._key(error.slot)} does not fit 64 bits: "
                "make it a column of floats, which round, or of larger units"
            ) from error
        except DoesNotFit as error:
            raise NodeError(f"column {name!r}: {error}: integers beyond 63 bits have no totals") from error

    def _add_column(self, groups: Integers, column: pa.Array, totals: Mapping[Measure, _Total]) -> None:
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
            total.reduction.add(self._blocks.columns[total.place], groups, values)

    def _output(self, column: str, function: Function) -> pa.Array:
        totals = self._totals[column]
        if function != "mean":
            return self._kept(totals, function)
        counts, sums = self._values(totals["count"]), self._values(totals["sum"])
        return pa.array(sums / np.maximum(counts, 1), mask=counts == 0)

    def _kept(self, totals: Mapping[Measure, _Total], measure: Measure) -> pa.Array:
        """Return a total of every group, with null for groups without values."""
        total, counts = totals[measure], self._values(totals["count"])
        values = self._values(total).copy()
        return pa.array(values, mask=None if measure == "count" else counts == 0).cast(total.kind)

    def _values(self, total: _Total) -> Column:
        """Return a view of a total of every group."""
        return self._blocks.columns[total.place][: len(self._keys)]

    def _numbers(self, batch: pa.RecordBatch) -> Integers:
        """Return the group of each row. Add new groups."""
        groups = self._keys.numbers([batch.column(name) for name in self._aggregates.keys])
        self._blocks.grow(len(self._keys))
        if self._is_tracked:
            self._blocks.write(groups, len(self._keys))
        return groups

    def _key(self, group: int) -> Any:
        values = [column[group].as_py() for column in self._keys.columns()]
        return repr(values[0] if len(values) == 1 else tuple(values))


def _restored_keys(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """Return the column of restored keys. A bool is stored as an int."""
    if pa.types.is_boolean(kind):
        values = [None if value is None else bool(value) for value in values]
    return fit(values, kind)


def _name(measure: Measure, column: str) -> str:
    return f"{measure}({column})"


def _type_of(schema: pa.Schema, name: str) -> pa.DataType:
    if schema.names.count(name) != 1:
        raise TypeError(f"there is no one column {name!r} in {schema.names}")
    return schema.field(name).type
