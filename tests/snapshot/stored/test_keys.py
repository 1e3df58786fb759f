"""The tables of stored names, literally, because a rename in the code must not change them; and how a table works.

A new field makes a test here fail. Only a field that is None by default may be missing in a stored record.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from cutline.snapshot.stored import keys
from cutline.snapshot.stored.keys import StoredArray, StoredMap

#: {record: its stored names, in the stored order}
NAMES = {
    "MANIFEST": (
        "run snapshot_id incarnation claim timestamp duration final pinned topology records written_by "
        "edited_from recovery"
    ),
    "RECOVERY_REPORT": "subtasks",
    "SUBTASK_RECOVERY": "subtask record checkpoint logs",
    "REPLAYED_LOG": "sender relation first last",
    "INDEPENDENT_RECORD": "run number record log checkpoint requested",
    "ABORTED": "run snapshot_id",
    "SUBTASK_RECORD": "subtask incarnation handles sent received standing groups rows own waves steps base version",
    "HANDLE": (
        "kind run incarnation snapshot_id subtask channel first last size checksum path offset inline groups rows"
    ),
    "SUBTASK_STATUS": "ended passive has_timers outer_inputs_ended uncommitted partitions own_state",
    "TOPOLOGY": "name nodes edges components key_groups mode",
    "NODE": (
        "name parallelism component is_source is_sink guarantee class_name acts_on_end formerly state_version "
        "migrations message_version is_aggregate"
    ),
    "EDGE": "source target partitioning alignment in_cycle reason key on_error",
    "ALIGNMENT": "aligned timeout",
    "COMPONENT": "nodes cyclic",
    "NODE_STATE": "state random timers now ended_inputs exhausted ended uncommitted partitioners log_run",
}


# ---------------------------------------------------------------- the tables


def test_each_table_is_listed_here() -> None:
    """No table of keys is left out."""
    tables = {name for name, value in vars(keys).items() if name.isupper() and isinstance(value, dict)}
    assert tables == set(NAMES)


@pytest.mark.parametrize("record", NAMES)
def test_keys(record: str) -> None:
    """The keys of a record, in the order in which they are stored."""
    assert list(getattr(keys, record).values()) == NAMES[record].split()


# ---------------------------------------------------------------- how a table works


@dataclass(frozen=True)
class Renamed:
    """A record whose fields are called otherwise than what is stored."""

    graph: str
    number: int = 0


RENAMED = {"graph": "name", "number": "index"}


def test_a_renamed_field_keeps_its_key() -> None:
    """The key of a field is the table's, both ways."""
    table = StoredMap(Renamed, RENAMED, write={"graph": str.upper}, read={"graph": str.lower})
    assert table.write(Renamed("a", 1)) == {"name": "A", "index": 1}
    assert table.read({"name": "A", "index": 1}) == Renamed("a", 1)


def test_the_stored_order_is_not_the_fields_order() -> None:
    """Fields may be moved about in a class; an array keeps its order."""
    table = StoredArray(Renamed, ("number", "graph"), write={"graph": str.upper}, read={"graph": str.lower})
    assert table.write(Renamed("a", 1)) == [1, "A"]
    assert table.read([1, "A"]) == Renamed("a", 1)


def test_a_missing_key_is_none() -> None:
    """A field that is None by default is stored only where it has a value."""

    @dataclass(frozen=True)
    class Optional:
        name: str
        more: int | None = None

    table = StoredMap(Optional, {"name": "name", "more": "more"})
    assert (table.write(Optional("a")), table.write(Optional("a", 0))) == ({"name": "a"}, {"name": "a", "more": 0})
    assert (table.read({"name": "a"}), table.read({"name": "a", "more": 0})) == (Optional("a"), Optional("a", 0))


@pytest.mark.parametrize(
    "stored", [{}, {"index": 1}, {"name": "a"}, {"name": "a", "index": 1, "graph": "b"}, [], None, "name"]
)
def test_another_map_is_refused(stored: Any) -> None:
    """A key too few, a key too many, or no map."""
    with pytest.raises(TypeError, match="Renamed"):
        StoredMap(Renamed, RENAMED).read(stored)


@pytest.mark.parametrize("stored", [[], [1], [1, "a", 2]])
def test_another_array_is_refused(stored: Any) -> None:
    """A value too few or too many."""
    with pytest.raises(ValueError, match="Renamed"):
        StoredArray(Renamed, ("number", "graph")).read(stored)


@pytest.mark.parametrize("table", [{"graph": "name"}, {**RENAMED, "more": "more"}, {"graph": "x", "number": "x"}])
def test_a_table_has_each_field_once(table: dict[str, str]) -> None:
    """A new or renamed field is found when its module is imported."""
    with pytest.raises(AssertionError):
        StoredMap(Renamed, table)


def test_an_array_has_each_field() -> None:
    """A missing field is found when its module is imported."""
    with pytest.raises(AssertionError):
        StoredArray(Renamed, ("graph",))
