"""The text of `Graph.explain`."""

from __future__ import annotations

import pytest

from cutline import Graph
from tests.snapshot.graphs import Passive


def test_everything_is_said_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    """Nodes, edges, how each spreads and aligns and why, cycles, who starts snapshots."""
    graph = Graph("g").add("in", Passive(), parallelism=2).add("work", Passive(), parallelism=2)
    graph.add("loop", Passive()).add("all", Passive(), parallelism=3)
    graph.connect("in", "work", alignment=2.0).connect("work", "loop", key="word").connect("loop", "loop")
    graph.connect("loop", "all", partitioning="broadcast").connect("work", "all", partitioning="directed")
    graph.explain("aligned")
    assert [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()] == [
        "Graph g: 8 subtasks, 14 channels",
        "",
        "Nodes",
        "in node x2 tests.snapshot.graphs.Passive",
        "work node x2 tests.snapshot.graphs.Passive",
        "loop node x1 tests.snapshot.graphs.Passive on the cycle of loop",
        "all node x3 tests.snapshot.graphs.Passive",
        "",
        "Edges",
        "in -> work forward: subtask i to subtask i aligned for 2 s (asked for on in->work)",
        "work -> loop hash by word: equal keys to the same of 1 subtasks unaligned ('loop' is on a cycle)",
        "loop -> loop forward: subtask i to subtask i unaligned ('loop' is on a cycle)"
        " on a cycle: spills instead of blocking",
        "loop -> all broadcast: to all of 3 subtasks unaligned ('loop' is on a cycle)",
        "work -> all directed: to the one of 3 subtasks that the sender names unaligned ('loop' is on a cycle)",
        "",
        "Snapshots are started at in[0], in[1]",
    ]


def test_cells_stand_below_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    """A column begins at one place, and a line ends with its last letter."""
    Graph("g").add("a", Passive()).add("longer", Passive()).connect("a", "longer").explain()
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if "Passive" in line] == [
        "  a       node  x1  tests.snapshot.graphs.Passive",
        "  longer  node  x1  tests.snapshot.graphs.Passive",
    ]


def test_a_graph_without_edges_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    """Without an empty table."""
    Graph("g").add("a", Passive()).explain()
    assert "Edges" not in capsys.readouterr().out
