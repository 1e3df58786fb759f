"""Modes: their names, what is stored of them, and what a graph lacks for one, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cutline import (
    ChannelLogs,
    Context,
    Deltas,
    Graph,
    GraphError,
    InputLogging,
    KeyedAggregate,
    MemoryStore,
    Node,
    PersistentState,
    Sink,
)
from cutline.snapshot.operators.monoids import Count
from cutline.snapshot.operators.persistent_aggregate import PersistentAggregate
from cutline.snapshot.plan.compiled_graph import build
from cutline.snapshot.plan.modes import (
    Mode,
    MonoidClocks,
    content,
    mode_of,
    mode_of_record,
    name_of_mode,
    record_of_mode,
    row_of,
)
from cutline.snapshot.plan.topology import ALIGNED
from cutline.snapshot.stored.topology_record import record_of_topology, topology_of_record
from cutline.testing import ListSink, ListSource
from tests.snapshot.testing.replayed import SCHEMA, Each, Relay, Slices


def _bases(mode: Mode) -> list[int]:
    """The snapshots of the first nine that have the state of all subtasks."""
    return [number for number in range(9) if content(row_of(mode), number, is_sink=False).is_base]


@pytest.mark.parametrize(
    ("mode", "node", "sink", "base"),
    [
        (None, "state rows", "state rows", "state rows"),
        (InputLogging(), "", "state rows", ""),
        (Deltas(every=4), "", "state rows", "state rows"),
        (PersistentState("/d", every=4), "", "state rows", "state version"),
        (PersistentState("/d", every=4, copy=True), "", "state rows", "state rows version"),
        (MonoidClocks(), "state rows", "state rows", "state rows"),
        (ChannelLogs(), "state rows", "state rows", "state rows"),
    ],
)
def test_what_a_cut_holds(mode: Mode | None, node: str, sink: str, base: str) -> None:
    """Of a node and of a sink in snapshot 3, and of a node in snapshot 4."""
    row = row_of(mode)
    for expected, found in (
        (node, content(row, 3, is_sink=False)),
        (sink, content(row, 3, is_sink=True)),
        (base, content(row, 4, is_sink=False)),
    ):
        assert [name for name in ("state", "rows", "version") if getattr(found, name)] == expected.split()


def test_a_mode_is_wished_by_its_name_or_its_settings() -> None:
    """And stored by its name; markers are stored as nothing."""
    assert mode_of("markers") is None
    assert mode_of("inputLogging") == mode_of(InputLogging()) == InputLogging()
    assert (name_of_mode(None), name_of_mode(InputLogging())) == ("markers", "inputLogging")
    record = record_of_mode(InputLogging())
    assert record is not None and mode_of_record(record) == InputLogging()
    assert record_of_mode(None) is None


def test_deltas_have_settings() -> None:
    """Which are stored, and checked."""
    mode = Deltas(every=4, fullFactor=0.5)
    assert mode_of(mode) is mode and mode_of("deltas") == Deltas()
    record = record_of_mode(mode)
    assert record == {"name": "deltas", "every": 4, "full_factor": 0.5} and mode_of_record(record) == mode
    assert _bases(mode) == [0, 4, 8]
    assert _bases(InputLogging()) == []
    for wrong in ({"every": 0}, {"every": 1.5}, {"fullFactor": 0}, {"fullFactor": float("inf")}, {"every": True}):
        with pytest.raises(ValueError, match="Deltas: "):
            Deltas(**wrong)


def test_persistent_state_has_settings() -> None:
    """Which are stored, and checked. Its name alone lacks the folder."""
    mode = PersistentState("/disk", every=4, copy=True)
    record = record_of_mode(mode)
    assert record == {"name": "persistentState", "folder": "/disk", "every": 4, "copy": True}
    assert mode_of(mode) is mode and mode_of_record(record) == mode
    assert _bases(mode) == [0, 4, 8]
    assert [row_of(each).multiple for each in (None, InputLogging(), Deltas(every=3), mode)] == [1, 1, 3, 4]
    for wrong in ({"folder": "disk"}, {"folder": ""}, {"folder": 3}, {"every": 0}, {"copy": 1}):
        with pytest.raises(ValueError, match="PersistentState: "):
            PersistentState(**{"folder": "/disk", **wrong})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"needs a folder on a disk that stays: mode=PersistentState\(folder\)"):
        mode_of("persistentState")


def test_channel_logs_have_an_interval() -> None:
    """Which is stored, and checked. Only cycles are refused, because nodes and sources may do as they like."""
    mode = ChannelLogs(interval=0.5)
    record = record_of_mode(mode)
    assert record == {"name": "channelLogs", "interval": 0.5} and mode_of_record(record) == mode
    assert mode_of("channelLogs") == ChannelLogs(interval=5.0) and row_of(mode).multiple == 1
    for wrong in (0, -1.0, float("inf"), True, "5"):
        with pytest.raises(ValueError, match="ChannelLogs: interval is a number of seconds above 0"):
            ChannelLogs(interval=wrong)  # type: ignore[arg-type]
    graph = Graph("g").add("list", ListSource(1)).add("own", Own()).connect("list", "own")
    assert topology_of_record(record_of_topology(build(graph, "unaligned", mode).topology)).mode == mode
    graph.connect("own", "own")
    with pytest.raises(GraphError, match="'channelLogs' cannot run graph 'g': node 'own' is on a cycle; mode 'mar"):
        build(graph, "unaligned", mode)


class Own(Node):
    """Keeps a state of its own that is neither keyed nor partitioned."""

    deterministic = True

    def onMessage(self, message: Any, context: Context) -> None:
        pass

    def snapshotState(self, snapshotId: int, timestamp: float) -> int:
        return 1

    def restoreState(self, state: int) -> None:
        pass


def test_own_state_without_partitions_has_no_deltas() -> None:
    """By name; inputLogging makes such a state again, and aggregates keep rows."""
    graph = Graph("g").add("slices", Slices({"a": 3})).add("own", Own()).connect("slices", "own")
    with pytest.raises(
        GraphError, match="mode 'deltas' cannot run graph 'g': node 'own' has state that is neither keyed"
    ):
        build(graph, "unaligned", Deltas())
    build(graph, "unaligned", InputLogging())
    with pytest.raises(GraphError, match="'g': node 'own' has state outside keyed state, which a local database"):
        build(graph, "unaligned", PersistentState("/disk"))
    summed = Graph("g").add("slices", Slices({"a": 3}, as_batches=True))
    summed.add("sum", KeyedAggregate("word", aggregates={"n": ("number", "sum")}))
    summed.add("out", ListSink()).connect("slices", "sum", key="word", schema=SCHEMA).connect("sum", "out")
    build(summed, "unaligned", Deltas())
    with pytest.raises(GraphError, match="'g': node 'sum' has state outside keyed state, which a local database"):
        build(summed, "unaligned", PersistentState("/disk"))


def test_hashes_of_states_are_a_setting() -> None:
    """Which is stored, and checked. Nodes with attributes that have no hash are refused by name."""
    mode = InputLogging(hashes="states")
    record = record_of_mode(mode)
    assert record == {"name": "inputLogging", "hashes": "states"} and mode_of_record(record) == mode
    with pytest.raises(ValueError, match="InputLogging: hashes is 'outputs' or 'states', not 'all'"):
        InputLogging(hashes="all")  # type: ignore[arg-type]
    graph = Graph("g").add("slices", Slices({"a": 3})).add("own", Own()).add("each", Each())
    graph.connect("slices", "own").connect("slices", "each")
    said = r"node 'each' has attributes \(count, link\) that no snapshotState gives, so they have no hash$"
    with pytest.raises(GraphError, match=said):
        build(graph, "unaligned", mode)
    build(graph, "unaligned", InputLogging())


def test_clocks_have_settings() -> None:
    """Which are stored, and checked. Each snapshot has the state of the sources."""
    mode = MonoidClocks(memory=4_096)
    record = record_of_mode(mode)
    assert record is not None and mode_of_record(record) == mode and record["memory"] == 4_096
    assert mode_of("monoidClocks") == mode_of(MonoidClocks()) == MonoidClocks() and name_of_mode(mode) == "monoidClocks"
    assert _bases(mode) == [*range(9)] and not row_of(mode).has_steps and row_of(mode).multiple == 1
    assert row_of(mode).difference_bytes_max == 4_096
    assert row_of(None).difference_bytes_max == MonoidClocks().memory
    for wrong in (0, -1, 1.5, True, "1"):
        with pytest.raises(ValueError, match="MonoidClocks: memory is a whole number of bytes from 1, not "):
            MonoidClocks(memory=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wish", ["inputlogging", "", None, 5, InputLogging])
def test_an_unknown_mode_is_refused(wish: Any) -> None:
    """With the names that there are."""
    with pytest.raises(
        ValueError,
        match=r"mode .* is unknown; there are 'markers', 'inputLogging', 'deltas', 'monoidClocks', 'channelLogs'$",
    ):
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


class Timed(Node):
    """Sends what it has got, later."""

    def onMessage(self, message: Any, context: Context) -> None:
        context.registerTimer(context.now + 1)

    def onTimer(self, at: float, context: Context) -> None:
        context.send(at)


def _totalled(source: Any = None, **nodes: Node) -> Graph:
    """A chain of nodes between a source and an aggregate."""
    graph, last = Graph("g").add("slices", source or Slices({"a": 3})), "slices"
    for name, node in nodes.items():
        graph.add(name, node).connect(last, name)
        last = name
    graph.add("sums", PersistentAggregate(Count(), MemoryStore()))
    return graph.connect(last, "sums", key=str)


LACKS_OF_CLOCKS: dict[str, tuple[Callable[[], Graph], str]] = {
    "a cycle": (
        lambda: _totalled(relay=Relay()).connect("relay", "relay", partitioning="directed"),
        "node 'relay' is on a cycle; mode 'markers' can",
    ),
    "a source": (
        lambda: _totalled(ListSource("a")),
        "source 'slices' is no ReplayableSource: its input cannot be read again by offsets",
    ),
    "no aggregate": (
        lambda: Graph("g").add("slices", Slices({"a": 3})).add("relay", Relay()).connect("slices", "relay"),
        "it has no persistentAggregate",
    ),
    "another sink": (
        lambda: _totalled().add("out", ListSink()).connect("slices", "out"),
        "sink 'out' is no aggregate",
    ),
    "state": (
        lambda: _totalled(own=Own()),
        "node 'own' between sources and aggregate 'sums' keeps state or timers",
    ),
    "timers": (
        lambda: _totalled(timed=Timed()),
        "node 'timed' between sources and aggregate 'sums' keeps state or timers",
    ),
    "failed messages": (
        lambda: (
            _totalled().add("relay", Relay()).add("failed", Relay()).connect("slices", "relay", onError="failed")
            .connect("relay", "sums", key=str).connect("failed", "sums", key=str)
        ),
        "edge slices->relay sets messages aside that fail (onError), which have no clock; mode 'markers' can",
    ),
}  # fmt: skip


@pytest.mark.parametrize("lack", LACKS_OF_CLOCKS)
def test_what_a_graph_lacks_for_clocks_is_said_by_name(lack: str) -> None:
    """One sentence; markers run the same graph."""
    graph, said = LACKS_OF_CLOCKS[lack]
    with pytest.raises(GraphError) as refused:
        build(graph(), "unaligned", MonoidClocks())
    assert str(refused.value) == f"mode 'monoidClocks' cannot run graph 'g': {said}"
    build(graph(), "unaligned")


def test_a_graph_may_have_totals_by_clocks() -> None:
    """Relays need not be deterministic, because nothing is done twice behind a published snapshot."""
    topology = build(_totalled(relay=Undeclared()), "unaligned", MonoidClocks()).topology
    assert {edge.alignment for edge in topology.edges} == {ALIGNED}
    assert [node.name for node in topology.nodes if node.is_aggregate] == ["sums"]
    assert topology_of_record(record_of_topology(topology)) == topology
