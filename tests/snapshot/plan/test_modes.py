"""Modes: their names, what is stored of them, and what a graph lacks for one, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from snapshot import Context, Graph, GraphError, InputLogging, Node, Sink
from snapshot.plan.compiled_graph import build
from snapshot.plan.modes import mode_of, mode_of_record, name_of_mode, record_of_mode
from snapshot.plan.topology import ALIGNED
from snapshot.stored.topology_record import record_of_topology, topology_of_record
from snapshot.testing import ListSink, ListSource
from tests.snapshot.testing.replayed import Relay, Slices


def test_a_mode_is_wished_by_its_name_or_its_settings() -> None:
    """And stored by its name; markers are stored as nothing."""
    assert mode_of("markers") is None
    assert mode_of("inputLogging") == mode_of(InputLogging()) == InputLogging()
    assert (name_of_mode(None), name_of_mode(InputLogging())) == ("markers", "inputLogging")
    record = record_of_mode(InputLogging())
    assert record is not None and mode_of_record(record) == InputLogging()
    assert record_of_mode(None) is None


@pytest.mark.parametrize("wish", ["inputlogging", "", None, 5, InputLogging])
def test_an_unknown_mode_is_refused(wish: Any) -> None:
    """With the names that there are."""
    with pytest.raises(ValueError, match=r"mode .* is unknown; there are 'markers', 'inputLogging'$"):
        mode_of(wish)


def _sliced() -> Graph:
    graph = Graph("g").add("slices", Slices({"a": 3})).add("relay", Relay()).add("out", ListSink())
    return graph.connect("slices", "relay", alignment="unaligned").connect("relay", "out")


def test_all_edges_are_aligned() -> None:
    """Whatever was wished, because a step has nothing in flight. The manifest's topology has the mode."""
    topology = build(_sliced(), "unaligned", InputLogging()).topology
    assert {edge.alignment for edge in topology.edges} == {ALIGNED}
    assert {edge.reason for edge in topology.edges} == {"mode 'inputLogging'"}
    assert topology_of_record(record_of_topology(topology)) == topology
    plain = build(_sliced(), "unaligned").topology
    assert "mode" not in record_of_topology(plain)
    assert topology_of_record(record_of_topology(plain)).mode is None


class Undeclared(Node):
    """Does not say that it is deterministic."""

    def onMessage(self, message: Any, context: Context) -> None:
        context.send(message)


class Printing(Sink):
    """A sink that sends on."""

    def onMessage(self, message: Any, context: Context) -> None:
        context.send(message)


def _cyclic() -> Graph:
    return _sliced().connect("relay", "relay", partitioning="directed")


def _with_dead_letters() -> Graph:
    graph = Graph("g").add("slices", Slices({"a": 3})).add("relay", Relay()).add("out", ListSink())
    graph.add("failed", ListSink())
    return graph.connect("slices", "relay", onError="failed").connect("relay", "out")


LACKS: dict[str, tuple[Callable[[], Graph], str]] = {
    "a cycle": (_cyclic, "node 'relay' is on a cycle; mode 'markers' can"),
    "a source": (
        lambda: Graph("g").add("words", ListSource("a")).add("out", ListSink()).connect("words", "out"),
        "source 'words' is no ReplayableSource: its input cannot be read again by offsets",
    ),
    "a node": (
        lambda: Graph("g").add("slices", Slices({"a": 3})).add("node", Undeclared()).connect("slices", "node"),
        "node 'node' does not declare deterministic = True",
    ),
    "a sink": (
        lambda: (
            Graph("g").add("slices", Slices({"a": 3})).add("print", Printing()).add("out", ListSink())
            .connect("slices", "print").connect("print", "out")
        ),
        "sink 'print' sends messages, which a replay would not send again, because it repeats no sink",
    ),
    "an edge": (
        _with_dead_letters,
        "edge slices->relay sets messages aside that fail (onError), which a replay would not; mode 'markers' can",
    ),
}  # fmt: skip


@pytest.mark.parametrize("lack", LACKS)
def test_what_a_graph_lacks_is_said_by_name(lack: str) -> None:
    """One sentence; markers run the same graph."""
    graph, said = LACKS[lack]
    with pytest.raises(GraphError) as refused:
        build(graph(), "unaligned", InputLogging())
    assert str(refused.value) == f"mode 'inputLogging' cannot run graph 'g': {said}"
    build(graph(), "unaligned")


def test_all_that_is_missing_is_said_at_once() -> None:
    """A line each."""
    graph = Graph("g").add("words", ListSource("a")).add("node", Undeclared()).connect("words", "node")
    with pytest.raises(GraphError) as refused:
        build(graph, "unaligned", InputLogging())
    assert str(refused.value).splitlines() == [
        "mode 'inputLogging' cannot run graph 'g': 2 problems:",
        "  source 'words' is no ReplayableSource: its input cannot be read again by offsets",
        "  node 'node' does not declare deterministic = True",
    ]
