"""`cutline modes`: which modes can run a graph, and what the graph lacks for the others."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from cutline.barrier_runtime.cli import session
from cutline.barrier_runtime.cli.options import all_modes
from cutline.snapshot.plan.modes import MODES, InputLogging, MonoidClocks
from tests.barrier_runtime.invoking import invoke

_JOBS = """
from cutline import Count, Graph, Node, ReplayableSource
from cutline.testing import ListSink, ListSource
from cutline import SQLiteStore


class Lines(ReplayableSource):
    def partitions(self): return ["a"]
    def first(self, partition): return 0
    def available(self, partition, start): return start + 1
    def read(self, partition, start, stop, context): context.send(start)


class Tag(Node):
    deterministic = True

    def __init__(self): self.tag = "new"
    def onMessage(self, message, context): context.send((message, self.tag))


class Own(Node):
    def onMessage(self, message, context): context.send(message)
    def snapshotState(self, snapshotId, timestamp): return 1
    def restoreState(self, state): pass


def through(source, node):
    graph = Graph("jobs").add("source", source).add("node", node).add("out", ListSink())
    return graph.connect("source", "node").connect("node", "out")


def tagged(): return through(Lines(), Tag())
def own(): return through(ListSource("a"), Own())
def lines(): return Graph("jobs").source("lines", Lines()).keyBy(str)
def totals(): return lines().persistentAggregate("sum", Count(), SQLiteStore("s"))
def broken(): return Graph("jobs").add("node", Tag()).connect("node", "nowhere")
"""


@pytest.fixture(autouse=True)
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current folder, with a module of graphs. Spark does not start."""
    (tmp_path / "moded_jobs.py").write_text(_JOBS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "moded_jobs", raising=False)
    monkeypatch.setattr(session, "_start", lambda *_: pytest.fail("Spark is started"))


def lacks(graph: str) -> dict[str, list[str]]:
    """What is missing, by mode."""
    result = invoke("modes", f"moded_jobs:{graph}", "--json")
    assert result.exit_code == 0, result.output
    records = json.loads(result.output)
    assert all(record["allowed"] is not bool(record["missing"]) for record in records)
    return {record["mode"]: record["missing"] for record in records}


def test_each_mode_has_a_line() -> None:
    """Each of the union, with its defaults. A setting has one only where it needs more."""
    modes = all_modes()
    assert [mode.name for mode in MODES] == [name for name in modes if ":" not in name]
    assert modes["inputLogging:hashes=states"] == InputLogging("states")
    assert modes["monoidClocks:clock=negotiated"] == MonoidClocks(clock="negotiated")
    found = lacks("tagged")
    assert set(found) == {"markers", *(name for name in modes if ":" not in name), "inputLogging:hashes=states"}
    assert found["inputLogging:hashes=states"] == [
        "node 'node' has attributes (tag) that no snapshotState gives, so they have no hash"
    ]
    assert "inputLogging:hashes=states" not in lacks("own")


def test_all_that_is_missing_is_named() -> None:
    """As a submission would refuse it. A source that is none for the mode is not blamed for its state too."""
    found = lacks("own")
    source = "source 'source' is no ReplayableSource: its input cannot be read again by offsets"
    undeclared = "node 'node' does not declare deterministic = True"
    assert found["markers"] == [] and found["inputLogging"] == [source, undeclared]
    assert found["deltas"] == [source, undeclared, "node 'node' has state that is neither keyed nor partitioned"]
    assert found["persistentState"] == [
        source, undeclared, "node 'node' has state outside keyed state, which a local database cannot hold",
    ]  # fmt: skip
    assert found["monoidClocks"] == [
        source,
        "it has no persistentAggregate",
        "node 'node' between sources and aggregates keeps state or timers",
        "sink 'out' is no aggregate",
    ]


def test_totals_need_markers_or_clocks() -> None:
    """All other modes name the aggregate."""
    found = lacks("totals")
    assert [mode for mode, missing in found.items() if not missing] == ["markers", "monoidClocks"]
    said = {tuple(missing) for missing in found.values() if missing}
    assert said == {("aggregate 'sum' has its totals in a store; modes 'markers' and 'monoidClocks' can",)}


def test_the_table_has_a_line_for_each_lack() -> None:
    """The mode stands in the first line only."""
    lines = invoke("modes", "moded_jobs:own").output.splitlines()
    assert lines[:3] == [
        "markers          yes",
        "inputLogging     no   source 'source' is no ReplayableSource: its input cannot be read again by offsets",
        "                      node 'node' does not declare deterministic = True",
    ]


def test_a_graph_that_no_mode_can_run_is_refused() -> None:
    """As `submit` refuses it."""
    result = invoke("modes", "moded_jobs:broken")
    assert result.exit_code == 1 and "there is no node 'nowhere'" in str(result.exception)
