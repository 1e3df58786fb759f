"""docs/MODES.md: its code runs as it stands there, in each mode, and a compaction. Only places are others."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow.parquet as pq
import pytest

from cutline import BarrierRuntime, FileSystemBackend, InputLogging, PersistentState
from cutline.barrier_runtime.dataframes.nodes import ParquetSink
from tests.barrier_runtime.local_cluster import local_cluster
from tests.leaks import LeakCheck
from tests.source_files import ROOT

_WORDS = Counter(40 * ["to", "be", "or", "not", "to", "be", "that", "is", "the", "question"])


def blocks() -> list[str]:
    """The code of the page, in order."""
    return re.findall(r"```python\n(.*?)```", (ROOT / "docs/MODES.md").read_text(), re.DOTALL)


#: the page's places on disk, and their names here
_PLACES = {'"/data"': "disk", '"counts.db"': "counts.db"}


def _moved(code: str, folder: Path) -> str:
    """Return code whose files are below a folder."""
    for written, name in _PLACES.items():
        code = code.replace(written, repr(str(folder / name)))
    return code


def test_the_page_is_true(leak_check: LeakCheck, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first block submits a graph in each mode; those behind it define the job, and submit it once more."""
    module = ModuleType("modes_page")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    names = vars(module)
    submits, *definitions = (_moved(code, tmp_path) for code in blocks())
    with local_cluster() as cluster:
        backend = FileSystemBackend(str(tmp_path / "snapshots"))
        names["runtime"] = runtime = BarrierRuntime(cluster.spark, backend=backend, page=False, snapshotInterval=0.2)
        names["another_sink"] = ParquetSink(str(tmp_path / "totals"), "word STRING, n LONG")
        counts: list[Counter[str]] = []
        for code in definitions:
            names["sink"] = ParquetSink(str(tmp_path / f"of block {len(counts)}"), "word STRING, n LONG")
            exec(code, names)
            if "runtime.submit(words(sink)" in code:
                counts.append(_counted(tmp_path / f"of block {len(counts)}"))
        assert {word: names["store"].get(word) for word in _WORDS} == _WORDS
        names["store"].close()
        assert names["editor"].edits[0].startswith("compacted the input: a log of ")
        runtime.submit(names["graph"], mode=InputLogging(hashes="states")).awaitTermination()
        counts.append(_counted(tmp_path / "totals"))
        for number, line in enumerate(submits.splitlines()):
            graph = names["words"](ParquetSink(str(tmp_path / f"{number}"), "word STRING, n LONG"))
            graph.name = f"words-{number}"
            found: dict[str, Any] = {}
            exec(line, {"runtime": runtime, "graph": graph, "PersistentState": PersistentState}, found)
            found["run"].awaitTermination()
            counts.append(_counted(tmp_path / f"{number}"))
    assert counts == [_WORDS] * 9


def _counted(folder: Path) -> Counter[str]:
    """The last count of each word, of output without gaps."""
    rows = [(row["word"], row["n"]) for path in folder.glob("*.parquet") for row in pq.read_table(path).to_pylist()]
    counts = Counter(word for word, _ in rows)
    assert sorted(rows) == sorted((word, n) for word, count in counts.items() for n in range(1, count + 1))
    return counts
