"""Only `snapshot/values` converts values of users: the code is searched for other conversions."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.source_files import name_of, parse, python_files

#: Methods of Arrow and NumPy that convert values, and may lose some.
_CONVERSIONS = ("cast", "from_pylist", "from_pydict", "fromiter")

#: Functions of Arrow that convert values where they get a type.
_TYPED = ("array", "scalar", "chunked_array", "record_batch", "table")

#: {file: {function: why it may convert}}. Layouts of text and bytes, and integers in 64 bits, lose nothing.
_ALLOWED = {
    "snapshot/channel/key_hash.py": {
        "hash_keys": "numbers of 64 bits; other integers raise",
        "_hash_column": "another layout of text or bytes",
        "_hash_integers": "bools as 0 and 1",
        "_hash_encoded": "places in a dictionary",
        "_hash_each": "the bytes of text",
    },
    "snapshot/channel/message_hash.py": {"_hashable": "encoded values"},
    "snapshot/columns/group_keys.py": {
        "numbers": "another layout of text or bytes",
        "values": "texts that came from a column of this type",
        "_numbers_by_value": "places in a dictionary",
        "_as_integers": "bools as 0 and 1",
        "_from_integers": "integers that came from a column of this type",
    },
    "snapshot/columns/key_slots.py": {"part_at": "keys that came from a column of this form"},
    "snapshot/keyed/cold_restore.py": {
        "ingested_rows": "our own rows",
        "_empty_rows": "our own rows",
        "_joined": "our own rows",
    },
    "snapshot/keyed/column_table.py": {"restore": "whether a row has a value"},
    "snapshot/keyed/dirty_columns.py": {"encode_totals": "encoded values, and times of expiry"},
    "snapshot/keyed/encoding.py": {"_encode": "encoded values, and times of expiry", "_batch": "encoded keys"},
    "snapshot/keyed/key_columns.py": {
        "_column": "another layout of text or bytes",
        "_array": "keys whose classes were checked; larger integers raise",
    },
    "snapshot/keyed/kinds.py": {"element_rows": "an encoded key"},
    "snapshot/keyed/merging.py": {"_with_states": "numbers of states"},
    "snapshot/keyed/migration.py": {"migrated": "encoded values"},
    "snapshot/keyed/number_columns.py": {"one_each": "whether there is a value"},
    "snapshot/keyed/segment.py": {
        "no_rows": "no rows",
        "_concatenated": "our own rows",
        "_encode": "our own rows",
        "_widened": "our own rows",
    },
    "snapshot/operators/aggregate.py": {"snapshotState": "no rows"},
    "snapshot/operators/groups.py": {"result": "columns, as they are", "_kept": "totals of values of this type"},
    "barrier_runtime/dataframes/log_writing.py": {"records": "names and sizes of files"},
    "barrier_runtime/dataframes/snapshot_rows.py": {
        "read": "columns of a snapshot, made here",
        "_keyed_columns": "encoded keys and values",
        "_batch": "columns of a snapshot, made here",
    },
}


def _conversions(path: Path) -> Iterator[tuple[str, int]]:
    """Yield the function around each conversion of a file, and the line."""

    def visit(node: ast.AST, function: str) -> Iterator[tuple[str, int]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Call) and _converts(child):
                yield function, child.lineno
            inner = child.name if isinstance(child, ast.FunctionDef | ast.ClassDef) else function
            yield from visit(child, inner)

    return visit(parse(path), "")


def _converts(call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute):
        return False
    name, owner = call.func.attr, ast.unparse(call.func.value)
    if name in _TYPED:
        return owner == "pa" and (len(call.args) > 1 or any(each.arg in ("type", "schema") for each in call.keywords))
    of_memory = name == "cast" and bool(call.args) and isinstance(call.args[0], ast.Constant)
    return name in _CONVERSIONS and not of_memory


def test_nothing_else_converts_values_of_users() -> None:
    """Arrow cuts, rounds or drops what does not fit: `fit`, `fit_rows`, `fit_array` and `fit_batch` refuse it."""
    found = {
        (name_of(path), function): line
        for path in python_files("snapshot", "channels", "state_backends", "barrier_runtime")
        if "snapshot/values/" not in name_of(path)
        for function, line in _conversions(path)
    }
    allowed = {(file, function) for file, functions in _ALLOWED.items() for function in functions}
    unknown = [
        f"{file}:{line} in {function}" for (file, function), line in found.items() if (file, function) not in allowed
    ]
    assert not unknown, f"these conversions may lose values: use snapshot/values/fitting.py: {unknown}"
    assert not allowed - set(found), "these exemptions have no conversion"
