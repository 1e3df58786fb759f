"""docs/AGGREGATES.md: the code of its sections on stores runs as it stands there."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from benchmarks.servers import PostgreSQLServer
from cutline import PostgreSQLStore, SQLiteStore
from cutline.snapshot.operators.aggregate_store import StoreClaim
from tests.run_size import scaled
from tests.source_files import ROOT

#: the page up to its section on monoids, which tests of its own read
_PAGE = (ROOT / "docs/AGGREGATES.md").read_text().partition("\n## Monoids\n")[0]


def test_the_page_is_true(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block runs behind those before it, in an empty folder. Only the number of examples is another."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", _PAGE, re.DOTALL)
    assert len(blocks) == 3
    for code in blocks:
        exec(code.replace('table="checked"))', f'table="checked"), examples={scaled(20)})'), names)
    assert sorted(path.name for path in tmp_path.glob("*.db")) == ["totals.db"]


def test_queries_of_the_page(postgresql: PostgreSQLServer, tmp_path: Path) -> None:
    """The page's queries have what was committed."""
    of_sqlite, of_postgresql = re.findall(r"`(SELECT .*?)`", _PAGE)
    for store in (SQLiteStore(tmp_path / "totals.db", table="counts"), PostgreSQLStore(postgresql.url, table="counts")):
        claim = StoreClaim("r", 1)
        store.take(claim)
        store.write(claim, 1, [("größe", 7)])
        store.commit(claim, 1)
        store.close()
    with closing(sqlite3.connect(tmp_path / "totals.db")) as file:
        assert file.execute(of_sqlite).fetchall() == [('"größe"', "7")]
    with psycopg.connect(postgresql.url) as connection:
        assert connection.execute(of_postgresql.encode()).fetchall() == [("größe", 7)]
