"""Tables and statements that SQLite and PostgreSQL share. Braces in a statement are places of parameters."""

from __future__ import annotations

import re
from dataclasses import dataclass

#: a name, or two with a dot between; short, because PostgreSQL cuts names at 63 letters
_NAME = re.compile(r"([a-z_][a-z0-9_]{0,47}\.)?[a-z_][a-z0-9_]{0,47}")

#: calls whose cells are rolled back at once, some 10,000 cells each
CALLS_AT_ONCE = 4


@dataclass(frozen=True)
class Names:
    """Names of the tables of one store, quoted, and the statements with these names."""

    prefix: str  #: the quoted schema with its dot, or nothing
    table: str

    @classmethod
    def of(cls, table: str) -> Names:
        """Check the name of a table.

        Raises
        ------
        ValueError
            if it has other letters, or is too long.
        """
        if not _NAME.fullmatch(table):
            raise ValueError(
                f"table={table!r}: a name is made of small letters, digits and _, at most 48, with or without a schema"
            )
        schema, _, name = table.rpartition(".")
        return cls(f'"{schema}".' if schema else "", name)

    @property
    def plain_totals(self) -> str:
        """Name of the view, without quotes and schema."""
        return f"{self.table}_totals"

    @property
    def cells(self) -> str:
        """Table of cells: key, value, snapshot_id, previous."""
        return f'{self.prefix}"{self.table}"'

    @property
    def holder(self) -> str:
        """Table with one row: run, claim, committed."""
        return f'{self.prefix}"{self.table}_holder"'

    @property
    def totals(self) -> str:
        """View of the committed totals: key, value."""
        return f'{self.prefix}"{self.plain_totals}"'

    @property
    def written(self) -> str:
        """Table with a row for each call that wrote cells above the committed id: its snapshot, and keys by lines.

        An index of the cells by snapshot would be changed with each cell, and so make each write twice as slow.
        """
        return f'{self.prefix}"{self.table}_written"'

    def schema(self, key_type: str, options: str = "") -> tuple[str, ...]:
        """Return the statements that make everything. `options` end the definition of the table of cells."""
        return (
            f"CREATE TABLE {self.cells} (key {key_type} PRIMARY KEY, value TEXT NOT NULL, snapshot_id BIGINT NOT NULL, "
            f"previous TEXT) {options}",
            f"CREATE TABLE {self.written} (snapshot_id BIGINT NOT NULL, keys TEXT NOT NULL)",
            f"CREATE TABLE {self.holder} (run TEXT NOT NULL, claim BIGINT NOT NULL, committed BIGINT NOT NULL)",
            f"INSERT INTO {self.holder} VALUES ('', 0, -1)",
            f"CREATE VIEW {self.totals} AS SELECT key, CASE WHEN snapshot_id <= committed THEN value ELSE previous END "
            f"AS value FROM {self.cells}, {self.holder} WHERE snapshot_id <= committed OR previous IS NOT NULL",
        )

    @property
    def on_conflict(self) -> str:
        """End of an insertion of cells. The place is of the committed id."""
        return (
            "ON CONFLICT (key) DO UPDATE SET value = excluded.value, snapshot_id = excluded.snapshot_id, previous = "
            f'CASE WHEN "{self.table}".snapshot_id <= {{}} THEN "{self.table}".value ELSE "{self.table}".previous END'
        )

    @property
    def take_written(self) -> str:
        """Statement that removes and returns keys of some calls. The places: a name of the row's place, and an id."""
        return (
            f"DELETE FROM {self.written} WHERE {{0}} IN "
            f"(SELECT {{0}} FROM {self.written} WHERE snapshot_id > {{1}} LIMIT {CALLS_AT_ONCE}) RETURNING keys"
        )

    @property
    def remove(self) -> str:
        """Statement that removes cells that had no value before. The places: a condition of keys, and an id."""
        return f"DELETE FROM {self.cells} WHERE {{}} AND snapshot_id > {{}} AND previous IS NULL"

    @property
    def restore(self) -> str:
        """Statement that returns cells to the value before. The places: committed id, condition of keys, id."""
        return (
            f"UPDATE {self.cells} SET value = previous, snapshot_id = {{}}, previous = NULL "
            "WHERE {} AND snapshot_id > {}"
        )
