"""Bring rows of keyed state to the present program: to its `Node.stateVersion`, and to the key of its edge.

Rows are migrated when they are restored, and all of them. Compaction merges rows without decoding them, so rows of two
versions could never be merged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from cutline.snapshot.channel.key_hash import hash_keys
from cutline.snapshot.keyed.decoding import rows_of
from cutline.snapshot.keyed.merging import merged, newest_rows
from cutline.snapshot.keyed.row_grouping import RowGrouping
from cutline.snapshot.keyed.rows import StateSpec
from cutline.snapshot.keyed.rows_codec import encode_value
from cutline.snapshot.keyed.segment import ROW_SCHEMA, Segment, row_batch
from cutline.snapshot.keyed.state_rules import KeyedStateSettings, StateRules
from cutline.snapshot.plan.topology import KEY_GROUPS

#: Returns the value of the present version: (name of the state, value, version of the value).
Migrate: TypeAlias = Callable[[str, Any, int], Any]


@dataclass(frozen=True, slots=True)
class MigratedRows:
    """All rows of a subtask, as they are restored and stored from now on."""

    #: key groups that the subtask owns
    groups: range
    segment: Segment


def is_stale(spec: StateSpec, version: int) -> bool:
    """Return whether a state holds values of the user, of an older version."""
    return spec.form.has_values and spec.version < version


def migrated(segments: Sequence[Segment], version: int, migrate: Migrate, owner: KeyedStateSettings) -> Segment:
    """Merge restored segments, oldest first, into one of the present version.

    Parameters
    ----------
    segments : sequence of Segment
        At least one. Together they are all rows of the subtask.
    version : int
        The present version.
    migrate : callable
        Called once for each value of an older version. Its errors pass through.
    owner : KeyedStateSettings

    Raises
    ------
    SnapshotCorrupt
        if a row cannot be decoded.
    NodeError
        if a migrated value cannot be stored. The text names state and key.
    """
    whole = merged(segments, is_whole=True)
    numbers = whole.rows.column("state").to_numpy()
    values: list[bytes | None] = whole.rows.column("value").to_pylist()
    for number, spec in enumerate(whole.states):
        if is_stale(spec, version):
            rules, is_element = StateRules(spec, owner), spec.form.is_element
            places = np.flatnonzero(numbers == number).tolist()
            at = iter(places)
            for keys, subs, stored, _ in rows_of(whole, spec.name):
                for row, value in enumerate(stored):
                    place = next(at)
                    if value is not None and (subs is None or is_element(subs[row])):
                        new = migrate(spec.name, rules.value_of(value, keys[row]), spec.version)
                        values[place] = encode_value(rules.stored(new, keys[row]), owner.codec)
    columns = whole.rows.columns
    columns[ROW_SCHEMA.names.index("value")] = pa.array(values, pa.large_binary())
    states = tuple(replace(spec, version=version) if is_stale(spec, version) else spec for spec in whole.states)
    return Segment(states, whole.now, row_batch(columns), whole.grouped_by)


def regrouped(segments: Sequence[Segment], name: str, grouping: RowGrouping | None, groups: range) -> Segment:
    """Merge restored segments, oldest first, into one whose rows of a state lie by another grouping.

    Parameters
    ----------
    segments : sequence of Segment
        At least one. Together they are all rows of the only subtask of a node.
    name : str
        Name of the state.
    grouping : RowGrouping or None
        None: by the key of a row.
    groups : range
        Key groups of the subtask.
    """
    whole = merged(segments, is_whole=True)
    number = next(number for number, spec in enumerate(whole.states) if spec.name == name)
    found = whole.rows.column("group").to_numpy().copy()
    places = np.flatnonzero(whole.rows.column("state").to_numpy() == number)
    keys = [key for keys, *_ in rows_of(whole, name) for key in keys]
    by_key = (hash_keys(keys) % np.uint64(KEY_GROUPS)).astype(np.uint16) if grouping is None else None
    found[places] = grouping.groups(keys, groups) if grouping is not None else by_key
    rows = newest_rows([row_batch([pa.array(found), *whole.rows.columns[1:]])])
    return Segment(whole.states, whole.now, rows, () if grouping is None else grouping.grouped_by)
